// Map, with one or several calls at once, and MapBatches. Only the iterator reads the source, one
// element after another. With several calls, the function runs on the environment's executor.
// Elements are returned in the source's order.
#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"

#include "base/executor.h"
#include "base/guarded.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "data/stacking.h"
#include "data/transform.h"

namespace divvy::data_internal {
namespace {

Element Apply(const MapFn& fn, const Nest& element, absl::string_view what = "a Map function") {
  ASSIGN_OR_RETURN(Nest mapped,
                   internal::Guarded<absl::StatusOr<Nest>>(what, [&] { return fn(element); }));
  RETURN_IF_ERROR(mapped.status());
  return mapped;
}

// One call of the function. The iterator and the task that makes the call share it.
class Call {
 public:
  explicit Call(Nest input) : input_(std::move(input)) {}

  // Makes the call, unless it has begun already.
  void Make(const MapFn& fn) {
    {
      MutexLock lock(mu_);
      if (begun_) return;
      begun_ = true;
    }
    Element result = Apply(fn, input_);
    MutexLock lock(mu_);
    result_ = std::move(result);
    made_.NotifyAll();
  }

  // Returns the result. Makes the call if it has not begun, so an executor that drops its tasks
  // blocks nobody.
  Element Result(const MapFn& fn) {
    Make(fn);
    MutexLock lock(mu_);
    made_.Wait(mu_, [this]() DIVVY_REQUIRES(mu_) { return result_.has_value(); });
    return *result_;
  }

 private:
  const Nest input_;
  Mutex mu_;
  CondVar made_;
  bool begun_ DIVVY_GUARDED_BY(mu_) = false;
  std::optional<Element> result_ DIVVY_GUARDED_BY(mu_);
};

class MapIterator : public PositionedIterator {
 public:
  MapIterator(Source source, const DataEnvironment& environment, std::shared_ptr<const MapFn> fn,
              int64_t parallel_calls)
      : source_(std::move(source)),
        fn_(std::move(fn)),
        executor_(environment.executor),
        at_once_(executor_ == nullptr ? 1 : static_cast<size_t>(parallel_calls)) {}

 private:
  Element At(int64_t position) override {
    if (at_once_ == 1) return MapHere(position);
    GoTo(position);
    BeginCalls();
    return calls_.empty() ? *end_ : calls_.front()->Result(*fn_);
  }

  std::optional<int64_t> KnownSize() override { return source_.size(); }

  Element MapHere(int64_t position) {
    ASSIGN_OR_RETURN(const std::optional<Nest> element, source_.At(position));
    if (!element) return std::nullopt;
    return Apply(*fn_, *element);
  }

  // Makes `position` the position of the first call. Skipped calls end by themselves.
  void GoTo(int64_t position) {
    const int64_t passed_over = position - first_;
    if (passed_over >= 0 && passed_over <= static_cast<int64_t>(calls_.size())) {
      calls_.erase(calls_.begin(), calls_.begin() + passed_over);
    } else {
      calls_.clear();
      end_.reset();
    }
    first_ = position;
  }

  // Begins calls until at_once_ are in flight. The end or an error of the source is kept in end_
  // until GoTo leaves this range of positions.
  void BeginCalls() {
    while (!end_ && calls_.size() < at_once_) {
      Element element = source_.At(first_ + static_cast<int64_t>(calls_.size()));
      if (!IsElement(element)) {
        end_ = std::move(element);
        return;
      }
      calls_.push_back(std::make_shared<Call>(**std::move(element)));
      executor_->PostBlocking("map", [call = calls_.back(), fn = fn_] { call->Make(*fn); });
    }
  }

  Source source_;
  const std::shared_ptr<const MapFn> fn_;
  Executor* const executor_;
  const size_t at_once_;
  std::deque<std::shared_ptr<Call>> calls_;  // of the elements first_, first_ + 1, ...
  int64_t first_ = 0;
  // The source's end or error after the calls.
  std::optional<Element> end_;
};

class MapBatchesIterator : public BlockIterator {
 public:
  MapBatchesIterator(Source source, MapFn fn, int64_t rows)
      : source_(std::move(source)), fn_(std::move(fn)), rows_(rows) {}

 private:
  absl::StatusOr<std::shared_ptr<const Block>> BlockAt(int64_t position, int64_t step,
                                                       int64_t most) override {
    const int64_t wanted = std::min(most, rows_);
    RowList rows;
    while (static_cast<int64_t>(rows.size()) < wanted) {
      const int64_t have = static_cast<int64_t>(rows.size());
      const absl::Status read = source_.EveryRow(position + have * step, step, wanted - have, rows);
      // A bad element ends the batch before it.
      if (!read.ok() && have == 0) return read;
      if (static_cast<int64_t>(rows.size()) == have) break;
    }
    if (rows.empty()) return nullptr;
    const int64_t count = static_cast<int64_t>(rows.size());
    ASSIGN_OR_RETURN(const Nest batch, StackRefs(rows.refs()));
    ASSIGN_OR_RETURN(std::optional<Nest> mapped, Apply(fn_, batch, "a MapBatches function"));
    ASSIGN_OR_RETURN(const int64_t mapped_rows, NumRows(*mapped));
    if (mapped_rows != count)
      return absl::InvalidArgumentError(
          absl::StrCat("a MapBatches function got ", count, " rows and returned ", mapped_rows,
                       ": it must return a row for each. To drop some, use Filter"));
    auto block = Block::OfRows(*std::move(mapped), count, layout_);
    layout_ = block->layout();
    return block;
  }

  std::optional<int64_t> KnownSize() override { return source_.size(); }

  Source source_;
  const MapFn fn_;
  const int64_t rows_;
  std::shared_ptr<const BlockLayout> layout_;  // of the last block
};

}  // namespace

Recipe MapBatchesRecipe(Recipe source, MapFn fn, int64_t rows) {
  TransformRules rules;
  rules.keeps_all = true;
  return MakeTransform<MapBatchesIterator>(std::move(source), rules, std::move(fn), rows);
}

Recipe MapRecipe(Recipe source, MapFn fn, int64_t parallel_calls) {
  TransformRules rules;
  rules.keeps_all = true;
  return MakeTransform<MapIterator>(std::move(source), rules,
                                    std::make_shared<const MapFn>(std::move(fn)), parallel_calls);
}

}  // namespace divvy::data_internal
