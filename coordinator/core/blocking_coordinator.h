// The Coordinator of the API over the core: adds waiting, and nothing else.
#ifndef DIVVY_COORDINATOR_CORE_BLOCKING_COORDINATOR_H_
#define DIVVY_COORDINATOR_CORE_BLOCKING_COORDINATOR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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

// Variables as the program reaches them: each call waits for the core's answer. Thread-safe. Lives
// as long as a Strategy or a Variable holds it; once the core has been abandoned every call is
// FailedPrecondition.
class DirectVariableStore : public VariableStore {
 public:
  explicit DirectVariableStore(std::shared_ptr<CoordinatorCore> core) : core_(std::move(core)) {}
  JobId job() const override { return core_->job(); }
  absl::StatusOr<VariableInfo> Find(absl::string_view name) const override;
  absl::StatusOr<VariableInfo> Create(const VariableSpec& spec,
                                      const std::optional<Colocation>& with) override;
  absl::Status Read(absl::Span<ReadRequest> requests) override;
  absl::Status Write(std::vector<StagedWrite> writes) override;

  // Brings the first values of variables that were declared while nobody knew whether they would be
  // restored, and were not. To be called before any use of a variable, and after a restore.
  absl::Status BringInitialValues();

 private:
  class InitialValue;
  absl::Status Fill(InitialValue& value);

  const std::shared_ptr<CoordinatorCore> core_;
  Mutex mu_;
  CondVar brought_;
  bool bringing_ DIVVY_GUARDED_BY(mu_) = false;  // a thread is
  std::vector<std::shared_ptr<InitialValue>> waiting_ DIVVY_GUARDED_BY(mu_);
};

// Thread-safe. The calls block as strategy/coordinator.h says; none may be made from a task of the
// core's Executor.
class BlockingCoordinator : public Coordinator, public internal::TrainerSupport {
 public:
  // `replicas` of each worker, for the strategy's figures. `sink` may be null. `report_every`: how
  // often a LoopObserver is called. REQUIRES: `executor` and `sink` outlive this.
  // `export_variables`: Export in a job without checkpoints; none: it is refused.
  BlockingCoordinator(std::shared_ptr<CoordinatorCore> core, Executor& executor,
                      std::shared_ptr<const ClusterResolver> resolver, int replicas,
                      ProgressSink* sink, absl::Duration report_every = absl::Seconds(5),
                      ExportVariablesFunction export_variables = nullptr);

  // Blocks until the cluster takes steps. The error: what ended the job before it could.
  absl::Status WaitUntilReady();
  CoordinatorSnapshot Snapshot() const { return core_->Snapshot(); }

  Strategy& strategy() override { return *strategy_; }
  absl::Status Join(absl::Duration timeout) override;
  absl::StatusOr<bool> Done() override;
  int64_t epoch() const override { return core_->epoch(); }
  int64_t step() const override { return core_->step(); }
  absl::StatusOr<int64_t> RestoreLatest() override;
  absl::StatusOr<int64_t> RestoreUnlessBegun() override;
  int64_t TakeRestoredEpochs(int64_t at_most) override;
  int64_t TakeRestoredSteps(int64_t at_most) override;
  void SetProgramState(std::string bytes) override { core_->SetProgramState(std::move(bytes)); }
  std::string program_state() const override { return core_->program_state(); }
  int64_t durable_steps() const override { return core_->durable_steps(); }
  absl::StatusOr<std::string> SaveCheckpoint() override;
  using Coordinator::Export;
  absl::Status Export(absl::string_view path, const ExportOptions& options) override;
  absl::StatusOr<PerWorkerDataset> CreatePerWorkerDataset(const BoundDataSource& source) override;
  void SetLearningRateScale(double scale) override { core_->SetLearningRateScale(scale); }
  absl::Status Report(absl::string_view run, int64_t step, const Metrics& metrics) override;
  void SetGoal(int64_t epochs) override;
  std::string event_directory() const override {
    return sink_ == nullptr ? "" : sink_->event_directory();
  }

  // Ends the job, as after Train returned `result`: joins what is queued (if it is OK), tells every
  // task. Returns what the job ended with: ExitCodeOf it is the process' code. An error that
  // another start may mend (from 128 on) ends this process alone: nothing is stored, workers and ps
  // wait.
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
  // A Join of the core, and who waits for it.
  struct JoinWait {
    Mutex mu;
    CondVar arrived;
    std::optional<absl::Status> status DIVVY_GUARDED_BY(mu);
    bool given_up DIVVY_GUARDED_BY(mu) = false;  // nobody waits for it now
  };
  absl::StatusOr<std::shared_ptr<const internal::RemoteResult>> Queue(
      absl::string_view name, StepKind kind, Nest args, std::optional<StepNumber> once);
  std::shared_ptr<JoinWait> TakeGivenUpJoin();
  std::shared_ptr<JoinWait> BeginJoin();
  static std::optional<absl::Status> WaitForJoin(JoinWait& join, absl::Duration timeout);
  absl::StatusOr<CheckpointId> Save();
  absl::Status ExportByReading(const std::string& path, const ExportOptions& options);
  // An error that a Join raised after its caller had stopped waiting: the next call returns it.
  absl::Status TakeLateError();

  const std::shared_ptr<CoordinatorCore> core_;
  ProgressSink* const sink_;
  const absl::Duration report_every_;
  const ExportVariablesFunction export_variables_;
  std::atomic<uint64_t> last_run_{0};  // tokens of loops
  std::shared_ptr<DirectVariableStore> store_;
  std::shared_ptr<Strategy> strategy_;
  Mutex mu_;
  absl::Status late_error_ DIVVY_GUARDED_BY(mu_);
  // taken by the next Join: a program may poll for days
  std::vector<std::shared_ptr<JoinWait>> given_up_joins_ DIVVY_GUARDED_BY(mu_);
  bool asked_to_restore_ DIVVY_GUARDED_BY(mu_) = false;
  // That nobody has taken.
  int64_t restored_epochs_ DIVVY_GUARDED_BY(mu_) = 0, restored_steps_ DIVVY_GUARDED_BY(mu_) = 0;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_BLOCKING_COORDINATOR_H_
