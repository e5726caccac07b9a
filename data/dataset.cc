#include "data/dataset.h"

#include <set>
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
    if (column.hash_buckets < 0)
      return absl::StrCat(which, "has ", column.hash_buckets,
                          " hash_buckets: it must be at least 0");
    if (column.hash_buckets == 0 && DTypeSize(column.dtype) == 0)
      return absl::StrCat(which, "is text, which tensors do not hold: give it hash_buckets");
    if (column.hash_buckets == 0 &&
        (column.dtype == DType::kComplex64 || column.dtype == DType::kComplex128))
      return absl::StrCat(which, "cannot be ", DTypeName(column.dtype));
    if (column.below < 0 ||
        (column.below > 0 && (column.hash_buckets > 0 || !IsInteger(column.dtype))))
      return absl::StrCat(which, "has below = ", column.below,
                          ": it must be at least 0, and only integers without hash_buckets may "
                          "have a bound");
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

Dataset Dataset::CriteoTsv(std::string files) { return Dataset(CriteoRecipe(std::move(files))); }

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
