// Prefetch. A filler, which is a task on the environment's executor, reads elements while the
// buffer has room. While the filler runs, only the filler uses the source; otherwise only the
// iterator does.
#include <algorithm>
#include <deque>
#include <utility>

#include "base/executor.h"
#include "base/guarded.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "data/transform.h"

namespace divvy::data_internal {
namespace {

struct Shared {
  explicit Shared(Source source) : source(std::move(source)) {}

  // The end or an error has been read. Nothing is read after it.
  bool AtEnd() const DIVVY_REQUIRES(mu) { return !buffer.empty() && !IsElement(buffer.back()); }

  Mutex mu;
  CondVar changed;
  // Used by the filler while `filling`, otherwise by the iterator.
  Source source;
  // Elements first, first + 1, ... Nothing follows an end or an error.
  std::deque<Element> buffer DIVVY_GUARDED_BY(mu);
  int64_t first DIVVY_GUARDED_BY(mu) = 0;
  bool filling DIVVY_GUARDED_BY(mu) = false;
  // Asks the filler to end after the current element.
  bool stop DIVVY_GUARDED_BY(mu) = false;
};

// The task on the executor. Its destructor records that no filler runs, even if the executor drops
// the task without running it.
class Filler {
 public:
  Filler(std::shared_ptr<Shared> shared, size_t wanted)
      : shared_(std::move(shared)), wanted_(wanted) {}
  ~Filler() {
    {
      MutexLock lock(shared_->mu);
      shared_->filling = false;
    }
    shared_->changed.NotifyAll();
  }
  Filler(const Filler&) = delete;
  Filler& operator=(const Filler&) = delete;

  void Run() {
    while (const std::optional<int64_t> position = NextPosition())
      Keep(internal::Guarded<Element>("Prefetch", [&] { return shared_->source.At(*position); }));
  }

 private:
  // The position to read next. nullopt: stop reading.
  std::optional<int64_t> NextPosition() {
    MutexLock lock(shared_->mu);
    if (shared_->stop || shared_->buffer.size() >= wanted_ || shared_->AtEnd()) return std::nullopt;
    return shared_->first + static_cast<int64_t>(shared_->buffer.size());
  }

  void Keep(Element element) {
    {
      MutexLock lock(shared_->mu);
      shared_->buffer.push_back(std::move(element));
    }
    shared_->changed.NotifyAll();
  }

  const std::shared_ptr<Shared> shared_;
  const size_t wanted_;
};

class PrefetchIterator : public PositionedIterator {
 public:
  PrefetchIterator(Source source, int64_t elements, Executor& executor)
      : shared_(std::make_shared<Shared>(std::move(source))),
        wanted_(static_cast<size_t>(elements)),
        executor_(executor) {}
  // Does not wait. A filler that still runs owns what it needs and ends soon.
  ~PrefetchIterator() override {
    MutexLock lock(shared_->mu);
    shared_->stop = true;
  }

 private:
  Element At(int64_t position) override {
    GoTo(position);
    StartFillingIfLow();
    return Take(position);
  }

  std::optional<int64_t> KnownSize() override {
    StopFilling();
    return shared_->source.size();
  }

  // Makes `position` the position of the first element in the buffer, or of the next one to be
  // read.
  void GoTo(int64_t position) {
    {
      MutexLock lock(shared_->mu);
      const int64_t passed_over = position - shared_->first;
      if (passed_over == 0) return;
      if (passed_over > 0 && passed_over < static_cast<int64_t>(shared_->buffer.size())) {
        shared_->buffer.erase(shared_->buffer.begin(), shared_->buffer.begin() + passed_over);
        shared_->first = position;
        return;
      }
    }
    StopFilling();
    MutexLock lock(shared_->mu);
    shared_->buffer.clear();
    shared_->first = position;
  }

  void StopFilling() {
    MutexLock lock(shared_->mu);
    shared_->stop = true;
    shared_->changed.Wait(shared_->mu,
                          [this]() DIVVY_REQUIRES(shared_->mu) { return !shared_->filling; });
    shared_->stop = false;
  }

  void StartFillingIfLow() {
    {
      MutexLock lock(shared_->mu);
      const bool low = shared_->buffer.size() <= wanted_ / 2 && !shared_->AtEnd();
      if (shared_->filling || !low) return;
      shared_->filling = true;
    }
    executor_.PostBlocking(
        "prefetch", [filler = std::make_shared<Filler>(shared_, wanted_)] { filler->Run(); });
  }

  // The end or an error stays in the buffer, and is returned each time it is requested.
  Element Take(int64_t position) {
    {
      MutexLock lock(shared_->mu);
      shared_->changed.Wait(shared_->mu, [this]() DIVVY_REQUIRES(shared_->mu) {
        return !shared_->buffer.empty() || !shared_->filling;
      });
      if (!shared_->buffer.empty()) {
        Element element = shared_->buffer.front();
        if (IsElement(element)) {
          shared_->buffer.pop_front();
          ++shared_->first;
        }
        return element;
      }
    }
    // The executor has stopped and dropped the filler.
    return shared_->source.At(position);
  }

  const std::shared_ptr<Shared> shared_;
  const size_t wanted_;
  Executor& executor_;
};

class Prefetched : public DescribedRecipe {
 public:
  Prefetched(Recipe source, int64_t elements) : source_(std::move(source)), elements_(elements) {}

  std::unique_ptr<DatasetIterator> Iterate(const DataEnvironment& environment) const override {
    if (environment.executor == nullptr || elements_ == 0) return source_->Iterate(environment);
    return std::make_unique<PrefetchIterator>(Source(source_, environment), elements_,
                                              *environment.executor);
  }
  Specs ElementSpec(const DataEnvironment& environment) const override {
    return source_->ElementSpec(environment);
  }
  std::optional<BatchCut> batch_cut() const override { return BatchCutOf(*source_); }
  Recipe source() const override { return source_; }
  Recipe Over(Recipe source) const override {
    return std::make_shared<Prefetched>(std::move(source), elements_);
  }
  bool keeps_all() const override { return true; }

 private:
  const Recipe source_;
  const int64_t elements_;
};

}  // namespace

Recipe PrefetchRecipe(Recipe source, int64_t elements) {
  return std::make_shared<Prefetched>(std::move(source), elements);
}

}  // namespace divvy::data_internal
