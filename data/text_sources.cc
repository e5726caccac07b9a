// Datasets read from text, with one record reader for each format.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "data/record_files.h"
#include "formats/csv.h"
#include "formats/libsvm.h"
#include "formats/text.h"

namespace divvy::data_internal {
namespace {

// ---- libsvm

// Converts the label of a row as `labels` says.
absl::StatusOr<float> LabelAs(LibsvmLabels labels, float written) {
  const auto refused = [written](absl::string_view wanted) {
    return absl::DataLossError(absl::StrCat("the label ", written, " is none of ", wanted));
  };
  switch (labels) {
    case LibsvmLabels::kAsWritten: return written;
    case LibsvmLabels::kBinary:
      if (written == -1 || written == 0) return 0;
      if (written == 1) return 1;
      return refused(
          "-1, 0 and 1, which LibsvmLabels::kBinary takes: kOneTwo is for 1 and 2, kAsWritten for "
          "more classes and for numbers");
    case LibsvmLabels::kOneTwo:
      if (written == 1 || written == 2) return written - 1;
      return refused(
          "1 and 2, which LibsvmLabels::kOneTwo takes: kBinary is for -1 and 1 or 0 and 1, "
          "kAsWritten for more classes and for numbers");
  }
  return written;
}

// The error for a value that is outside the bound of its column, or of Libsvm's ids.
absl::Status NotBelow(absl::string_view what, int64_t value, int64_t below,
                      absl::string_view bound) {
  return absl::DataLossError(absl::StrCat(what, value, " is not in [0, ", below,
                                          "): correct the line, or make ", bound,
                                          ", and its table, larger"));
}

class LibsvmReader : public RecordReader {
 public:
  LibsvmReader(int64_t below, LibsvmLabels labels) : below_(below), labels_(labels) {}

  bool Skip(absl::string_view text, TextPosition& at) override {
    absl::string_view line;
    while (TakeLine(text, at, &line)) {
      if (!IsBlankLibsvmLine(line)) return true;
    }
    return false;
  }

  Element Read(absl::string_view text, TextPosition& at) override {
    absl::string_view line;
    while (true) {
      const int64_t number = at.line;
      if (!TakeLine(text, at, &line)) return std::nullopt;
      const absl::StatusOr<bool> is_row = ReadLibsvmLine(line, row_);
      const absl::Status status = is_row.ok() && *is_row ? Check() : is_row.status();
      if (!status.ok()) return WithContext(status, absl::StrCat("line ", number));
      if (*is_row) return ToNest();
    }
  }

 private:
  absl::Status Check() {
    ASSIGN_OR_RETURN(row_.label, LabelAs(labels_, row_.label));
    if (below_ == 0 || row_.ids.empty()) return absl::OkStatus();
    const int64_t largest = *std::max_element(row_.ids.begin(), row_.ids.end());
    return largest < below_ ? absl::OkStatus()
                            : NotBelow("the id ", largest, below_, "the bound of Libsvm");
  }

  Nest ToNest() const {
    SparseIds features;
    features.ids = Tensor::Vector<int64_t>(row_.ids);
    features.row_splits = Tensor::Vector<int64_t>({0, static_cast<int64_t>(row_.ids.size())});
    features.weights = Tensor::Vector<float>(row_.values);
    return Nest{{"features", Nest(std::move(features))},
                {"label", Nest(Tensor::Scalar<float>(row_.label))}};
  }

  const int64_t below_;  // 0: no bound
  const LibsvmLabels labels_;
  LibsvmRow row_;
};

// ---- CSV

// The number in a field.
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

// The number in a field of a column with NotFinite::kRefused.
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

// A tensor with one element for each field; a scalar if there is only one field.
template <typename T, typename Parse>
absl::StatusOr<Tensor> FieldsToTensor(absl::Span<const std::string> fields, const Parse& parse) {
  const Shape shape = fields.size() == 1 ? Shape() : Shape{static_cast<int64_t>(fields.size())};
  ASSIGN_OR_RETURN(Tensor tensor, Tensor::Uninitialized(DTypeOf<T>::value, shape));
  T* to = tensor.fresh_data<T>();
  for (const std::string& field : fields) {
    ASSIGN_OR_RETURN(*to, parse(field));
    ++to;
  }
  return tensor;
}

absl::StatusOr<Tensor> ReadColumn(const CsvColumn& column, absl::Span<const std::string> fields) {
  if (column.hash_buckets > 0) {
    const uint64_t buckets = static_cast<uint64_t>(column.hash_buckets);
    return FieldsToTensor<int64_t>(fields,
                                   [buckets](absl::string_view text) -> absl::StatusOr<int64_t> {
                                     return static_cast<int64_t>(HashText(text) % buckets);
                                   });
  }
  return DispatchDType(
      column.dtype,
      [&column, fields](auto type) {
        using T = decltype(type);
        if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
          if (column.below > 0)
            return FieldsToTensor<T>(fields, [&column](absl::string_view text) {
              return ParseBelow<T>(column.below, text);
            });
        }
        if (column.not_finite == CsvColumn::NotFinite::kRefused)
          return FieldsToTensor<T>(fields, ParseFinite<T>);
        return FieldsToTensor<T>(fields, ParseField<T>);
      },
      absl::StatusOr<Tensor>(absl::InvalidArgumentError(
          absl::StrCat(DTypeName(column.dtype), " cannot be read from text"))));
}

class CsvReader : public RecordReader {
 public:
  CsvReader(std::vector<CsvColumn> columns, char separator)
      : columns_(std::move(columns)), separator_(separator) {}

  // The first record is a header if it has all names.
  absl::Status Begin(absl::string_view text, TextPosition& at) override {
    at = StartOfText(text);
    TextPosition behind = at;
    first_line_ = -1;
    PlaceByPosition();
    const absl::StatusOr<bool> first = ReadCsvRecord(text, behind, record_, separator_);
    if (!first.ok() || !*first) return absl::OkStatus();  // Read returns the error
    first_line_ = record_.line;
    if (!HeaderHasAllNames()) return absl::OkStatus();
    at = behind;
    first_line_ = -1;
    return PlaceByName();
  }

  bool Skip(absl::string_view text, TextPosition& at) override {
    const absl::StatusOr<bool> got = ReadCsvRecord(text, at, record_, separator_);
    return !got.ok() || *got;
  }

  Element Read(absl::string_view text, TextPosition& at) override {
    ASSIGN_OR_RETURN(const bool got, ReadCsvRecord(text, at, record_, separator_));
    if (!got) return std::nullopt;
    absl::StatusOr<Nest> element = ToNest();
    if (element.ok()) return *std::move(element);
    return WithContext(element.status(), absl::StrCat("line ", record_.line));
  }

 private:
  size_t FieldNamed(absl::string_view name) const {
    return static_cast<size_t>(std::find(record_.fields.begin(), record_.fields.end(), name) -
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
      absl::StatusOr<Tensor> value = ReadColumn(columns_[i], fields);
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
  int64_t first_line_ = -1;           // of the file's first record, if it is no header
  CsvRecord record_;
};

// ---- Criteo's logs

class CriteoReader : public RecordReader {
 public:
  absl::Status Begin(absl::string_view text, TextPosition& at) override {
    at = StartOfText(text);
    TextPosition behind = at;
    absl::string_view line;
    TakeLine(text, behind, &line);
    separator_ = absl::StrContains(line, '\t') ? '\t' : ',';
    if (absl::StartsWith(line, "label")) at = behind;
    return absl::OkStatus();
  }

  bool Skip(absl::string_view text, TextPosition& at) override {
    absl::string_view line;
    while (TakeLine(text, at, &line)) {
      if (!line.empty()) return true;
    }
    return false;
  }

  Element Read(absl::string_view text, TextPosition& at) override {
    absl::string_view line;
    while (true) {
      const int64_t number = at.line;
      if (!TakeLine(text, at, &line)) return std::nullopt;
      if (line.empty()) continue;
      absl::StatusOr<Nest> element = ToNest(line);
      if (element.ok()) return *std::move(element);
      return WithContext(element.status(), absl::StrCat("line ", number));
    }
  }

 private:
  static constexpr size_t kCounts = 13;
  static constexpr size_t kCategories = 26;

  absl::StatusOr<Nest> ToNest(absl::string_view line) const {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, separator_);
    if (fields.size() != 1 + kCounts + kCategories) {
      return absl::DataLossError(absl::StrCat(
          "has ", fields.size(), " fields separated by ", separator_ == '\t' ? "tabs" : "commas",
          ", wanted a label, ", kCounts, " counts and ", kCategories, " categories"));
    }
    ASSIGN_OR_RETURN(const float label, ParseFloat(fields[0]));
    if (label != 0 && label != 1)
      return absl::DataLossError(
          absl::StrCat("the label (the first field) is ", label, ", must be 0 or 1"));
    std::vector<float> dense;
    for (size_t i = 1; i <= kCounts; ++i) {
      ASSIGN_OR_RETURN(const float count, ParseFiniteFloat(fields[i].empty() ? "0" : fields[i]));
      dense.push_back(count);
    }
    std::vector<int64_t> sparse;
    for (size_t i = 1 + kCounts; i < fields.size(); ++i)
      sparse.push_back(static_cast<int64_t>(HashText(fields[i]) >> 1));
    return Nest{{"label", Nest(Tensor::Scalar<float>(label))},
                {"dense", Nest(Tensor::Vector<float>(dense))},
                {"sparse", Nest(Tensor::Vector<int64_t>(sparse))}};
  }

  char separator_ = '\t';  // of the file
};

}  // namespace

Recipe LibsvmRecipe(std::string files, int64_t below, LibsvmLabels labels) {
  return RecordFilesRecipe(
      std::move(files), [below, labels] { return std::make_unique<LibsvmReader>(below, labels); });
}

Recipe CsvRecipe(std::string files, std::vector<CsvColumn> columns, char separator) {
  return RecordFilesRecipe(std::move(files), [columns = std::move(columns), separator] {
    return std::make_unique<CsvReader>(columns, separator);
  });
}

Recipe CriteoRecipe(std::string files) {
  return RecordFilesRecipe(std::move(files), [] { return std::make_unique<CriteoReader>(); });
}

}  // namespace divvy::data_internal
