// The coordinator, as a program sees it: TensorFlow's ClusterCoordinator.
#ifndef DIVVY_STRATEGY_COORDINATOR_H_
#define DIVVY_STRATEGY_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "data/dataset.h"
#include "strategy/metrics.h"
#include "strategy/step.h"
#include "strategy/strategy.h"
#include "tensor/nest.h"

namespace divvy {

// Looks at a loop of steps while it runs: called on the thread that waits in RunEpoch or RunUntil, each report interval (--report_every, 5 s), with what was
// merged since the last call (empty: no step finished). False: the loop makes no more steps and returns what was merged when those in flight have ended.
using LoopObserver = std::function<bool(const Metrics& recent)>;

enum class RemoteState : uint8_t { kNotReady, kReady, kFailed, kCancelled };

namespace internal {

// A scheduled step's result, before its type is known. Implemented by coordinator/core; thread-safe.
class RemoteResult {
 public:
  virtual ~RemoteResult() = default;
  virtual RemoteState state() const = 0;
  virtual absl::StatusOr<Nest> Fetch(absl::Duration timeout) const = 0;  // as RemoteValue::Fetch
};

// A loop of steps over a dataset, as RunEpoch and RunUntil ask for it.
struct StepLoop {
  std::string step;
  StepKind kind = StepKind::kTraining;
  BoundDataSource data;
  Nest::List args;                   // those after the iterator
  std::optional<int64_t> last_step;  // RunUntil: passes begin anew until so many training steps are committed. None: one pass
  LoopObserver observer = {};        // none: nobody looks
};

}  // namespace internal

// The result of a scheduled step, held by the coordinator as soon as it exists. Thread-safe handle. Not an argument of Schedule: fetch first.
template <typename T>
class RemoteValue {
 public:
  using State = RemoteState;
  explicit RemoteValue(std::shared_ptr<const internal::RemoteResult> result) : result_(std::move(result)) {}
  State state() const { return result_->state(); }
  // Blocks. The step's own error, whatever its code; DeadlineExceeded: not ready yet, call again; Cancelled: another step's error ended the batch of work.
  absl::StatusOr<T> Fetch(absl::Duration timeout = absl::InfiniteDuration()) const {
    ASSIGN_OR_RETURN(Nest value, result_->Fetch(timeout));
    return NestCodec<T>::Decode(value);
  }

 private:
  std::shared_ptr<const internal::RemoteResult> result_;
};

template <>
class RemoteValue<void> {
 public:
  using State = RemoteState;
  explicit RemoteValue(std::shared_ptr<const internal::RemoteResult> result) : result_(std::move(result)) {}
  State state() const { return result_->state(); }
  absl::Status Fetch(absl::Duration timeout = absl::InfiniteDuration()) const { return result_->Fetch(timeout).status(); }

 private:
  std::shared_ptr<const internal::RemoteResult> result_;
};

// A data source bound to the workers: each opens it for itself.
class PerWorkerDataset {
 public:
  // For implementers of Coordinator. REQUIRES: `make` is thread-safe and does not block.
  explicit PerWorkerDataset(std::function<Iterator()> make) : make_(std::move(make)) {}
  // From the beginning, made on each worker when first needed, and again on a worker that came back. Errors of the source appear in the steps that use it.
  Iterator MakeIterator() const { return make_(); }

 private:
  std::function<Iterator()> make_;
};

// Implemented by coordinator/core: the templates here only encode and decode. Thread-safe; blocking calls say so. Steps start in FIFO order and finish in any;
// a step whose worker is lost is run again by another. The first error of a step is returned by the next Schedule, Join, Done or Run*, after the steps in
// flight have ended and the queued ones were cancelled; then the coordinator is usable again.
class Coordinator {
 public:
  virtual ~Coordinator() = default;
  virtual Strategy& strategy() = 0;

  // Blocks only while max_queued_steps wait.
  template <typename R, typename... Args>
  absl::StatusOr<RemoteValue<R>> Schedule(const Step<R(Args...)>& step, const std::decay_t<Args>&... args) {
    ASSIGN_OR_RETURN(std::shared_ptr<const internal::RemoteResult> result,
                     ScheduleStep(step.name(), step.kind(), NestCodec<std::tuple<std::decay_t<Args>...>>::Encode({args...})));
    return RemoteValue<R>(std::move(result));
  }
  // Blocks until all scheduled steps are committed. DeadlineExceeded: not yet.
  virtual absl::Status Join(absl::Duration timeout = absl::InfiniteDuration()) = 0;
  // Whether nothing waits and nothing runs. Blocks only where it returns an error.
  virtual absl::StatusOr<bool> Done() = 0;

  // The loops most programs want: keep every worker busy, merge and report the metrics, draw progress; return what was merged. Block. RunEpoch is one pass over
  // the data, RunUntil goes on, pass after pass, until `last_step` training steps are committed; it begins where the last RunUntil
  // over the same data stopped, if none over other data came between (a RunEpoch may). The end of one worker's data is not an error here.
  template <typename... Args>
  absl::StatusOr<Metrics> RunEpoch(const Step<Metrics(Iterator, Args...)>& step, const BoundDataSource& data, const std::decay_t<Args>&... args) {
    return RunEpoch(LoopObserver(), step, data, args...);
  }
  // InvalidArgument: a read-only step, which has no number to reach.
  template <typename... Args>
  absl::StatusOr<Metrics> RunUntil(int64_t last_step, const Step<Metrics(Iterator, Args...)>& step, const BoundDataSource& data,
                                   const std::decay_t<Args>&... args) {
    return RunUntil(LoopObserver(), last_step, step, data, args...);
  }
  // The same with somebody who looks on. A RunEpoch that was ended early does not count as an epoch.
  template <typename... Args>
  absl::StatusOr<Metrics> RunEpoch(LoopObserver observer, const Step<Metrics(Iterator, Args...)>& step, const BoundDataSource& data,
                                   const std::decay_t<Args>&... args) {
    return RunSteps({std::string(step.name()), step.kind(), data, {NestCodec<std::decay_t<Args>>::Encode(args)...}, std::nullopt, std::move(observer)});
  }
  template <typename... Args>
  absl::StatusOr<Metrics> RunUntil(LoopObserver observer, int64_t last_step, const Step<Metrics(Iterator, Args...)>& step, const BoundDataSource& data,
                                   const std::decay_t<Args>&... args) {
    if (step.kind() == StepKind::kReadOnly) return absl::InvalidArgumentError("RunUntil counts training steps; use RunEpoch for a read-only step");
    return RunSteps({std::string(step.name()), step.kind(), data, {NestCodec<std::decay_t<Args>>::Encode(args)...}, last_step, std::move(observer)});
  }
  virtual int64_t epoch() const = 0;  // RunEpochs of training steps completed
  virtual int64_t step() const = 0;   // training steps committed

  // Errors of the source appear in the steps that use it.
  virtual absl::StatusOr<PerWorkerDataset> CreatePerWorkerDataset(const BoundDataSource& source) = 0;
  // For the steps scheduled from now on.
  virtual void SetLearningRateScale(double scale) = 0;
  // A line for the sub-run `run`.
  virtual absl::Status Report(absl::string_view run, int64_t step, const Metrics& metrics) = 0;
  // The program means to run so many epochs more: for the progress line alone. Trainer says it.
  virtual void SetGoal(int64_t epochs) {}

 protected:
  // `args` is a list. As Schedule. Handles of iterators among `args` must stay open until the step has ended.
  virtual absl::StatusOr<std::shared_ptr<const internal::RemoteResult>> ScheduleStep(absl::string_view name, StepKind kind, Nest args) = 0;
  // The step is given the iterator, then the loop's args, and returns Metrics (NestCodec). As RunEpoch and RunUntil.
  virtual absl::StatusOr<Metrics> RunSteps(const internal::StepLoop& loop) = 0;
};

// The values, in order; the first error ends it. Blocks for at most `timeout` on each.
template <typename T>
absl::StatusOr<std::vector<T>> FetchAll(absl::Span<const RemoteValue<T>> values, absl::Duration timeout = absl::InfiniteDuration()) {
  std::vector<T> fetched;
  for (const RemoteValue<T>& value : values) {
    ASSIGN_OR_RETURN(T one, value.Fetch(timeout));
    fetched.push_back(std::move(one));
  }
  return fetched;
}

}  // namespace divvy

#endif  // DIVVY_STRATEGY_COORDINATOR_H_
