#include "data/rebatch.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "data/recipes.h"
#include "data/stacking.h"
#include "data/transform.h"

namespace divvy {
namespace data_internal {
namespace {

// A batch of the source.
struct Batch {
  int64_t index = -1;
  Nest rows;
  int64_t num_rows = 0;
};

// Loads the source's element `index` into `batch`. False: there is none.
absl::StatusOr<bool> LoadBatch(Source& source, int64_t index, Batch& batch) {
  if (batch.index == index) return true;
  batch.index = -1;
  ASSIGN_OR_RETURN(std::optional<Nest> element, source.At(index));
  if (!element) return false;
  const absl::StatusOr<int64_t> num_rows = NumRows(*element);
  if (!num_rows.ok())
    return absl::InvalidArgumentError(
        absl::StrCat("only batches can be cut for replicas, so call Batch first: ",
                     num_rows.status().message()));
  batch = Batch{index, *std::move(element), *num_rows};
  return true;
}

// The specs of batches whose number of rows varies.
Specs WithAnyRows(const Specs& batches) {
  RETURN_IF_ERROR(batches.status());
  std::map<std::string, TensorSpec> specs = *batches;
  for (auto& [path, spec] : specs) {
    if (spec.shape.rank() > 0) spec.shape = spec.shape.WithRows(-1);
  }
  return specs;
}

TransformRules Recutting() {
  TransformRules rules;
  rules.keeps_all = true;
  rules.spec = WithAnyRows;
  return rules;
}

// ---- sizes in cyclic order

// The batches as one stream of rows. If all batches have the same size, the batch of a row is
// computed; otherwise it is found by reading forward.
class RowStream {
 public:
  RowStream(Source source, std::optional<int64_t> even_rows)
      : source_(std::move(source)), even_rows_(even_rows) {}

  // Makes the batch that contains `row` the current one. False: there is no such row.
  absl::StatusOr<bool> Find(int64_t row) {
    int64_t index = 0;
    std::tie(index, start_) = Guess(row);
    while (true) {
      ASSIGN_OR_RETURN(const bool loaded, LoadBatch(source_, index, batch_));
      if (!loaded) return false;
      if (row < start_ + batch_.num_rows) return true;
      start_ += batch_.num_rows;
      if (++index == static_cast<int64_t>(starts_.size())) starts_.push_back(start_);
    }
  }

  // `count` rows from `row` on. REQUIRES: Find(row) is true, and the rows are in the current batch.
  absl::StatusOr<Nest> Rows(int64_t row, int64_t count) const {
    return RowsOf(batch_.rows, row - start_, row - start_ + count);
  }
  int64_t end() const { return start_ + batch_.num_rows; }

 private:
  // A batch at or before the one that contains `row`, and that batch's first row.
  std::pair<int64_t, int64_t> Guess(int64_t row) const {
    if (even_rows_) return {row / *even_rows_, row / *even_rows_ * *even_rows_};
    const int64_t index =
        std::upper_bound(starts_.begin(), starts_.end(), row) - starts_.begin() - 1;
    return {index, starts_[static_cast<size_t>(index)]};
  }

  Source source_;
  const std::optional<int64_t> even_rows_;
  // The first row of each batch, as far as known. Unused if all batches have the same size.
  std::vector<int64_t> starts_ = {0};
  // The current batch.
  Batch batch_;
  // The current batch's first row.
  int64_t start_ = 0;
};

struct Cut {
  std::vector<int64_t> sizes;  // REQUIRES: none is negative, some are not 0
  bool drop_remainder = false;
  // The rows of each batch of the source but the last, if known.
  std::optional<int64_t> even_rows;
};

class RebatchIterator : public PositionedIterator {
 public:
  RebatchIterator(Source source, Cut cut)
      : cut_(std::move(cut)), rows_(std::move(source), cut_.even_rows) {
    before_.push_back(0);
    for (const int64_t size : cut_.sizes) before_.push_back(before_.back() + size);
  }

 private:
  Element At(int64_t position) override {
    const int64_t cycle = static_cast<int64_t>(cut_.sizes.size());
    const size_t place = static_cast<size_t>(position % cycle);
    const std::optional<int64_t> first =
        MultiplyAdd(position / cycle, before_.back(), before_[place]);
    const int64_t size = cut_.sizes[place];
    if (!first || !MultiplyAdd(1, *first, size)) return std::nullopt;
    return size == 0 ? Empty(*first) : Take(*first, size);
  }

  // A batch without rows, if all rows before `first` exist.
  Element Empty(int64_t first) {
    const int64_t last = std::max<int64_t>(first - 1, 0);
    ASSIGN_OR_RETURN(const bool found, rows_.Find(last));
    if (!found) return std::nullopt;
    ASSIGN_OR_RETURN(Nest empty, rows_.Rows(last, 0));
    return empty;
  }

  Element Take(int64_t first, int64_t size) {
    std::vector<Nest> parts;
    int64_t row = first;
    while (row < first + size) {
      ASSIGN_OR_RETURN(const bool found, rows_.Find(row));
      if (!found) break;
      const int64_t count = std::min(first + size, rows_.end()) - row;
      ASSIGN_OR_RETURN(Nest part, rows_.Rows(row, count));
      parts.push_back(std::move(part));
      row += count;
    }
    if (parts.empty() || (cut_.drop_remainder && row < first + size)) return std::nullopt;
    if (parts.size() == 1) return std::move(parts[0]);
    ASSIGN_OR_RETURN(Nest batch, JoinBatches(parts));
    return batch;
  }

  const Cut cut_;
  // The rows of a cycle before each of its batches; the last entry is the rows of a whole cycle.
  std::vector<int64_t> before_;
  RowStream rows_;
};

// ---- each batch by itself

class SplitEachIterator : public PositionedIterator {
 public:
  SplitEachIterator(Source source, int64_t parts) : source_(std::move(source)), parts_(parts) {}

 private:
  Element At(int64_t position) override {
    ASSIGN_OR_RETURN(const bool loaded, LoadBatch(source_, position / parts_, batch_));
    if (!loaded) return std::nullopt;
    const int64_t size = (batch_.num_rows + parts_ - 1) / parts_;
    const int64_t begin = std::min(position % parts_ * size, batch_.num_rows);
    ASSIGN_OR_RETURN(Nest part,
                     RowsOf(batch_.rows, begin, std::min(begin + size, batch_.num_rows)));
    return part;
  }

  std::optional<int64_t> KnownSize() override {
    const std::optional<int64_t> batches = source_.size();
    return batches ? MultiplyAdd(*batches, parts_, 0) : std::nullopt;
  }

  Source source_;
  const int64_t parts_;
  Batch batch_;
};

}  // namespace

Recipe RebatchRecipe(Recipe source, std::vector<int64_t> sizes, bool drop_remainder) {
  const std::optional<BatchCut> cut = BatchCutOf(*source);
  const bool even = cut && cut->shorter != ShortBatches::kAnywhere;
  return MakeTransform<RebatchIterator>(
      std::move(source), Recutting(),
      Cut{std::move(sizes), drop_remainder,
          even ? std::optional<int64_t>(cut->size) : std::nullopt});
}

Recipe SplitEachRecipe(Recipe source, int64_t parts) {
  return MakeTransform<SplitEachIterator>(std::move(source), Recutting(), parts);
}

}  // namespace data_internal

using namespace data_internal;

absl::StatusOr<std::vector<int64_t>> BatchSizesForWorker(int64_t global_batch, int64_t workers,
                                                         int64_t replicas, int64_t worker) {
  const std::optional<int64_t> pieces = MultiplyAdd(workers, replicas, 0);
  if (workers < 1 || replicas < 1 || !pieces || worker < 0 || worker >= workers ||
      global_batch < 0) {
    return absl::InvalidArgumentError(absl::StrCat("a batch of ", global_batch,
                                                   " cannot be cut for worker ", worker, " of ",
                                                   workers, " with ", replicas, " replicas each"));
  }
  std::vector<int64_t> sizes(static_cast<size_t>(*pieces), global_batch / *pieces);
  for (int64_t i = 0; i < global_batch % *pieces; ++i) ++sizes[static_cast<size_t>(i)];
  std::rotate(sizes.begin(), sizes.begin() + worker * replicas, sizes.end());
  return sizes;
}

Dataset Rebatch(const Dataset& batches, std::vector<int64_t> sizes, bool drop_remainder) {
  const bool negative =
      std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size < 0; });
  const bool positive =
      std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size > 0; });
  if (negative || !positive)
    return Dataset(FailedRecipe(
        absl::InvalidArgumentError("Rebatch: sizes must be at least 0, and one of them above 0")));
  return Dataset(RebatchRecipe(batches.recipe(), std::move(sizes), drop_remainder));
}

Dataset RecutForReplicas(const Dataset& global_batches, int replicas) {
  if (replicas == 1) return global_batches;
  const std::optional<BatchCut> cut = BatchCutOf(*global_batches.recipe());
  if (!cut || cut->shorter != ShortBatches::kNone)
    return Dataset(SplitEachRecipe(global_batches.recipe(), replicas));
  absl::StatusOr<std::vector<int64_t>> sizes = BatchSizesForWorker(cut->size, 1, replicas, 0);
  return sizes.ok() ? Rebatch(global_batches, *std::move(sizes))
                    : Dataset(FailedRecipe(sizes.status()));
}

}  // namespace divvy
