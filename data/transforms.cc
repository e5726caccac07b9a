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

// ---- Filter

using FilterFn = std::function<absl::StatusOr<bool>(const Nest&)>;

class FilterIterator : public RowIterator {
 public:
  FilterIterator(Source source, const DataEnvironment& environment, FilterFn keep)
      : source_(std::move(source)), clock_(ClockOf(environment)), keep_(std::move(keep)) {}

 private:
  absl::Status Rows(int64_t position, int64_t most, RowList& rows) override {
    if (position < kept_) {
      kept_ = source_position_ = 0;
      ahead_.reset();
    }
    Progress progress(clock_);
    for (int64_t added = 0; added < most;) {
      const absl::Status read = ReadAhead(most);
      if (read.ok() && ahead_ == nullptr) return absl::OkStatus();  // the end
      const absl::StatusOr<bool> keep = read.ok() ? Keeps(Current()) : read;
      if (!keep.ok() && added > 0) return absl::OkStatus();  // the error is the next element's
      if (!keep.ok() && (kept_ == position || !IsOfAnElement(keep.status()))) return keep.status();
      // A bad element counts as kept, so that a Seek past it works.
      if (keep.value_or(true) && kept_++ >= position) {
        rows.Add(ahead_, ahead_->kept_rows(), absl::MakeConstSpan(&Current(), 1));
        ++added;
      }
      ++source_position_;
      progress.Tick([&] {
        return absl::StrCat("Filter has read ", source_position_, " elements and kept ", kept_,
                            " on the way to element ", position);
      });
    }
    return absl::OkStatus();
  }

  // Makes the source's element at source_position_ one of ahead_, or ahead_ null at the end.
  absl::Status ReadAhead(int64_t most) {
    if (ahead_ != nullptr && source_position_ < ahead_first_ + static_cast<int64_t>(ahead_->size()))
      return absl::OkStatus();
    ahead_.reset();
    auto ahead = std::make_shared<RowList>();
    RETURN_IF_ERROR(source_.Rows(source_position_, most, *ahead));
    if (ahead->empty()) return absl::OkStatus();
    ahead_ = std::move(ahead);
    ahead_first_ = source_position_;
    return absl::OkStatus();
  }

  // REQUIRES: ahead_ is not null
  const RowRef& Current() const {
    return ahead_->refs()[static_cast<size_t>(source_position_ - ahead_first_)];
  }

  absl::StatusOr<bool> Keeps(const RowRef& ref) const {
    ASSIGN_OR_RETURN(const Nest element, ref.block->Row(ref.row));
    return internal::Guarded<absl::StatusOr<bool>>("a Filter function",
                                                   [&] { return keep_(element); });
  }

  Source source_;
  const Clock& clock_;
  const FilterFn keep_;
  int64_t source_position_ = 0;           // the next to be looked at
  int64_t kept_ = 0;                      // how many before it were kept
  std::shared_ptr<const RowList> ahead_;  // elements of the source
  int64_t ahead_first_ = 0;               // the position of the first of them
};

// ---- IgnoreErrors

class IgnoreErrorsIterator : public RowIterator {
 public:
  IgnoreErrorsIterator(Source source, const DataEnvironment& environment, int64_t limit)
      : source_(std::move(source)), clock_(ClockOf(environment)), limit_(limit) {}

 private:
  absl::Status Rows(int64_t position, int64_t most, RowList& rows) override {
    if (position < given_) given_ = source_position_ = ignored_ = 0;
    Progress progress(clock_);
    while (true) {
      // Elements before `position` are read, since some may be bad, and dropped.
      RowList passed;
      RowList& to = given_ < position ? passed : rows;
      const size_t had = to.size();
      const absl::Status read =
          source_.Rows(source_position_, given_ < position ? position - given_ : most, to);
      const int64_t count = static_cast<int64_t>(to.size() - had);
      if (!read.ok()) {
        RETURN_IF_ERROR(Ignore(read));
      } else if (count == 0) {
        TellOfEnd();
        return absl::OkStatus();
      }
      const bool given = count > 0 && given_ >= position;
      source_position_ += count;
      given_ += count;
      if (given) return absl::OkStatus();
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

  void TellOfEnd() {
    if (ignored_ > 0 && !end_told_)
      DIVVY_LOG(WARNING) << "data: skipped " << ignored_ << " bad elements in a pass of "
                         << source_position_;
    end_told_ = true;
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
  // Increasing in its argument, by `step` each time if that is not 0. nullopt: past every end.
  std::function<std::optional<int64_t>(int64_t position)> in_source;
  std::function<int64_t(int64_t source_size)> size;
  int64_t step = 0;
};

class ChoiceIterator : public RowIterator {
 public:
  ChoiceIterator(Source source, Choice choice)
      : source_(std::move(source)), choice_(std::move(choice)) {}

 private:
  absl::Status Rows(int64_t position, int64_t most, RowList& rows) override {
    const std::optional<int64_t> first = choice_.in_source(position);
    if (!first) return absl::OkStatus();
    int64_t wanted = std::min(most, BlockIterator::kMostRows);
    std::optional<int64_t> last;
    while (!(last = LastOf(position, wanted))) wanted /= 2;
    if (choice_.step > 0) return source_.EveryRow(*first, choice_.step, wanted, rows);
    // HoldOut leaves out at most every second.
    auto run = std::make_shared<RowList>();
    RETURN_IF_ERROR(source_.Rows(*first, *last - *first + 1, *run));
    const int64_t end = *first + static_cast<int64_t>(run->size());
    std::vector<RowRef> selected;
    for (std::optional<int64_t> at = first; at && *at < end;
         at = choice_.in_source(position + static_cast<int64_t>(selected.size())))
      selected.push_back(run->refs()[static_cast<size_t>(*at - *first)]);
    if (!selected.empty()) rows.Add(run, run->kept_rows(), selected);
    return absl::OkStatus();
  }

  // The source's position of the last of `count` elements from `position` on. REQUIRES: count >= 1
  std::optional<int64_t> LastOf(int64_t position, int64_t count) const {
    const std::optional<int64_t> last = MultiplyAdd(1, position, count - 1);
    return last ? choice_.in_source(*last) : std::nullopt;
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
  TransformRules rules = Rules(ElementOrder::kSame, /*keeps_all=*/false);
  rules.shard = shard;
  return MakeTransform<ChoiceIterator>(std::move(source), rules, std::move(choice));
}

// How many of [0, size) are among index, index + num_shards, ...
int64_t ShardSize(int64_t size, int64_t num_shards, int64_t index) {
  return size <= index ? 0 : (size - index - 1) / num_shards + 1;
}

// ---- Repeat

class RepeatIterator : public RowIterator {
 public:
  RepeatIterator(Source source, const DataEnvironment& environment, int64_t times)
      : pass_(std::move(source), environment, "Repeat"), times_(times) {}

 private:
  absl::Status Rows(int64_t position, int64_t most, RowList& rows) override {
    if (times_ == 0) return absl::OkStatus();
    const size_t had = rows.size();
    RETURN_IF_ERROR(pass_.Rows(position, most, rows));
    if (rows.size() > had) return absl::OkStatus();
    const int64_t length = *pass_.length();
    if (length == 0 || (times_ > 0 && position / length >= times_)) return absl::OkStatus();
    return pass_.Rows(position % length, most, rows);
  }

  std::optional<int64_t> KnownSize() override {
    if (times_ == 0) return 0;
    const std::optional<int64_t> pass = pass_.size();
    if (!pass || *pass == 0) return pass;
    return times_ < 0 ? std::nullopt : MultiplyAdd(*pass, times_, 0);
  }

  MeasuredSource pass_;
  const int64_t times_;  // -1: forever
};

// ---- Shuffle

class ShuffleIterator : public RowIterator {
 public:
  ShuffleIterator(Source source, const DataEnvironment& environment, int64_t window, uint64_t seed)
      : source_(std::move(source)), clock_(ClockOf(environment)), window_(window), seed_(seed) {}

 private:
  absl::Status Rows(int64_t position, int64_t most, RowList& rows) override {
    RETURN_IF_ERROR(Load(position / window_));
    const int64_t place = position % window_;
    const int64_t left = static_cast<int64_t>(loaded_->size()) - place;
    if (left <= 0) return absl::OkStatus();
    rows.Add(loaded_, loaded_->kept_rows(),
             loaded_->refs().subspan(static_cast<size_t>(place),
                                     static_cast<size_t>(std::min(left, most))));
    return absl::OkStatus();
  }

  std::optional<int64_t> KnownSize() override { return source_.size(); }

  // Loads window `number` and permutes it.
  absl::Status Load(int64_t number) {
    if (loaded_ != nullptr && number_ == number) return absl::OkStatus();
    loaded_.reset();
    Progress progress(clock_);
    auto window = std::make_shared<RowList>();
    while (true) {
      const int64_t have = static_cast<int64_t>(window->size());
      if (have == window_) break;
      RETURN_IF_ERROR(source_.Rows(number * window_ + have, window_ - have, *window));
      if (static_cast<int64_t>(window->size()) == have) break;
      RETURN_IF_ERROR(window->Tidy(RowList::Tail::kIfLong));
      progress.Tick([&] {
        return absl::StrCat("Shuffle has read ", window->size(), " elements of its window of ",
                            window_);
      });
    }
    RETURN_IF_ERROR(window->Tidy(RowList::Tail::kAny));
    Permute(MixSeeds(seed_, static_cast<uint64_t>(number)), *window);
    loaded_ = std::move(window);
    number_ = number;
    return absl::OkStatus();
  }

  // The Fisher-Yates shuffle. The last window may be shorter, and then has a permutation of its own
  // length.
  static void Permute(uint64_t seed, RowList& window) {
    Random random(seed);
    RowRef* const elements = window.mutable_refs();
    for (size_t left = window.size(); left > 1; --left)
      std::swap(elements[left - 1], elements[random.Below(left)]);
  }

  Source source_;
  const Clock& clock_;
  const int64_t window_;
  const uint64_t seed_;
  std::shared_ptr<const RowList> loaded_;  // a permuted window; null: none
  int64_t number_ = 0;                     // its number
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
    RowList rows;
    while (true) {
      const int64_t have = static_cast<int64_t>(rows.size());
      if (have == size_) break;
      RETURN_IF_ERROR(source_.Rows(*first + have, size_ - have, rows));
      if (static_cast<int64_t>(rows.size()) == have) break;
      // A few rows of one window of Shuffle must not keep it in memory beside the next one.
      if (static_cast<int64_t>(rows.size()) < size_)
        RETURN_IF_ERROR(rows.Tidy(RowList::Tail::kAny));
    }
    if (rows.empty() || (drop_remainder_ && static_cast<int64_t>(rows.size()) < size_))
      return std::nullopt;
    ASSIGN_OR_RETURN(Nest batch, StackRefs(rows.refs()));
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
      std::move(source), Rules(ElementOrder::kSame, /*keeps_all=*/false), std::move(keep));
}

Recipe IgnoreErrorsRecipe(Recipe source, int64_t limit) {
  return MakeTransform<IgnoreErrorsIterator>(std::move(source),
                                             Rules(ElementOrder::kSame, /*keeps_all=*/true), limit);
}

Recipe ShuffleRecipe(Recipe source, int64_t window, uint64_t seed) {
  return MakeTransform<ShuffleIterator>(
      std::move(source), Rules(ElementOrder::kMixed, /*keeps_all=*/true), window, seed);
}

Recipe RepeatRecipe(Recipe source, int64_t times) {
  return MakeTransform<RepeatIterator>(std::move(source),
                                       Rules(ElementOrder::kMixed, /*keeps_all=*/true), times);
}

Recipe ShardRecipe(Recipe source, int64_t num_shards, int64_t index) {
  const Choice choice{
      [=](int64_t position) { return MultiplyAdd(position, num_shards, index); },
      [=](int64_t source_size) { return ShardSize(source_size, num_shards, index); }, num_shards};
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
                       [=](int64_t source_size) { return std::min(source_size, n); },
                       /*step=*/1});
}

Recipe SkipRecipe(Recipe source, int64_t n) {
  return ChoiceRecipe(std::move(source),
                      {[=](int64_t position) { return MultiplyAdd(1, position, n); },
                       [=](int64_t source_size) { return std::max<int64_t>(source_size - n, 0); },
                       /*step=*/1});
}

Recipe BatchRecipe(Recipe source, int64_t size, bool drop_remainder) {
  return MakeTransform<BatchIterator>(std::move(source), Batching(size, drop_remainder), size,
                                      drop_remainder);
}

}  // namespace divvy::data_internal
