// Datasets read from CSV files.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "data/record_files.h"
#include "data/text_columns.h"
#include "formats/csv.h"
#include "formats/text.h"

namespace divvy::data_internal {
namespace {

// ---- elements by themselves; these functions tell what is wrong with a field

// The number in a field. One function for each kind of type that tensors hold.
template <typename T>
absl::StatusOr<T> ParseField(absl::string_view text) {
  if constexpr (std::is_same_v<T, bool>) {
    if (text == "1" || absl::EqualsIgnoreCase(text, "true")) return true;
    if (text == "0" || absl::EqualsIgnoreCase(text, "false")) return false;
    return absl::DataLossError(
        absl::StrCat(QuoteForMessage(text), " is none of 0, 1, true, false"));
  } else if constexpr (std::is_same_v<T, float>) {
    return ParseFloat(text);
  } else if constexpr (std::is_same_v<T, double>) {
    return ParseDouble(text);
  } else if constexpr (std::is_integral_v<T>) {
    ASSIGN_OR_RETURN(const int64_t value, ParseInt64(text));
    if (value >= std::numeric_limits<T>::min() && value <= std::numeric_limits<T>::max())
      return static_cast<T>(value);
    return absl::DataLossError(
        absl::StrCat(value, " does not fit into ", DTypeName(DTypeOf<T>::value)));
  } else {
    ASSIGN_OR_RETURN(const float value, ParseFloat(text));
    return T::FromFloat(value);
  }
}

// The number in a field of a column that has a bound.
template <typename T>
absl::StatusOr<T> ParseBelow(int64_t below, absl::string_view text) {
  ASSIGN_OR_RETURN(const T value, ParseField<T>(text));
  if (value >= 0 && static_cast<int64_t>(value) < below) return value;
  return NotBelow("", static_cast<int64_t>(value), below, "the column's bound");
}

// The number in a field of a column where NotFinite is refused.
template <typename T>
absl::StatusOr<T> ParseFinite(absl::string_view text) {
  ASSIGN_OR_RETURN(const T value, ParseField<T>(text));
  bool finite = true;
  if constexpr (std::is_floating_point_v<T>) {
    finite = std::isfinite(value);
  } else if constexpr (!std::is_integral_v<T>) {
    finite = std::isfinite(value.ToFloat());
  }
  if (finite) return value;
  return absl::DataLossError(
      absl::StrCat(QuoteForMessage(text),
                   " is not finite: correct the line, skip it (IgnoreErrors), or give the "
                   "column CsvColumn::NotFinite::kTaken"));
}

// The number of an empty field. REQUIRES: the column has if_empty.
template <typename T>
T NumberIfEmpty(const CsvColumn& column) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<T>(*column.if_empty);
  else
    return T::FromFloat(static_cast<float>(*column.if_empty));
}

// A tensor of one element for each field; a scalar where there is one. `numbers`: the column, if
// its fields are numbers; null: they are texts.
template <typename T, typename Parse>
absl::StatusOr<Tensor> FieldsToTensor(const CsvColumn* numbers,
                                      absl::Span<const std::string> fields, const Parse& parse) {
  const Shape shape = fields.size() == 1 ? Shape() : Shape{static_cast<int64_t>(fields.size())};
  ASSIGN_OR_RETURN(Tensor tensor, Tensor::Uninitialized(DTypeOf<T>::value, shape));
  T* to = tensor.fresh_data<T>();
  for (const std::string& field : fields) {
    const absl::string_view text = numbers != nullptr ? absl::StripAsciiWhitespace(field) : field;
    if (text.empty() && numbers != nullptr && numbers->if_empty) {
      *to++ = NumberIfEmpty<T>(*numbers);
      continue;
    }
    ASSIGN_OR_RETURN(*to, parse(text));
    ++to;
  }
  return tensor;
}

// The fields as they are.
Nest FieldsToTexts(absl::Span<const std::string> fields) {
  if (fields.size() == 1) return Nest(fields[0]);
  return Nest(Nest::List(fields.begin(), fields.end()));
}

absl::StatusOr<Tensor> ReadNumbers(const CsvColumn& column, absl::Span<const std::string> fields) {
  if (column.keys) {
    return FieldsToTensor<int64_t>(
        nullptr, fields, [&column](absl::string_view text) -> absl::StatusOr<int64_t> {
          const absl::StatusOr<int64_t> key = column.keys->Key(text);
          return key.ok() ? key : absl::DataLossError(key.status().message());
        });
  }
  return DispatchDType(
      column.dtype,
      [&column, fields](auto type) {
        using T = decltype(type);
        if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
          if (column.below > 0)
            return FieldsToTensor<T>(&column, fields, [&column](absl::string_view text) {
              return ParseBelow<T>(column.below, text);
            });
        }
        if (column.not_finite == CsvColumn::NotFinite::kRefused)
          return FieldsToTensor<T>(&column, fields, ParseFinite<T>);
        return FieldsToTensor<T>(&column, fields, ParseField<T>);
      },
      absl::StatusOr<Tensor>(absl::InvalidArgumentError(
          absl::StrCat(DTypeName(column.dtype), " cannot be read from text"))));
}

absl::StatusOr<Nest> ReadColumn(const CsvColumn& column, absl::Span<const std::string> fields) {
  if (!column.keys && column.dtype == DType::kString) return FieldsToTexts(fields);
  ASSIGN_OR_RETURN(Tensor numbers, ReadNumbers(column, fields));
  return Nest(std::move(numbers));
}

// ---- rows of columns; false where the functions above give an error

template <typename T>
bool TryParseField(absl::string_view text, T* value) {
  if constexpr (std::is_same_v<T, float>) {
    return TryParseFloat(text, value);
  } else if constexpr (std::is_same_v<T, double>) {
    return TryParseDouble(text, value);
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    int64_t wide = 0;
    if (!TryParseInt64(text, &wide) || wide < std::numeric_limits<T>::min() ||
        wide > std::numeric_limits<T>::max())
      return false;
    *value = static_cast<T>(wide);
    return true;
  } else {
    const absl::StatusOr<T> parsed = ParseField<T>(text);
    if (parsed.ok()) *value = *parsed;
    return parsed.ok();
  }
}

template <typename T>
bool IsAllowed(const CsvColumn& column, T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::isfinite(value) || column.not_finite == CsvColumn::NotFinite::kTaken;
  } else if constexpr (std::is_same_v<T, bool>) {
    return true;
  } else if constexpr (std::is_integral_v<T>) {
    return column.below == 0 || (value >= 0 && static_cast<int64_t>(value) < column.below);
  } else {
    return std::isfinite(value.ToFloat()) || column.not_finite == CsvColumn::NotFinite::kTaken;
  }
}

// Reads the fields of a column into its row.
using ReadFieldsFn = bool (*)(const CsvColumn& column, const absl::string_view* fields, char* to);

bool KeysOfFields(const CsvColumn& column, const absl::string_view* fields, char* to) {
  int64_t* const keys = reinterpret_cast<int64_t*>(to);
  for (int64_t i = 0; i < column.width; ++i) {
    if (!column.keys->TryKey(fields[i], &keys[i])) return false;
  }
  return true;
}

template <typename T>
bool ParseFields(const CsvColumn& column, const absl::string_view* fields, char* to) {
  T* const values = reinterpret_cast<T*>(to);
  for (int64_t i = 0; i < column.width; ++i) {
    const absl::string_view text = absl::StripAsciiWhitespace(fields[i]);
    if (text.empty() && column.if_empty)
      values[i] = NumberIfEmpty<T>(column);
    else if (!TryParseField<T>(text, &values[i]) || !IsAllowed(column, values[i]))
      return false;
  }
  return true;
}

// Null: the column cannot be read into rows, because it stays text.
ReadFieldsFn ReadFieldsOf(const CsvColumn& column) {
  if (column.keys) return KeysOfFields;
  return DispatchDType(
      column.dtype, [](auto type) -> ReadFieldsFn { return ParseFields<decltype(type)>; },
      ReadFieldsFn{nullptr});
}

// The dtype of the tensors that a column becomes.
DType DTypeOfRows(const CsvColumn& column) { return column.keys ? DType::kInt64 : column.dtype; }

// Columns in which `keys` also stand for hash_buckets.
std::vector<CsvColumn> WithKeys(std::vector<CsvColumn> columns) {
  for (CsvColumn& column : columns) {
    if (column.hash_buckets > 0) column.keys = TextKeys::Hashed(/*salt=*/"", column.hash_buckets);
  }
  return columns;
}

class CsvReader : public RecordReader {
 public:
  // REQUIRES: the columns are WithKeys.
  CsvReader(std::vector<CsvColumn> columns, char separator)
      : columns_(std::move(columns)), separator_(separator), growing_(columns_.size()) {
    for (const CsvColumn& column : columns_) {
      read_fields_.push_back(ReadFieldsOf(column));
      row_bytes_ += static_cast<size_t>(column.width * DTypeSize(DTypeOfRows(column)));
    }
  }

  // The first record is a header if it has all names.
  absl::Status Begin(absl::string_view text, TextPosition& at) override {
    RETURN_IF_ERROR(RecordReader::Begin(text, at));
    TextPosition behind = at;
    first_line_ = -1;
    PlaceByPosition();
    const absl::StatusOr<bool> first = ReadCsvRecord(text, behind, record_, separator_);
    if (!first.ok() || !*first) return absl::OkStatus();  // Read will tell
    first_line_ = record_.line;
    if (!HeaderHasAllNames()) return absl::OkStatus();
    at = behind;
    first_line_ = -1;
    return PlaceByName();
  }

  bool Skip(absl::string_view text, TextPosition& at) override {
    return SkipCsvRecord(text, at, record_, separator_);
  }

  Element Read(absl::string_view text, TextPosition& at) override {
    ASSIGN_OR_RETURN(const bool got, ReadCsvRecord(text, at, record_, separator_));
    if (!got) return std::nullopt;
    absl::StatusOr<Nest> element = ToNest();
    if (element.ok()) return *std::move(element);
    return WithContext(element.status(), absl::StrCat("line ", record_.line));
  }

  int64_t BeginRows(int64_t most, size_t bytes_left) override {
    const bool can_be_read = std::count(read_fields_.begin(), read_fields_.end(), nullptr) == 0;
    if (!can_be_read || num_fields_ > kMaxCsvFields) return 0;
    const int64_t rows = RowsInBlock(most, bytes_left, num_fields_, row_bytes_);
    for (size_t i = 0; i < columns_.size(); ++i) {
      const CsvColumn& column = columns_[i];
      const Shape shape = column.width == 1 ? Shape() : Shape{column.width};
      if (!growing_[i].Begin(DTypeOfRows(column), shape, rows).ok()) return 0;
    }
    fields_.resize(num_fields_);
    return rows;
  }

  bool ReadRow(absl::string_view text, TextPosition& at, int64_t row) override {
    if (!ReadPlainCsvRecord(text, at, absl::MakeSpan(fields_), separator_) && !ReadQuoted(text, at))
      return false;
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (!read_fields_[i](columns_[i], &fields_[first_fields_[i]], growing_[i].row(row)))
        return false;
    }
    return true;
  }

  absl::StatusOr<Nest> EndRows(int64_t rows) override {
    return EndColumns(columns_, growing_, rows);
  }

 private:
  // Reads a record that has quotes.
  bool ReadQuoted(absl::string_view text, TextPosition& at) {
    const absl::StatusOr<bool> got = ReadCsvRecord(text, at, record_, separator_);
    if (!got.ok() || !*got || record_.fields.size() != num_fields_) return false;
    std::copy(record_.fields.begin(), record_.fields.end(), fields_.begin());
    return true;
  }

  size_t FieldNamed(absl::string_view name) const {
    return static_cast<size_t>(std::find_if(record_.fields.begin(), record_.fields.end(),
                                            [name](const std::string& field) {
                                              return field == name ||
                                                     absl::StripAsciiWhitespace(field) == name;
                                            }) -
                               record_.fields.begin());
  }

  bool HeaderHasAllNames() const {
    return std::all_of(columns_.begin(), columns_.end(), [this](const CsvColumn& column) {
      return FieldNamed(column.name) < record_.fields.size();
    });
  }

  void PlaceByPosition() {
    first_fields_.clear();
    num_fields_ = 0;
    for (const CsvColumn& column : columns_) {
      first_fields_.push_back(num_fields_);
      num_fields_ += static_cast<size_t>(column.width);
    }
  }

  absl::Status PlaceByName() {
    num_fields_ = record_.fields.size();
    for (size_t i = 0; i < columns_.size(); ++i) {
      first_fields_[i] = FieldNamed(columns_[i].name);
      if (first_fields_[i] + static_cast<size_t>(columns_[i].width) > num_fields_) {
        return absl::DataLossError(
            absl::StrCat("line ", record_.line, ": column \"", columns_[i].name, "\" has ",
                         columns_[i].width, " fields, but the header has only ",
                         num_fields_ - first_fields_[i], " from its name on"));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Nest> ToNest() const {
    if (record_.fields.size() != num_fields_) {
      const std::string hint = HeaderHint();
      return absl::DataLossError(
          absl::StrCat("has ", record_.fields.size(), " fields, wanted ", num_fields_,
                       hint.empty() ? absl::StrCat(": ", ColumnNames()) : hint));
    }
    Nest::Dict element;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const auto fields = absl::MakeConstSpan(record_.fields)
                              .subspan(first_fields_[i], static_cast<size_t>(columns_[i].width));
      absl::StatusOr<Nest> value = ReadColumn(columns_[i], fields);
      if (!value.ok())
        return absl::Status(value.status().code(),
                            absl::StrCat("column \"", columns_[i].name,
                                         "\": ", value.status().message(), HeaderHint()));
      element.emplace(columns_[i].name, *std::move(value));
    }
    return Nest(std::move(element));
  }

  // A header that lacks a name looks like an unreadable first line.
  std::string HeaderHint() const {
    if (record_.line != first_line_) return "";
    return absl::StrCat("; if this is a header, it must have all of ", ColumnNames());
  }

  std::string ColumnNames() const {
    return absl::StrJoin(columns_, ", ", [](std::string* out, const CsvColumn& column) {
      absl::StrAppend(out, column.name);
    });
  }

  const std::vector<CsvColumn> columns_;
  const char separator_;
  std::vector<size_t> first_fields_;  // of each column
  size_t num_fields_ = 0;             // that each record must have
  int64_t first_line_ = -1;           // of the file's first record, if that is no header
  CsvRecord record_;
  // For rows of columns; each of these has an entry for each column.
  std::vector<ReadFieldsFn> read_fields_;
  std::vector<GrowingColumn> growing_;
  size_t row_bytes_ = 0;                   // of all columns
  std::vector<absl::string_view> fields_;  // of a record
};

}  // namespace

Recipe CsvRecipe(std::string files, std::vector<CsvColumn> columns, char separator) {
  return RecordFilesRecipe(std::move(files), [columns = WithKeys(std::move(columns)), separator] {
    return std::make_unique<CsvReader>(columns, separator);
  });
}

}  // namespace divvy::data_internal
