// Datasets made from other datasets. Their recipes describe how they are made, so that a dataset
// can be distributed over workers and cut for replicas. Internal to data/.
#ifndef DIVVY_DATA_TRANSFORM_H_
#define DIVVY_DATA_TRANSFORM_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "data/recipes.h"

namespace divvy::data_internal {

using Specs = absl::StatusOr<std::map<std::string, TensorSpec>>;

// ---- the description of a recipe

// Which batches may have fewer rows than the others.
enum class ShortBatches {
  // All have the same number of rows.
  kNone,
  // Only the last may have fewer.
  kLastOnly,
  // Any may have fewer.
  kAnywhere,
};

// The elements are batches of `size` rows; `shorter` says which of them may have fewer.
struct BatchCut {
  int64_t size = 0;  // > 0
  ShortBatches shorter = ShortBatches::kNone;
};

// The items at index, index + num_shards, ... of a sequence.
struct WorkerShare {
  int64_t num_shards = 1;
  int64_t index = 0;
};

// A recipe that describes itself. Nothing is known about other recipes, such as a program's own.
class DescribedRecipe : public DatasetRecipe {
 public:
  virtual std::optional<BatchCut> batch_cut() const { return std::nullopt; }

  // The recipe of the dataset from which this one is made. Null: none.
  virtual Recipe source() const { return nullptr; }
  // The same recipe, made from another source. REQUIRES: source() is not null.
  virtual Recipe Over(Recipe source) const { return source; }
  // Whether this dataset contains everything that its source contains, in any order or combination.
  // If so, the source may be sharded instead of this dataset: the transformed shards together
  // contain everything, too.
  virtual bool keeps_all() const { return false; }
  // The arguments of Dataset::Shard, if Shard made this dataset.
  virtual std::optional<WorkerShare> shard() const { return std::nullopt; }

  // The number of files of this dataset, if it consists of whole files. Blocks. Errors: as
  // ExpandFiles.
  virtual absl::StatusOr<std::optional<int64_t>> CountFiles(const DataEnvironment&) const {
    return std::nullopt;
  }
  // The same dataset, with this share of the files only. REQUIRES: CountFiles returns a number.
  virtual Recipe SomeFiles(WorkerShare) const { return nullptr; }
};

// How the elements of `recipe` are batched. nullopt: unknown.
std::optional<BatchCut> BatchCutOf(const DatasetRecipe& recipe);

// ---- transforms

// How a transform treats its source's elements.
enum class ElementOrder {
  // Passes some or all of them on, in their order.
  kSame,
  // Passes some or all of them on, in another order or more than once.
  kMixed,
  // Makes new elements from them.
  kNew
};

struct TransformRules {
  ElementOrder elements = ElementOrder::kNew;
  bool keeps_all = false;
  // The specs of new elements (kNew). Null: taken from the first element.
  std::function<Specs(const Specs& source)> spec;
  // How new elements are batched. nullopt: unknown.
  std::optional<BatchCut> cut;
  // The arguments of Dataset::Shard. nullopt: another transform.
  std::optional<WorkerShare> shard;
};

// The rules of a transform about whose elements no more is known.
inline TransformRules Rules(ElementOrder elements, bool keeps_all) {
  TransformRules rules;
  rules.elements = elements;
  rules.keeps_all = keeps_all;
  return rules;
}

// The recipe of a transform. Its iterator is an IteratorT(source, arguments...) or an
// IteratorT(source, environment, arguments...).
template <typename IteratorT, typename... Args>
class Transform : public DescribedRecipe {
 public:
  explicit Transform(Recipe source, TransformRules rules, Args... args)
      : source_(std::move(source)), rules_(std::move(rules)), args_(std::move(args)...) {}

  std::unique_ptr<DatasetIterator> Iterate(const DataEnvironment& environment) const override {
    return std::apply(
        [&](const Args&... args) {
          if constexpr (std::is_constructible_v<IteratorT, Source, const DataEnvironment&,
                                                const Args&...>) {
            return std::make_unique<IteratorT>(Source(source_, environment), environment, args...);
          } else {
            return std::make_unique<IteratorT>(Source(source_, environment), args...);
          }
        },
        args_);
  }

  Specs ElementSpec(const DataEnvironment& environment) const override {
    if (rules_.elements != ElementOrder::kNew) return source_->ElementSpec(environment);
    return rules_.spec != nullptr ? rules_.spec(source_->ElementSpec(environment))
                                  : DatasetRecipe::ElementSpec(environment);
  }

  std::optional<BatchCut> batch_cut() const override {
    if (rules_.elements == ElementOrder::kNew) return rules_.cut;
    std::optional<BatchCut> cut = BatchCutOf(*source_);
    if (cut && cut->shorter != ShortBatches::kNone && rules_.elements == ElementOrder::kMixed)
      cut->shorter = ShortBatches::kAnywhere;
    return cut;
  }

  Recipe source() const override { return source_; }
  Recipe Over(Recipe source) const override {
    return std::apply(
        [&](const Args&... args) {
          return std::make_shared<Transform>(std::move(source), rules_, args...);
        },
        args_);
  }
  bool keeps_all() const override { return rules_.keeps_all; }
  std::optional<WorkerShare> shard() const override { return rules_.shard; }

 private:
  const Recipe source_;
  const TransformRules rules_;
  const std::tuple<Args...> args_;
};

template <typename IteratorT, typename... Args>
Recipe MakeTransform(Recipe source, TransformRules rules, Args... args) {
  return std::make_shared<Transform<IteratorT, Args...>>(std::move(source), std::move(rules),
                                                         std::move(args)...);
}

}  // namespace divvy::data_internal

#endif  // DIVVY_DATA_TRANSFORM_H_
