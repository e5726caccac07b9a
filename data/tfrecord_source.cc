// Datasets of TFRecord files.
#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/guarded.h"
#include "base/status_macros.h"
#include "data/parse_example.h"
#include "data/record_files.h"
#include "data/text_columns.h"
#include "formats/example.h"
#include "formats/tfrecord.h"

namespace divvy::data_internal {
namespace {

// A parsed record needs several times its size.
constexpr size_t kMaxRecordBytes = size_t{256} << 20;

class TfRecordReader : public RecordReader {
 public:
  explicit TfRecordReader(ParseRecord parse) : parse_(std::move(parse)) {}

  bool IsPlain(absl::string_view bytes) const override { return BeginsTfRecord(bytes); }

  absl::Status Begin(absl::string_view, TextPosition& at) override {
    at = {0, 1};
    return absl::OkStatus();
  }

  bool Skip(absl::string_view file, TextPosition& at) override {
    const auto record = ReadTfRecord(file, at.offset);
    ++at.line;
    return !record.ok() || record->has_value();
  }

  Element Read(absl::string_view file, TextPosition& at) override {
    const TextPosition start = at;
    const auto record = ReadTfRecord(file, at.offset);
    ++at.line;
    if (!record.ok()) return WithContext(record.status(), absl::StrCat("record ", start.line));
    if (!record->has_value()) return std::nullopt;
    if ((*record)->size() > kMaxRecordBytes) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "record ", start.line, ": offset ", start.offset, ": has ", (*record)->size(),
          " bytes, and may have at most ", kMaxRecordBytes, ": write several smaller records"));
    }
    absl::StatusOr<Nest> element = internal::Guarded<absl::StatusOr<Nest>>(
        "the parse function of TfRecord", [&] { return parse_(**record); });
    if (element.ok()) element = NestCodec<Nest>::Decode(*element);
    if (element.ok()) return *std::move(element);
    return WithContext(element.status(),
                       absl::StrCat("record ", start.line, ": offset ", start.offset));
  }

 private:
  const ParseRecord parse_;
};

// Records that are Examples with the same features.
class ExampleReader : public TfRecordReader {
 public:
  explicit ExampleReader(const std::vector<ExampleFeature>& features)
      : TfRecordReader(
            [features](absl::string_view record) { return ParseExample(record, features); }),
        features_(features),
        rows_(ColumnsOf(features)),
        growing_(features.size()),
        texts_(features.size()),
        to_(features.size()) {
    std::set<std::string> names;
    for (size_t i = 0; i < features_.size(); ++i) {
      const ExampleFeature& feature = features_[i];
      has_columns_ &= HasColumn(feature) && names.insert(feature.name).second;
      if (!HasColumn(feature)) continue;
      const int64_t count = feature.shape.num_elements();
      row_bytes_ += static_cast<size_t>(count * DTypeSize(DTypeOfRows(feature)));
      if (feature.keys) texts_[i].resize(static_cast<size_t>(count));
    }
  }

  int64_t BeginRows(int64_t most, size_t bytes_left) override {
    constexpr size_t kLeastRecord = 16;  // its frame
    if (!has_columns_ || features_.empty()) return 0;
    const int64_t rows = RowsInBlock(most, bytes_left, kLeastRecord, row_bytes_);
    for (size_t i = 0; i < features_.size(); ++i) {
      if (!growing_[i].Begin(DTypeOfRows(features_[i]), features_[i].shape, rows).ok()) return 0;
    }
    return rows;
  }

  bool ReadRow(absl::string_view file, TextPosition& at, int64_t row) override {
    const auto record = ReadTfRecord(file, at.offset);
    ++at.line;
    if (!record.ok() || !record->has_value() || (*record)->size() > kMaxRecordBytes) return false;
    for (size_t i = 0; i < to_.size(); ++i)
      to_[i] = features_[i].keys ? reinterpret_cast<char*>(texts_[i].data()) : growing_[i].row(row);
    return rows_.Read(**record, to_) && MakeKeys(row);
  }

  absl::StatusOr<Nest> EndRows(int64_t rows) override {
    return EndColumns(features_, growing_, rows);
  }

 private:
  // Makes keys of texts_ in this row. False: a text has none.
  bool MakeKeys(int64_t row) {
    for (size_t i = 0; i < features_.size(); ++i) {
      if (!features_[i].keys) continue;
      int64_t* const keys = growing_[i].row_as<int64_t>(row);
      for (size_t at = 0; at < texts_[i].size(); ++at) {
        if (!features_[i].keys->TryKey(texts_[i][at], &keys[at])) return false;
      }
    }
    return true;
  }

  // Whether every record has the same number of numbers.
  static bool HasColumn(const ExampleFeature& feature) {
    const bool is_right_type =
        feature.keys ? feature.dtype == DType::kString
                     : feature.dtype == DType::kFloat32 || feature.dtype == DType::kInt64;
    return is_right_type && feature.shape.status().ok() && feature.shape.rank() < Shape::kMaxRank &&
           feature.shape.num_elements() >= 0;
  }

  static DType DTypeOfRows(const ExampleFeature& feature) {
    return feature.keys ? DType::kInt64 : feature.dtype;
  }

  static std::vector<ExampleColumn> ColumnsOf(const std::vector<ExampleFeature>& features) {
    std::vector<ExampleColumn> columns;
    for (const ExampleFeature& feature : features) {
      const auto type = feature.keys                     ? ExampleColumn::Type::kBytes
                        : feature.dtype == DType::kInt64 ? ExampleColumn::Type::kInt64
                                                         : ExampleColumn::Type::kFloat;
      columns.push_back({feature.name, type,
                         static_cast<size_t>(std::max<int64_t>(feature.shape.num_elements(), 0))});
    }
    return columns;
  }

  const std::vector<ExampleFeature> features_;
  ExampleRowReader rows_;
  bool has_columns_ = true;
  size_t row_bytes_ = 0;
  // One for each feature.
  std::vector<GrowingColumn> growing_;
  std::vector<std::vector<absl::string_view>> texts_;  // of features with keys, in one record
  std::vector<char*> to_;
};

}  // namespace

Recipe TfRecordRecipe(std::string files, ParseRecord parse) {
  return RecordFilesRecipe(std::move(files), [parse = std::move(parse)] {
    return std::make_unique<TfRecordReader>(parse);
  });
}

Recipe ExampleRecipe(std::string files, std::vector<ExampleFeature> features) {
  return RecordFilesRecipe(std::move(files), [features = std::move(features)] {
    return std::make_unique<ExampleReader>(features);
  });
}

}  // namespace divvy::data_internal
