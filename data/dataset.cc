#include "data/dataset.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/recipes.h"
#include "data/stacking.h"

namespace divvy {
namespace {

using namespace data_internal;

template <typename... What>
Dataset Refused(const What&... what) {
  return Dataset(FailedRecipe(absl::InvalidArgumentError(absl::StrCat(what...))));
}

// Whether the fields of a column are any text.
bool IsText(const CsvColumn& column) {
  return column.hash_buckets > 0 || column.keys || column.dtype == DType::kString;
}

// The problem with how a column of text becomes keys. Empty: none.
std::string KeysProblem(const CsvColumn& column) {
  if (column.hash_buckets < 0)
    return absl::StrCat("has ", column.hash_buckets, " hash_buckets: it must be at least 0");
  if (!column.keys) return "";
  if (column.hash_buckets > 0) return "has hash_buckets and keys: leave hash_buckets out";
  if (column.dtype != DType::kString)
    return absl::StrCat("is ", DTypeName(column.dtype),
                        " and has keys, which only texts have: use CsvColumn::Text, or set dtype "
                        "to kString");
  return std::string(column.keys->status().message());
}

// The problem with what an empty field stands for. Empty: none.
std::string IfEmptyProblem(const CsvColumn& column) {
  if (!column.if_empty) return "";
  const double value = *column.if_empty;
  if (IsText(column)) return "has if_empty, but text may be empty: leave it out";
  const bool fits = DispatchDType(
      column.dtype,
      [value](auto type) {
        using T = decltype(type);
        if constexpr (std::is_same_v<T, bool>) return value == 0 || value == 1;
        if constexpr (std::is_integral_v<T>)
          return value == std::floor(value) &&
                 value >= static_cast<double>(std::numeric_limits<T>::min()) &&
                 value <= std::min(static_cast<double>(std::numeric_limits<T>::max()), 0x1p53);
        return true;
      },
      true);
  if (fits && (column.below == 0 || (value >= 0 && value < static_cast<double>(column.below))))
    return "";
  return absl::StrCat("has if_empty = ", value, ", which is no ", DTypeName(column.dtype),
                      column.below > 0 ? absl::StrCat(" in [0, ", column.below, ")") : "");
}

// The problems with the columns of a CSV. Empty: none.
std::string ColumnsProblem(const std::vector<CsvColumn>& columns) {
  constexpr int64_t kMostFields = int64_t{1} << 24;
  if (columns.empty()) return "names no columns";
  std::set<std::string> names;
  int64_t fields = 0;
  for (const CsvColumn& column : columns) {
    const std::string which = absl::StrCat("column \"", column.name, "\" ");
    if (!names.insert(column.name).second) return absl::StrCat(which, "is named twice");
    if (column.width < 1 || column.width > kMostFields || (fields += column.width) > kMostFields)
      return absl::StrCat(which, "has a width of ", column.width,
                          ": a width must be at least 1, and all widths together at most ",
                          kMostFields);
    if (const std::string bad = KeysProblem(column); !bad.empty()) return absl::StrCat(which, bad);
    if (!IsText(column) &&
        (column.dtype == DType::kComplex64 || column.dtype == DType::kComplex128))
      return absl::StrCat(which, "cannot be ", DTypeName(column.dtype));
    if (const std::string bad = IfEmptyProblem(column); !bad.empty())
      return absl::StrCat(which, bad);
    if (column.below < 0 || (column.below > 0 && (IsText(column) || !IsInteger(column.dtype))))
      return absl::StrCat(which, "has below = ", column.below,
                          ": it must be at least 0, and only integers without hash_buckets or keys "
                          "may have a bound");
  }
  return "";
}

// The problems with the arguments of Shard and HoldOut. Empty: none.
std::string ShardProblem(int num_shards, int index) {
  if (num_shards >= 1 && index >= 0 && index < num_shards) return "";
  return absl::StrCat("(", num_shards, ", ", index,
                      "): num_shards must be at least 1, and index in [0, num_shards)");
}

}  // namespace

absl::StatusOr<int64_t> InputContext::GetPerReplicaBatchSize(int64_t global_batch_size) const {
  if (num_replicas_in_sync > 0 && global_batch_size % num_replicas_in_sync == 0)
    return global_batch_size / num_replicas_in_sync;
  return absl::InvalidArgumentError(
      absl::StrCat("a batch of ", global_batch_size, " cannot be split evenly over ",
                   num_replicas_in_sync, " replicas: make it a multiple of the replicas"));
}

absl::StatusOr<std::map<std::string, TensorSpec>> DatasetRecipe::ElementSpec(
    const DataEnvironment& environment) const {
  ASSIGN_OR_RETURN(const std::optional<Nest> first, Iterate(environment)->Next());
  if (!first)
    return absl::OutOfRangeError(
        "the dataset is empty, so the dtypes and shapes of its elements are unknown");
  return SpecOf(*first);
}

Dataset Dataset::FromTensorSlices(Nest rows) {
  return Dataset(RowsRecipe(
      [rows = std::move(rows)](const DataEnvironment&) -> absl::StatusOr<Nest> { return rows; }));
}

Dataset Dataset::Idx(std::string images, std::string labels) {
  return Dataset(IdxRecipe(std::move(images), std::move(labels)));
}

Dataset Dataset::Libsvm(std::string files, int64_t below, LibsvmLabels labels) {
  if (below < 0)
    return Refused("Libsvm of \"", files, "\": below is ", below,
                   ": give the number of rows of the ids' table, or 0 for no bound");
  return Dataset(LibsvmRecipe(std::move(files), below, labels));
}

Dataset Dataset::Csv(std::string files, std::vector<CsvColumn> columns, char separator) {
  const std::string problem = ColumnsProblem(columns);
  if (!problem.empty()) return Refused("Csv of \"", files, "\": ", problem);
  if (separator == '"' || separator == '\n' || separator == '\r')
    return Refused("Csv of \"", files, "\": a quote or a line end cannot be the separator");
  return Dataset(CsvRecipe(std::move(files), std::move(columns), separator));
}

Dataset Dataset::CriteoTsv(std::string files, CriteoKeys keys) {
  return Dataset(CriteoRecipe(std::move(files), keys));
}

Dataset Dataset::TextLines(std::string files) { return Dataset(TextLinesRecipe(std::move(files))); }

Dataset Dataset::Zip(std::vector<Dataset> datasets) {
  if (datasets.empty()) return Refused("Zip of 0 datasets: there must be at least 1");
  std::vector<Recipe> recipes;
  for (const Dataset& dataset : datasets) recipes.push_back(dataset.recipe_);
  return Dataset(ZipRecipe(std::move(recipes), {}));
}

Dataset Dataset::ZipDict(std::map<std::string, Dataset> datasets) {
  if (datasets.empty()) return Refused("ZipDict of 0 datasets: there must be at least 1");
  std::vector<Recipe> recipes;
  std::vector<std::string> keys;
  for (const auto& [key, dataset] : datasets) {
    recipes.push_back(dataset.recipe_);
    keys.push_back(key);
  }
  return Dataset(ZipRecipe(std::move(recipes), std::move(keys)));
}

Dataset Dataset::TfRecord(std::string files,
                          std::function<absl::StatusOr<Nest>(absl::string_view record)> parse) {
  return Dataset(TfRecordRecipe(std::move(files), std::move(parse)));
}

Dataset Dataset::TfRecord(std::string files, std::vector<ExampleFeature> features) {
  return Dataset(ExampleRecipe(std::move(files), std::move(features)));
}

Dataset Dataset::Generator(
    std::function<absl::StatusOr<std::optional<Nest>>(int64_t index)> element, int64_t size) {
  if (size < -1)
    return Refused("Generator with ", size,
                   " elements: the size must be at least 0, or -1 if it is not known in advance");
  return Dataset(GeneratorRecipe(std::move(element), size));
}

Dataset Dataset::Map(std::function<absl::StatusOr<Nest>(const Nest&)> fn,
                     int64_t parallel_calls) const {
  if (parallel_calls < 1)
    return Refused("Map with ", parallel_calls, " parallel_calls: it must be at least 1");
  return Dataset(MapRecipe(recipe_, std::move(fn), parallel_calls));
}

Dataset Dataset::MapBatches(std::function<absl::StatusOr<Nest>(const Nest& batch)> fn,
                            int64_t rows) const {
  if (rows < 1) return Refused("MapBatches of ", rows, " rows: there must be at least 1");
  return Dataset(MapBatchesRecipe(recipe_, std::move(fn), rows));
}

Dataset Dataset::FlatMap(std::function<absl::StatusOr<Dataset>(const Nest&)> fn) const {
  return Dataset(FlatMapRecipe(recipe_, std::move(fn)));
}

Dataset Dataset::Interleave(std::function<absl::StatusOr<Dataset>(const Nest&)> fn,
                            int64_t cycle_length, int64_t block_length) const {
  constexpr int64_t kMostSlots = 100'000;
  if (cycle_length < 1 || cycle_length > kMostSlots || block_length < 1)
    return Refused("Interleave with a cycle_length of ", cycle_length, " and a block_length of ",
                   block_length, ": both must be at least 1, and cycle_length at most ",
                   kMostSlots);
  return Dataset(InterleaveRecipe(recipe_, std::move(fn), cycle_length, block_length));
}

Dataset Dataset::Filter(std::function<absl::StatusOr<bool>(const Nest&)> keep) const {
  return Dataset(FilterRecipe(recipe_, std::move(keep)));
}

Dataset Dataset::IgnoreErrors(int64_t limit) const {
  return limit < 0 ? Refused("IgnoreErrors(", limit, "): it must be at least 0")
                   : Dataset(IgnoreErrorsRecipe(recipe_, limit));
}

Dataset Dataset::Shuffle(int64_t window, uint64_t seed) const {
  if (window < 1)
    return Refused("Shuffle in windows of ", window, " elements: the window must be at least 1");
  return Dataset(ShuffleRecipe(recipe_, window, seed));
}

Dataset Dataset::Repeat(int64_t times) const {
  if (times < -1)
    return Refused("Repeat(", times, "): it must be at least 0, or -1 to repeat forever");
  return Dataset(RepeatRecipe(recipe_, times));
}

Dataset Dataset::Shard(int num_shards, int index) const {
  const std::string problem = ShardProblem(num_shards, index);
  return problem.empty() ? Dataset(ShardRecipe(recipe_, num_shards, index))
                         : Refused("Shard", problem);
}

Dataset Dataset::HoldOut(int num_shards, int index) const {
  const std::string problem = ShardProblem(num_shards, index);
  return problem.empty() ? Dataset(HoldOutRecipe(recipe_, num_shards, index))
                         : Refused("HoldOut", problem);
}

Dataset Dataset::Take(int64_t n) const {
  return n < 0 ? Refused("Take(", n, "): it must be at least 0") : Dataset(TakeRecipe(recipe_, n));
}

Dataset Dataset::Skip(int64_t n) const {
  return n < 0 ? Refused("Skip(", n, "): it must be at least 0") : Dataset(SkipRecipe(recipe_, n));
}

Dataset Dataset::Batch(int64_t size, bool drop_remainder) const {
  if (size < 1) return Refused("Batch of ", size, " elements: a batch has at least 1");
  return Dataset(BatchRecipe(recipe_, size, drop_remainder));
}

Dataset Dataset::Concatenate(const Dataset& next) const {
  return Dataset(ConcatenateRecipe({recipe_, next.recipe_}));
}

Dataset Dataset::Unbatch() const { return Dataset(UnbatchRecipe(recipe_)); }

Dataset Dataset::Cache() const { return Dataset(CacheRecipe(recipe_)); }

Dataset Dataset::Prefetch(int64_t elements) const {
  return elements < 0 ? Refused("Prefetch(", elements, "): it must be at least 0")
                      : Dataset(PrefetchRecipe(recipe_, elements));
}

std::unique_ptr<DatasetIterator> Dataset::Iterate(const DataEnvironment& environment) const {
  return recipe_->Iterate(environment);
}

absl::StatusOr<std::map<std::string, TensorSpec>> Dataset::ElementSpec(
    const DataEnvironment& environment) const {
  return recipe_->ElementSpec(environment);
}

}  // namespace divvy
