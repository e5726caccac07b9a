#include "tests/coordinator/live_cluster.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "tests/coordinator/steps.h"

namespace divvy::rules {
namespace {

using SharedResult = std::shared_ptr<const internal::RemoteResult>;

absl::StatusOr<int64_t> ReadCounter(Coordinator& coordinator) {
  ASSIGN_OR_RETURN(const Variable counter, coordinator.strategy().FindVariable("counter"));
  ASSIGN_OR_RETURN(const Tensor value, counter.Read());
  return CommonElement(value);
}

}  // namespace

template <typename T>
Pending<T> LiveCluster::Begin(std::function<T()> call) {
  const Promise<T> promise;
  program_.PostBlocking("program", [promise, call = std::move(call)] { promise.Set(call()); });
  return promise.pending();
}

Scheduled LiveCluster::Schedule(const std::string& step, Nest::List args) {
  const Pending<absl::StatusOr<SharedResult>> call =
      Begin<absl::StatusOr<SharedResult>>([this, step, args = Nest(std::move(args))] {
        return coordinator().ScheduleStep(step, StepKind::kTraining, args);
      });
  const auto accepted = [call]() -> std::optional<absl::Status> {
    if (!call.ready()) return std::nullopt;
    return call.value().status();
  };
  const auto result = [call]() -> std::optional<absl::StatusOr<Nest>> {
    if (!call.ready() || !call.value().ok() || (*call.value())->state() == RemoteState::kNotReady)
      return std::nullopt;
    return (*call.value())->Fetch(absl::ZeroDuration());
  };
  return {Pending<absl::Status>(accepted), Pending<absl::StatusOr<Nest>>(result)};
}

Pending<absl::Status> LiveCluster::Join() {
  return Begin<absl::Status>([this] { return coordinator().Join(kPatience); });
}

Pending<absl::StatusOr<bool>> LiveCluster::Done() {
  return Begin<absl::StatusOr<bool>>([this] { return coordinator().Done(); });
}

Pending<absl::StatusOr<int64_t>> LiveCluster::Counter() {
  return Begin<absl::StatusOr<int64_t>>([this] { return ReadCounter(coordinator()); });
}

// Polls, because a change of the coordinator's snapshot notifies no one.
bool LiveCluster::WaitUntil(const std::function<bool()>& condition) {
  const absl::Duration end = Clock::Real().Elapsed() + kPatience;
  Mutex mu;
  CondVar never;
  MutexLock lock(mu);
  while (!condition()) {
    if (Clock::Real().Elapsed() > end) return false;
    never.WaitFor(mu, absl::Milliseconds(1), [] { return false; });
  }
  return true;
}

void LiveCluster::LetThingsHappen() {
  const Pending<absl::StatusOr<int64_t>> read = Counter();
  WaitUntil([read] { return read.ready(); });
}

absl::Status LiveCluster::Prepare(int num_ps) {
  const Pending<absl::Status> prepared = Begin<absl::Status>([this, num_ps] {
    RETURN_IF_ERROR(coordinator().WaitUntilReady());
    return coordinator().strategy().CreateVariable(CounterSpec(num_ps)).status();
  });
  if (!WaitUntil([prepared] { return prepared.ready(); }))
    return absl::DeadlineExceededError("the cluster does not take steps");
  return prepared.value();
}

void LiveCluster::StopProgram() {
  gate().Open();
  program_.Stop();
}

}  // namespace divvy::rules
