// Datasets made from other datasets. Each iterator computes an element from its position: see
// PositionedIterator.
#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/guarded.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "data/progress.h"
#include "data/recipes.h"
#include "data/stacking.h"
#include "data/transform.h"

namespace divvy::data_internal {
namespace {

// The rules of a transform that does not change elements.
TransformRules Same(ElementOrder elements, bool keeps_all) {
  TransformRules rules;
  rules.elements = elements;
  rules.keeps_all = keeps_all;
  return rules;
}

// Whether the error belongs to one element, after which reading can continue. Other errors prevent
// that.
bool IsOfAnElement(const absl::Status& error) {
  return error.code() == absl::StatusCode::kDataLoss ||
         error.code() == absl::StatusCode::kInvalidArgument;
}

// ---- Filter

using FilterFn = std::function<absl::StatusOr<bool>(const Nest&)>;

class FilterIterator : public PositionedIterator {
 public:
  FilterIterator(Source source, const DataEnvironment& environment, FilterFn keep)
      : source_(std::move(source)), clock_(ClockOf(environment)), keep_(std::move(keep)) {}

 private:
  Element At(int64_t position) override {
    if (position < kept_) kept_ = source_position_ = 0;
    Progress progress(clock_);
    while (true) {
      Element element = source_.At(source_position_);
      if (element.ok() && !element->has_value()) return element;
      const absl::StatusOr<bool> keep = Keeps(element);
      if (!keep.ok() && (kept_ == position || !IsOfAnElement(keep.status()))) return keep.status();
      ++source_position_;
      // A bad element counts as kept, so that a Seek past it works.
      if (keep.value_or(true) && kept_++ == position) return element;
      progress.Tick([&] {
        return absl::StrCat("Filter has read ", source_position_, " elements and kept ", kept_,
                            " on the way to element ", position);
      });
    }
  }

  absl::StatusOr<bool> Keeps(const Element& element) const {
    RETURN_IF_ERROR(element.status());
    return internal::Guarded<absl::StatusOr<bool>>("a Filter function",
                                                   [&] { return keep_(**element); });
  }

  Source source_;
  const Clock& clock_;
  const FilterFn keep_;
  int64_t source_position_ = 0;  // of the next element to read
  int64_t kept_ = 0;             // elements kept so far
};

// ---- IgnoreErrors

class IgnoreErrorsIterator : public PositionedIterator {
 public:
  IgnoreErrorsIterator(Source source, const DataEnvironment& environment, int64_t limit)
      : source_(std::move(source)), clock_(ClockOf(environment)), limit_(limit) {}

 private:
  Element At(int64_t position) override {
    if (position < given_) given_ = source_position_ = ignored_ = 0;
    Progress progress(clock_);
    while (true) {
      Element element = source_.At(source_position_);
      if (element.ok()) {
        if (!element->has_value()) return AtEnd();
        ++source_position_;
        if (given_++ == position) return element;
      } else {
        RETURN_IF_ERROR(Ignore(element.status()));
      }
      progress.Tick([&] {
        return absl::StrCat("IgnoreErrors has read ", source_position_,
                            " elements on the way to element ", position);
      });
    }
  }

  // OK: the bad element was skipped.
  absl::Status Ignore(const absl::Status& error) {
    if (!IsOfAnElement(error)) return error;
    if (ignored_ == limit_)
      return WithContext(
          error, absl::StrCat("more than ", limit_, " bad elements, the limit of IgnoreErrors"));
    ++ignored_;
    if (source_position_ >= told_up_to_) {
      constexpr int64_t kTold = 10;
      if (ignored_ <= kTold)
        DIVVY_LOG(WARNING) << "data: skipped bad element " << ignored_ << " (limit " << limit_
                           << "): " << error.message();
      told_up_to_ = source_position_ + 1;
    }
    ++source_position_;
    return absl::OkStatus();
  }

  Element AtEnd() {
    if (ignored_ > 0 && !end_told_)
      DIVVY_LOG(WARNING) << "data: skipped " << ignored_ << " bad elements in a pass of "
                         << source_position_;
    end_told_ = true;
    return std::nullopt;
  }

  Source source_;
  const Clock& clock_;
  const int64_t limit_;
  int64_t source_position_ = 0;  // of the next element to read
  int64_t given_ = 0;            // good elements before it
  int64_t ignored_ = 0;          // bad elements before it
  // A bad element before this position is not logged again after a seek.
  int64_t told_up_to_ = 0;
  bool end_told_ = false;
};

// ---- Shard, HoldOut, Take, Skip

// The positions of the source that are selected.
struct Choice {
  // Increasing in its argument. nullopt: past every end.
  std::function<std::optional<int64_t>(int64_t position)> in_source;
  std::function<int64_t(int64_t source_size)> size;
};

class ChoiceIterator : public PositionedIterator {
 public:
  ChoiceIterator(Source source, Choice choice)
      : source_(std::move(source)), choice_(std::move(choice)) {}

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

// How many of [0, size) are among index, index + num_shards, ...
int64_t ShardSize(int64_t size, int64_t num_shards, int64_t index) {
  return size <= index ? 0 : (size - index - 1) / num_shards + 1;
}

// ---- Repeat

class RepeatIterator : public PositionedIterator {
 public:
  RepeatIterator(Source source, const DataEnvironment& environment, int64_t times)
      : source_(std::move(source)), clock_(ClockOf(environment)), times_(times) {}

 private:
  Element At(int64_t position) override {
    if (times_ == 0) return std::nullopt;
    if (!std::exchange(asked_, true)) pass_ = source_.size();
    if (!pass_) {
      // The length of a pass is unknown until the first pass has ended. size() before each element
      // would interrupt a source that prefetches.
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
    Progress progress(clock_);
    for (int64_t position = 0; !pass_; ++position) {
      ASSIGN_OR_RETURN(const std::optional<Nest> element, source_.At(position));
      if (!element) pass_ = position;
      progress.Tick(
          [&] { return absl::StrCat("Repeat has counted ", position + 1, " elements of a pass"); });
    }
    return absl::OkStatus();
  }

  Source source_;
  const Clock& clock_;
  const int64_t times_;  // -1: forever
  // Whether source_.size() was called before the first element.
  bool asked_ = false;
  // The length of a pass, if known.
  std::optional<int64_t> pass_;
};

// ---- Shuffle

class ShuffleIterator : public PositionedIterator {
 public:
  ShuffleIterator(Source source, const DataEnvironment& environment, int64_t window, uint64_t seed)
      : source_(std::move(source)), clock_(ClockOf(environment)), window_(window), seed_(seed) {}

 private:
  Element At(int64_t position) override {
    RETURN_IF_ERROR(Load(position / window_));
    const int64_t place = position % window_;
    if (place >= static_cast<int64_t>(elements_.size())) return std::nullopt;
    return elements_[static_cast<size_t>(place)];
  }

  std::optional<int64_t> KnownSize() override { return source_.size(); }

  // Loads window `number` and permutes it.
  absl::Status Load(int64_t number) {
    if (loaded_ == number) return absl::OkStatus();
    loaded_.reset();
    elements_.clear();
    Progress progress(clock_);
    for (int64_t place = 0; place < window_; ++place) {
      ASSIGN_OR_RETURN(std::optional<Nest> element, source_.At(number * window_ + place));
      if (!element) break;
      elements_.push_back(*std::move(element));
      progress.Tick([&] {
        return absl::StrCat("Shuffle has read ", place + 1, " elements of its window of ", window_);
      });
    }
    Permute(MixSeeds(seed_, static_cast<uint64_t>(number)));
    loaded_ = number;
    return absl::OkStatus();
  }

  // The Fisher-Yates shuffle. The last window may be shorter; the permutation has its length.
  void Permute(uint64_t seed) {
    Random random(seed);
    for (size_t left = elements_.size(); left > 1; --left)
      std::swap(elements_[left - 1], elements_[random.Below(left)]);
  }

  Source source_;
  const Clock& clock_;
  const int64_t window_;
  const uint64_t seed_;
  std::optional<int64_t> loaded_;  // number of the window in elements_
  std::vector<Nest> elements_;
};

// ---- Batch

class BatchIterator : public PositionedIterator {
 public:
  BatchIterator(Source source, int64_t size, bool drop_remainder)
      : source_(std::move(source)), size_(size), drop_remainder_(drop_remainder) {}

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
    if (rows.empty() || (drop_remainder_ && static_cast<int64_t>(rows.size()) < size_))
      return std::nullopt;
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

Recipe FilterRecipe(Recipe source, FilterFn keep) {
  return MakeTransform<FilterIterator>(
      std::move(source), Same(ElementOrder::kSame, /*keeps_all=*/false), std::move(keep));
}

Recipe IgnoreErrorsRecipe(Recipe source, int64_t limit) {
  return MakeTransform<IgnoreErrorsIterator>(std::move(source),
                                             Same(ElementOrder::kSame, /*keeps_all=*/true), limit);
}

Recipe ShuffleRecipe(Recipe source, int64_t window, uint64_t seed) {
  return MakeTransform<ShuffleIterator>(
      std::move(source), Same(ElementOrder::kMixed, /*keeps_all=*/true), window, seed);
}

Recipe RepeatRecipe(Recipe source, int64_t times) {
  return MakeTransform<RepeatIterator>(std::move(source),
                                       Same(ElementOrder::kMixed, /*keeps_all=*/true), times);
}

Recipe ShardRecipe(Recipe source, int64_t num_shards, int64_t index) {
  const Choice choice{
      [=](int64_t position) { return MultiplyAdd(position, num_shards, index); },
      [=](int64_t source_size) { return ShardSize(source_size, num_shards, index); }};
  return ChoiceRecipe(std::move(source), choice, WorkerShare{num_shards, index});
}

Recipe HoldOutRecipe(Recipe source, int64_t num_shards, int64_t index) {
  if (num_shards == 1) return TakeRecipe(std::move(source), 0);  // the only shard has all
  const auto in_source = [=](int64_t position) {
    const int64_t others = num_shards - 1;
    const int64_t place = position % others;
    return MultiplyAdd(position / others, num_shards, place < index ? place : place + 1);
  };
  return ChoiceRecipe(std::move(source), {in_source, [=](int64_t source_size) {
                                            return source_size -
                                                   ShardSize(source_size, num_shards, index);
                                          }});
}

Recipe TakeRecipe(Recipe source, int64_t n) {
  return ChoiceRecipe(std::move(source),
                      {[=](int64_t position) {
                         return position < n ? std::optional<int64_t>(position) : std::nullopt;
                       },
                       [=](int64_t source_size) { return std::min(source_size, n); }});
}

Recipe SkipRecipe(Recipe source, int64_t n) {
  return ChoiceRecipe(std::move(source),
                      {[=](int64_t position) { return MultiplyAdd(1, position, n); },
                       [=](int64_t source_size) { return std::max<int64_t>(source_size - n, 0); }});
}

Recipe BatchRecipe(Recipe source, int64_t size, bool drop_remainder) {
  return MakeTransform<BatchIterator>(std::move(source), Batching(size, drop_remainder), size,
                                      drop_remainder);
}

}  // namespace divvy::data_internal
