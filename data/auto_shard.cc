// Datasets that are sharded over workers automatically.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "data/transform.h"

namespace divvy::data_internal {
namespace {

const DescribedRecipe* Described(const Recipe& recipe) {
  return dynamic_cast<const DescribedRecipe*>(recipe.get());
}

// The recipe at the start of the chain from which `recipe` is made: the first one without a known
// source.
Recipe OriginOf(Recipe recipe) {
  while (const DescribedRecipe* telling = Described(recipe)) {
    Recipe source = telling->source();
    if (source == nullptr) break;
    recipe = std::move(source);
  }
  return recipe;
}

// `recipe`, made from `origin` instead of its own origin.
Recipe OverOrigin(const Recipe& recipe, const Recipe& origin) {
  const DescribedRecipe* telling = Described(recipe);
  const Recipe source = telling != nullptr ? telling->source() : nullptr;
  return source == nullptr ? origin : telling->Over(OverOrigin(source, origin));
}

// Returns the share of `recipe`. The cut is made as close to the files as possible: below
// transforms that keep all elements, but above transforms that select some (Take, Skip, Filter,
// Shard). So the cut is below a shuffle, whose order may differ between workers, and each worker
// builds full batches from its own part.
Recipe ByData(const Recipe& recipe, WorkerShare share) {
  const DescribedRecipe* telling = Described(recipe);
  if (telling != nullptr && telling->keeps_all() && telling->source() != nullptr)
    return telling->Over(ByData(telling->source(), share));
  return ShardRecipe(recipe, share.num_shards, share.index);
}

class AutoSharded : public DescribedRecipe {
 public:
  AutoSharded(Recipe source, AutoShardPolicy policy, WorkerShare share)
      : source_(std::move(source)), policy_(policy), share_(share) {}

  std::unique_ptr<DatasetIterator> Iterate(const DataEnvironment& environment) const override {
    const absl::StatusOr<Recipe> part = Part(environment);
    return part.ok() ? (*part)->Iterate(environment)
                     : FailedRecipe(part.status())->Iterate(environment);
  }
  Specs ElementSpec(const DataEnvironment& environment) const override {
    return source_->ElementSpec(environment);
  }
  std::optional<BatchCut> batch_cut() const override { return BatchCutOf(*source_); }
  Recipe source() const override { return source_; }
  Recipe Over(Recipe source) const override {
    return std::make_shared<AutoSharded>(std::move(source), policy_, share_);
  }

 private:
  absl::StatusOr<Recipe> Part(const DataEnvironment& environment) const {
    if (policy_ == AutoShardPolicy::kData) return ByData(source_, share_);
    const Recipe origin = OriginOf(source_);
    const DescribedRecipe* telling = Described(origin);
    std::optional<int64_t> files;
    if (telling != nullptr) {
      ASSIGN_OR_RETURN(files, telling->CountFiles(environment));
    }
    if (files.value_or(0) >= share_.num_shards)
      return OverOrigin(source_, telling->SomeFiles(share_));
    if (policy_ == AutoShardPolicy::kAuto) return ByData(source_, share_);
    const std::string what = files ? absl::StrCat("there are only ", *files, " files")
                                   : "the data is not read from whole files,";
    return absl::InvalidArgumentError(
        absl::StrCat(what, " for ", share_.num_shards,
                     " workers with AutoShardPolicy::kFile: use kData or kAuto"));
  }

  const Recipe source_;
  const AutoShardPolicy policy_;
  const WorkerShare share_;
};

}  // namespace

Recipe AutoShardRecipe(Recipe source, AutoShardPolicy policy, int64_t num_workers, int64_t worker) {
  return std::make_shared<AutoSharded>(std::move(source), policy, WorkerShare{num_workers, worker});
}

}  // namespace divvy::data_internal
