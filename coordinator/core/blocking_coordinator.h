// Implements the Coordinator of the API on top of the core. It adds blocking waits and nothing
// else: each call starts an operation of the core and waits for its completion.
#ifndef DIVVY_COORDINATOR_CORE_BLOCKING_COORDINATOR_H_
#define DIVVY_COORDINATOR_CORE_BLOCKING_COORDINATOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/completion.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "cluster/cluster_resolver.h"
#include "coordinator/core/coordinator_core.h"
#include "coordinator/core/live_variables.h"
#include "coordinator/core/progress_sink.h"
#include "strategy/coordinator.h"
#include "strategy/trainer_support.h"
#include "strategy/variable_store.h"

namespace divvy {

// The program's access to variables outside steps. Each call blocks until the core answers; a read
// or write waits for a ps that is away.
//
// Thread-safe. May outlive the core: a Strategy or a Variable keeps it alive. After
// CoordinatorCore::Abandon every call returns FailedPrecondition.
class DirectVariableStore : public VariableStore {
 public:
  explicit DirectVariableStore(std::shared_ptr<CoordinatorCore> core) : core_(std::move(core)) {}
  JobId job() const override { return core_->job(); }
  // Does not block. Errors: those of Layout::UnknownVariable, if there is no variable `name`.
  absl::StatusOr<VariableInfo> Find(absl::string_view name) const override;
  // Returns when the variable exists and has its first values. Values that a ps cannot compute
  // itself are computed here and written in blocks of some 16 MiB. While the job has not chosen its
  // state (CoordinatorCore::Choosing), the variable is only declared, and its values are written by
  // WriteInitialValues. Errors: those of Validate(spec) and of CoordinatorCore::CreateVariable
  // and Write.
  absl::StatusOr<VariableInfo> Create(const VariableSpec& spec,
                                      const std::optional<Colocation>& with) override;
  // Read, ReadTable and Write call WriteInitialValues first. They accept tensors of any device and
  // bring them to the CPU. Errors: those of CoordinatorCore::Read and Write.
  absl::Status Read(absl::Span<ReadRequest> requests) override;
  absl::StatusOr<std::vector<Tensor>> ReadTable(std::vector<VariableRead> reads) override;
  absl::Status Write(std::vector<StagedWrite> writes) override;

  // Writes the first values of variables that were declared before the job had chosen its state,
  // unless a restore has brought them. Call it before any use of a variable, and after a restore.
  // One thread writes at a time; other callers wait for it. After an error, the next call tries
  // again to write the values that are still missing.
  absl::Status WriteInitialValues();

 private:
  class InitialValue;
  // Writes all blocks of the value.
  absl::Status Fill(InitialValue& value);

  const std::shared_ptr<CoordinatorCore> core_;
  Mutex mu_;
  CondVar written_;
  // Whether a thread is in WriteInitialValues.
  bool writing_ DIVVY_GUARDED_BY(mu_) = false;
  // Values that are still to be written, in the order of declaration.
  std::vector<std::shared_ptr<InitialValue>> waiting_ DIVVY_GUARDED_BY(mu_);
};

// A call of the core that continues after its caller's timeout. The next caller waits for the same
// call. Thread-safe.
template <typename T>
class ContinuedCall {
 public:
  // Calls `start` with a completion, unless an earlier call has no answer yet; then waits for that
  // one. Nullopt: no answer within `timeout`.
  std::optional<T> Wait(absl::Duration timeout,
                        const std::function<void(std::shared_ptr<Completion<T>>)>& start) {
    std::shared_ptr<Completion<T>> call = TakeGivenUp();
    if (call == nullptr) start(call = std::make_shared<Completion<T>>());
    std::optional<T> value = call->Wait(timeout);
    if (value) return value;
    MutexLock lock(mu_);
    given_up_ = std::move(call);
    return std::nullopt;
  }

 private:
  std::shared_ptr<Completion<T>> TakeGivenUp() {
    MutexLock lock(mu_);
    std::shared_ptr<Completion<T>> call = std::exchange(given_up_, nullptr);
    return call != nullptr && !call->Peek() ? call : nullptr;
  }

  Mutex mu_;
  std::shared_ptr<Completion<T>> given_up_ DIVVY_GUARDED_BY(mu_);
};

// The coordinator that a program calls. strategy/coordinator.h documents the overridden calls, when
// they block and what they return.
//
// Thread-safe. No blocking call may be made from a task of the core's Executor: it would wait for a
// thread that it occupies.
class BlockingCoordinator : public Coordinator, public internal::TrainerSupport {
 public:
  // `replicas`: replicas of each worker, for the strategy's figures. `sink`: receives progress; may
  // be null. `report_every`: how often a LoopObserver is called. `export_variables`: implements
  // Export in a job without checkpoints; if it is empty, such an Export is refused.
  // `communication`: StrategyOptions::communication. REQUIRES: `executor` and `sink` outlive this.
  BlockingCoordinator(std::shared_ptr<CoordinatorCore> core, Executor& executor,
                      std::shared_ptr<const ClusterResolver> resolver, int replicas,
                      ProgressSink* sink, absl::Duration report_every = absl::Seconds(5),
                      ExportVariablesFunction export_variables = nullptr,
                      const CommunicationOptions& communication = {});

  // Blocks until the cluster can run steps, or the program has to choose its state (RestoreLatest).
  // An error is the one that has ended the job.
  absl::Status WaitUntilReady();
  // Does not block.
  CoordinatorSnapshot Snapshot() const { return core_->Snapshot(); }

  Strategy& strategy() override { return *strategy_; }
  absl::Status Join(absl::Duration timeout) override;
  absl::StatusOr<bool> Done() override;
  int64_t epoch() const override { return core_->epoch(); }
  int64_t step() const override { return core_->step(); }
  absl::StatusOr<int64_t> RestoreLatest(absl::Duration timeout = absl::InfiniteDuration()) override;
  absl::StatusOr<int64_t> RestoreUnlessBegun(absl::Duration timeout) override;
  int64_t TakeRestoredEpochs(int64_t at_most) override;
  int64_t TakeRestoredSteps(int64_t at_most) override;
  void SetProgramState(std::string bytes) override { core_->SetProgramState(std::move(bytes)); }
  std::string program_state() const override { return core_->program_state(); }
  int64_t durable_steps() const override { return core_->durable_steps(); }
  absl::StatusOr<std::string> SaveCheckpoint(
      absl::Duration timeout = absl::InfiniteDuration()) override;
  using Coordinator::Export;
  absl::Status Export(absl::string_view path, const ExportOptions& options) override;
  absl::StatusOr<PerWorkerDataset> CreatePerWorkerDataset(const BoundDataSource& source) override;
  void SetLearningRateScale(double scale) override { core_->SetLearningRateScale(scale); }
  absl::Status Report(absl::string_view run, int64_t step, const Metrics& metrics) override;
  void SetGoal(int64_t epochs) override;
  std::string event_directory() const override {
    return sink_ == nullptr ? "" : sink_->event_directory();
  }

  // Ends the job after Train has returned `result`. If `result` is OK, first waits for all queued
  // steps. Then stores the end and tells every task to exit. Returns the status that the job ended
  // with; ExitCodeOf(status) is the exit code for this process. Blocks.
  //
  // An error that a restart may fix (exit code 128 or above) ends only this process: nothing is
  // stored, and workers and ps wait for the next coordinator.
  absl::Status Finish(absl::Status result);

  absl::StatusOr<std::shared_ptr<const internal::RemoteResult>> ScheduleStep(absl::string_view name,
                                                                             StepKind kind,
                                                                             Nest args) override;
  absl::StatusOr<std::shared_ptr<const internal::RemoteResult>> ScheduleStepOnce(
      absl::string_view series, int64_t number, absl::string_view name, StepKind kind,
      Nest args) override;
  absl::StatusOr<Metrics> RunSteps(const internal::StepLoop& loop) override;
  internal::TrainerSupport& trainer_support() override { return *this; }

 private:
  // The error of a step for which no caller waited any more. Thread-safe.
  class LateError {
   public:
    void Set(const absl::Status& error) {
      MutexLock lock(mu_);
      error_.Update(error);
    }
    absl::Status Take() {
      MutexLock lock(mu_);
      return std::exchange(error_, absl::OkStatus());
    }

   private:
    Mutex mu_;
    absl::Status error_ DIVVY_GUARDED_BY(mu_);
  };
  // One Join or Run of the core, shared with the caller that waits for it. Thread-safe.
  class StepsWait {
   public:
    explicit StepsWait(std::shared_ptr<LateError> late_error)
        : late_error_(std::move(late_error)) {}
    // The first status counts.
    void Set(const absl::Status& status);
    // Nullopt: no answer within `timeout`. From then on an error goes to the LateError, and a later
    // Wait returns OK in its place.
    std::optional<absl::Status> Wait(absl::Duration timeout);
    // Waits for at most `within`. Does not change where an error goes.
    bool IsAnswered(absl::Duration within = absl::ZeroDuration());

   private:
    const std::shared_ptr<LateError> late_error_;
    Mutex mu_;  // before the LateError's
    CondVar arrived_;
    std::optional<absl::Status> status_ DIVVY_GUARDED_BY(mu_);
    bool given_up_ DIVVY_GUARDED_BY(mu_) = false;
  };
  // Queues a step, and blocks while max_queued_steps steps wait.
  absl::StatusOr<std::shared_ptr<const internal::RemoteResult>> Queue(
      absl::string_view name, StepKind kind, Nest args, std::optional<StepNumber> once);
  // A join that no caller waits for and that has no answer yet. Null: there is no such join.
  std::shared_ptr<StepsWait> TakeGivenUpJoin();
  // Waits for the running steps of loops whose callers timed out. DeadlineExceeded: at `end`, a
  // time of Clock::Real(), some still run.
  absl::Status WaitForGivenUpLoops(absl::Duration end);
  // Waits for the loop `token`. Calls `goes_on`, unless it is empty, every report interval, and
  // stops the loop when `goes_on` returns false. Nullopt: the loop is not over at `end`.
  std::optional<absl::Status> WaitForLoop(StepsWait& wait, uint64_t token,
                                          const std::function<bool()>& goes_on, absl::Duration end);
  absl::StatusOr<int64_t> Restore(absl::Duration timeout);
  // Makes a checkpoint and waits for it. If an earlier call has stopped waiting for a checkpoint,
  // waits for that checkpoint instead.
  absl::StatusOr<CheckpointId> Save(absl::Duration timeout);
  // Exports without a checkpoint, by reading the variables. Slots are not exported.
  absl::Status ExportByReading(const std::string& path, const ExportOptions& options);

  const std::shared_ptr<CoordinatorCore> core_;
  ProgressSink* const sink_;
  const absl::Duration report_every_;
  const ExportVariablesFunction export_variables_;
  // The last loop token given to the core.
  std::atomic<uint64_t> last_run_{0};
  std::shared_ptr<DirectVariableStore> store_;
  std::shared_ptr<Strategy> strategy_;
  const std::shared_ptr<LateError> late_error_ = std::make_shared<LateError>();
  ContinuedCall<absl::StatusOr<CheckpointId>> save_;
  ContinuedCall<absl::StatusOr<int64_t>> restore_;
  Mutex mu_;
  // Joins whose callers timed out. The next Join reuses one, so a program that polls Join for days
  // does not add one per call.
  std::vector<std::shared_ptr<StepsWait>> given_up_joins_ DIVVY_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<StepsWait>> given_up_loops_ DIVVY_GUARDED_BY(mu_);
  bool asked_to_restore_ DIVVY_GUARDED_BY(mu_) = false;
  // The epochs and steps that a restore has brought and that no Take call has returned yet.
  int64_t restored_epochs_ DIVVY_GUARDED_BY(mu_) = 0, restored_steps_ DIVVY_GUARDED_BY(mu_) = 0;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_BLOCKING_COORDINATOR_H_
