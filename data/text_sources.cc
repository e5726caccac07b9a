// Datasets read from libsvm files and from the logs of Criteo.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "data/record_files.h"
#include "data/stacking.h"
#include "data/text_columns.h"
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

  int64_t BeginRows(int64_t most, size_t bytes_left) override {
    ids_.clear();
    weights_.clear();
    labels_of_rows_.clear();
    splits_ = {0};
    // Lines of one file have about the same length, or so it was in the last block.
    constexpr size_t kLeastLine = 2;
    return RowsInBlock(most, bytes_left, kLeastLine, bytes_of_row_);
  }

  bool ReadRow(absl::string_view text, TextPosition& at, int64_t) override {
    absl::string_view line;
    while (TakeLine(text, at, &line)) {
      const absl::StatusOr<bool> is_row = ReadLibsvmLine(line, row_);
      if (!is_row.ok()) return false;
      if (!*is_row) continue;
      if (!Check().ok()) return false;
      ids_.insert(ids_.end(), row_.ids.begin(), row_.ids.end());
      weights_.insert(weights_.end(), row_.values.begin(), row_.values.end());
      splits_.push_back(static_cast<int64_t>(ids_.size()));
      labels_of_rows_.push_back(row_.label);
      return true;
    }
    return false;
  }

  absl::StatusOr<Nest> EndRows(int64_t rows) override {
    const int64_t ids = static_cast<int64_t>(ids_.size());
    constexpr size_t kBytesOfId = sizeof(int64_t) + sizeof(float);
    bytes_of_row_ = sizeof(int64_t) + kBytesOfId * static_cast<size_t>(ids / rows);
    SparseIds features;
    ASSIGN_OR_RETURN(features.ids, Tensor::Copy<int64_t>({ids}, ids_));
    ASSIGN_OR_RETURN(features.row_splits, Tensor::Copy<int64_t>({rows + 1}, splits_));
    ASSIGN_OR_RETURN(features.weights, Tensor::Copy<float>({ids}, weights_));
    ASSIGN_OR_RETURN(Tensor labels, Tensor::Copy<float>({rows}, labels_of_rows_));
    return Nest{{"features", Nest(std::move(features))}, {"label", Nest(std::move(labels))}};
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
    SparseIds features = OneRow(Tensor::Vector<int64_t>(row_.ids));
    features.weights = Tensor::Vector<float>(row_.values);
    return Nest{{"features", Nest(std::move(features))},
                {"label", Nest(Tensor::Scalar<float>(row_.label))}};
  }

  const int64_t below_;  // 0: no bound
  const LibsvmLabels labels_;
  LibsvmRow row_;
  // Rows of columns.
  std::vector<int64_t> ids_, splits_;
  std::vector<float> weights_, labels_of_rows_;
  size_t bytes_of_row_ = 256;  // on average, of the last block
};

// ---- Criteo's logs

class CriteoReader : public RecordReader {
 public:
  explicit CriteoReader(CriteoKeys keys) {
    for (size_t i = 0; i < kCategories; ++i)
      keys_.push_back(
          TextKeys::Hashed(keys == CriteoKeys::kByColumn ? absl::StrCat("C", i + 1) : ""));
  }

  absl::Status Begin(absl::string_view text, TextPosition& at) override {
    RETURN_IF_ERROR(RecordReader::Begin(text, at));
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

  int64_t BeginRows(int64_t most, size_t bytes_left) override {
    const int64_t rows = RowsInBlock(most, bytes_left, kFields, kRowBytes);
    const bool begun = label_.Begin(DType::kFloat32, {}, rows).ok() &&
                       dense_.Begin(DType::kFloat32, {static_cast<int64_t>(kCounts)}, rows).ok() &&
                       sparse_.Begin(DType::kInt64, {static_cast<int64_t>(kCategories)}, rows).ok();
    return begun ? rows : 0;
  }

  bool ReadRow(absl::string_view text, TextPosition& at, int64_t row) override {
    // A line with a quote, which has no meaning here, is not plain CSV: Read takes it.
    std::array<absl::string_view, kFields> fields;
    if (!ReadPlainCsvRecord(text, at, absl::MakeSpan(fields), separator_)) return false;
    float* const label = label_.row_as<float>(row);
    if (!TryParseFloat(fields[0], label) || (*label != 0 && *label != 1)) return false;
    float* const dense = dense_.row_as<float>(row);
    for (size_t i = 0; i < kCounts; ++i) {
      const absl::string_view count = fields[1 + i];
      dense[i] = 0;
      if (!count.empty() && (!TryParseFloat(count, &dense[i]) || !std::isfinite(dense[i])))
        return false;
    }
    int64_t* const sparse = sparse_.row_as<int64_t>(row);
    for (size_t i = 0; i < kCategories; ++i) sparse[i] = Category(i, fields[1 + kCounts + i]);
    return true;
  }

  absl::StatusOr<Nest> EndRows(int64_t rows) override {
    ASSIGN_OR_RETURN(Tensor label, label_.End(rows));
    ASSIGN_OR_RETURN(Tensor dense, dense_.End(rows));
    ASSIGN_OR_RETURN(Tensor sparse, sparse_.End(rows));
    return Nest{{"label", Nest(std::move(label))},
                {"dense", Nest(std::move(dense))},
                {"sparse", Nest(std::move(sparse))}};
  }

 private:
  static constexpr size_t kCounts = 13;
  static constexpr size_t kCategories = 26;
  static constexpr size_t kFields = 1 + kCounts + kCategories;
  static constexpr size_t kRowBytes = (1 + kCounts) * sizeof(float) + kCategories * sizeof(int64_t);

  int64_t Category(size_t column, absl::string_view field) const {
    int64_t key = 0;
    keys_[column].TryKey(field, &key);  // a hash of 64 bits cannot fail
    return static_cast<int64_t>(static_cast<uint64_t>(key) >> 1);
  }

  absl::StatusOr<Nest> ToNest(absl::string_view line) const {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, separator_);
    if (fields.size() != kFields) {
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
    for (size_t i = 0; i < kCategories; ++i) sparse.push_back(Category(i, fields[1 + kCounts + i]));
    return Nest{{"label", Nest(Tensor::Scalar<float>(label))},
                {"dense", Nest(Tensor::Vector<float>(dense))},
                {"sparse", Nest(Tensor::Vector<int64_t>(sparse))}};
  }

  std::vector<TextKeys> keys_;  // of each category
  char separator_ = '\t';       // of the file
  GrowingColumn label_, dense_, sparse_;
};

// ---- lines

class LineReader : public RecordReader {
 public:
  bool Skip(absl::string_view text, TextPosition& at) override {
    absl::string_view line;
    return TakeLine(text, at, &line);
  }
  Element Read(absl::string_view text, TextPosition& at) override {
    absl::string_view line;
    if (!TakeLine(text, at, &line)) return std::nullopt;
    return Nest(std::string(line));
  }
};

}  // namespace

Recipe LibsvmRecipe(std::string files, int64_t below, LibsvmLabels labels) {
  return RecordFilesRecipe(
      std::move(files), [below, labels] { return std::make_unique<LibsvmReader>(below, labels); });
}

Recipe TextLinesRecipe(std::string files) {
  return RecordFilesRecipe(std::move(files), [] { return std::make_unique<LineReader>(); });
}

Recipe CriteoRecipe(std::string files, CriteoKeys keys) {
  return RecordFilesRecipe(std::move(files),
                           [keys] { return std::make_unique<CriteoReader>(keys); });
}

}  // namespace divvy::data_internal
