// Datasets made from datasets. Each iterator is a function from positions to elements of its source: see PositionedIterator.
#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/status_macros.h"
#include "data/recipes.h"
#include "data/stacking.h"
#include "data/transform.h"

namespace divvy::data_internal {
namespace {

// Rules of a transform that leaves the elements as they are.
TransformRules Same(ElementOrder elements, bool keeps_all) {
  TransformRules rules;
  rules.elements = elements;
  rules.keeps_all = keeps_all;
  return rules;
}

// ---- Map

using MapFn = std::function<absl::StatusOr<Nest>(const Nest&)>;

class MapIterator : public PositionedIterator {
 public:
  MapIterator(Source source, MapFn fn) : source_(std::move(source)), fn_(std::move(fn)) {}

 private:
  std::optional<int64_t> KnownSize() override { return source_.size(); }
  Element At(int64_t position) override {
    ASSIGN_OR_RETURN(std::optional<Nest> element, source_.At(position));
    if (!element) return element;
    ASSIGN_OR_RETURN(Nest mapped, fn_(*element));
    RETURN_IF_ERROR(mapped.status());
    return mapped;
  }
  Source source_;
  const MapFn fn_;
};

// ---- Filter

using FilterFn = std::function<absl::StatusOr<bool>(const Nest&)>;

class FilterIterator : public PositionedIterator {
 public:
  FilterIterator(Source source, FilterFn keep) : source_(std::move(source)), keep_(std::move(keep)) {}

 private:
  Element At(int64_t position) override {
    if (position < kept_) kept_ = source_position_ = 0;
    while (true) {
      ASSIGN_OR_RETURN(std::optional<Nest> element, source_.At(source_position_));
      if (!element) return element;
      ASSIGN_OR_RETURN(const bool keep, keep_(*element));
      ++source_position_;
      if (keep && kept_++ == position) return element;
    }
  }

  Source source_;
  const FilterFn keep_;
  int64_t source_position_ = 0;  // the next to be looked at
  int64_t kept_ = 0;             // how many before it were kept
};

// ---- Shard, HoldOut, Take, Skip

// Which positions of the source are taken.
struct Choice {
  std::function<std::optional<int64_t>(int64_t position)> in_source;  // rises; nullopt: behind every end
  std::function<int64_t(int64_t source_size)> size;
};

class ChoiceIterator : public PositionedIterator {
 public:
  ChoiceIterator(Source source, Choice choice) : source_(std::move(source)), choice_(std::move(choice)) {}

 private:
  Element At(int64_t position) override {
    const std::optional<int64_t> in_source = choice_.in_source(position);
    if (!in_source) return std::nullopt;
    return source_.At(*in_source);
  }
  std::optional<int64_t> KnownSize() override {
    const std::optional<int64_t> source_size = source_.size();
    if (!source_size) return std::nullopt;
    return choice_.size(*source_size);
  }

  Source source_;
  const Choice choice_;
};

Recipe ChoiceRecipe(Recipe source, Choice choice, std::optional<WorkerShare> shard = std::nullopt) {
  TransformRules rules = Same(ElementOrder::kSame, /*keeps_all=*/false);
  rules.shard = shard;
  return MakeTransform<ChoiceIterator>(std::move(source), rules, std::move(choice));
}

// How many of [0, size) are index, index + num_shards, ...
int64_t ShardSize(int64_t size, int64_t num_shards, int64_t index) { return size <= index ? 0 : (size - index - 1) / num_shards + 1; }

// ---- Repeat

class RepeatIterator : public PositionedIterator {
 public:
  RepeatIterator(Source source, int64_t times) : source_(std::move(source)), times_(times) {}

 private:
  Element At(int64_t position) override {
    if (times_ == 0) return std::nullopt;
    if (!(pass_ = source_.size())) {
      // How long a pass is shows only when one ends.
      Element element = source_.At(position);
      if (!element.ok() || element->has_value()) return element;
      RETURN_IF_ERROR(MeasurePass());
    }
    if (*pass_ == 0 || (times_ > 0 && position / *pass_ >= times_)) return std::nullopt;
    return source_.At(position % *pass_);
  }

  std::optional<int64_t> KnownSize() override {
    if (times_ == 0) return 0;
    const std::optional<int64_t> pass = source_.size();
    if (!pass || *pass == 0) return pass;
    return times_ < 0 ? std::nullopt : MultiplyAdd(*pass, times_, 0);
  }

  absl::Status MeasurePass() {
    pass_ = source_.size();
    for (int64_t position = 0; !pass_; ++position) {
      ASSIGN_OR_RETURN(const std::optional<Nest> element, source_.At(position));
      if (!element) pass_ = position;
    }
    return absl::OkStatus();
  }

  Source source_;
  const int64_t times_;  // -1: for ever
  std::optional<int64_t> pass_;
};

// ---- Shuffle

class ShuffleIterator : public PositionedIterator {
 public:
  ShuffleIterator(Source source, int64_t window, uint64_t seed) : source_(std::move(source)), window_(window), seed_(seed) {}

 private:
  Element At(int64_t position) override {
    RETURN_IF_ERROR(Load(position / window_));
    const int64_t place = position % window_;
    if (place >= static_cast<int64_t>(elements_.size())) return std::nullopt;
    return elements_[static_cast<size_t>(place)];
  }

  std::optional<int64_t> KnownSize() override { return source_.size(); }

  // Makes `number` the window in memory, permuted.
  absl::Status Load(int64_t number) {
    if (loaded_ == number) return absl::OkStatus();
    loaded_.reset();
    elements_.clear();
    for (int64_t place = 0; place < window_; ++place) {
      ASSIGN_OR_RETURN(std::optional<Nest> element, source_.At(number * window_ + place));
      if (!element) break;
      elements_.push_back(*std::move(element));
    }
    Permute(MixSeeds(seed_, static_cast<uint64_t>(number)));
    loaded_ = number;
    return absl::OkStatus();
  }

  // Fisher and Yates'. The last window, being shorter, has a permutation of its own length.
  void Permute(uint64_t seed) {
    Random random(seed);
    for (size_t left = elements_.size(); left > 1; --left) std::swap(elements_[left - 1], elements_[random.Below(left)]);
  }

  Source source_;
  const int64_t window_;
  const uint64_t seed_;
  std::optional<int64_t> loaded_;  // number of the window in elements_
  std::vector<Nest> elements_;
};

// ---- Batch

class BatchIterator : public PositionedIterator {
 public:
  BatchIterator(Source source, int64_t size, bool drop_remainder) : source_(std::move(source)), size_(size), drop_remainder_(drop_remainder) {}

 private:
  Element At(int64_t position) override {
    const std::optional<int64_t> first = MultiplyAdd(position, size_, 0);
    if (!first || !MultiplyAdd(1, *first, size_)) return std::nullopt;
    std::vector<Nest> rows;
    for (int64_t i = 0; i < size_; ++i) {
      ASSIGN_OR_RETURN(std::optional<Nest> row, source_.At(*first + i));
      if (!row) break;
      rows.push_back(*std::move(row));
    }
    if (rows.empty() || (drop_remainder_ && static_cast<int64_t>(rows.size()) < size_)) return std::nullopt;
    ASSIGN_OR_RETURN(Nest batch, StackRows(rows));
    return batch;
  }

  std::optional<int64_t> KnownSize() override {
    const std::optional<int64_t> rows = source_.size();
    if (!rows) return std::nullopt;
    return *rows / size_ + (!drop_remainder_ && *rows % size_ != 0 ? 1 : 0);
  }

  Source source_;
  const int64_t size_;
  const bool drop_remainder_;
};

TransformRules Batching(int64_t size, bool drop_remainder) {
  TransformRules rules;
  rules.keeps_all = true;
  rules.spec = [=](const Specs& rows) -> Specs {
    RETURN_IF_ERROR(rows.status());
    return BatchSpec(*rows, drop_remainder ? size : -1);
  };
  rules.cut = BatchCut{size, drop_remainder ? ShortBatches::kNone : ShortBatches::kLastOnly};
  return rules;
}

}  // namespace

Recipe MapRecipe(Recipe source, MapFn fn) {
  TransformRules rules;
  rules.keeps_all = true;
  return MakeTransform<MapIterator>(std::move(source), rules, std::move(fn));
}

Recipe FilterRecipe(Recipe source, FilterFn keep) {
  return MakeTransform<FilterIterator>(std::move(source), Same(ElementOrder::kSame, /*keeps_all=*/false), std::move(keep));
}

Recipe ShuffleRecipe(Recipe source, int64_t window, uint64_t seed) {
  return MakeTransform<ShuffleIterator>(std::move(source), Same(ElementOrder::kMixed, /*keeps_all=*/true), window, seed);
}

Recipe RepeatRecipe(Recipe source, int64_t times) {
  return MakeTransform<RepeatIterator>(std::move(source), Same(ElementOrder::kMixed, /*keeps_all=*/true), times);
}

Recipe ShardRecipe(Recipe source, int64_t num_shards, int64_t index) {
  const Choice choice{[=](int64_t position) { return MultiplyAdd(position, num_shards, index); },
                      [=](int64_t source_size) { return ShardSize(source_size, num_shards, index); }};
  return ChoiceRecipe(std::move(source), choice, WorkerShare{num_shards, index});
}

Recipe HoldOutRecipe(Recipe source, int64_t num_shards, int64_t index) {
  if (num_shards == 1) return TakeRecipe(std::move(source), 0);  // nobody else is there
  const auto in_source = [=](int64_t position) {
    const int64_t others = num_shards - 1;
    const int64_t place = position % others;
    return MultiplyAdd(position / others, num_shards, place < index ? place : place + 1);
  };
  return ChoiceRecipe(std::move(source), {in_source, [=](int64_t source_size) { return source_size - ShardSize(source_size, num_shards, index); }});
}

Recipe TakeRecipe(Recipe source, int64_t n) {
  return ChoiceRecipe(std::move(source), {[=](int64_t position) { return position < n ? std::optional<int64_t>(position) : std::nullopt; },
                                          [=](int64_t source_size) { return std::min(source_size, n); }});
}

Recipe SkipRecipe(Recipe source, int64_t n) {
  return ChoiceRecipe(std::move(source), {[=](int64_t position) { return MultiplyAdd(1, position, n); },
                                          [=](int64_t source_size) { return std::max<int64_t>(source_size - n, 0); }});
}

Recipe BatchRecipe(Recipe source, int64_t size, bool drop_remainder) {
  return MakeTransform<BatchIterator>(std::move(source), Batching(size, drop_remainder), size, drop_remainder);
}

}  // namespace divvy::data_internal
