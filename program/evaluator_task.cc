#include "program/evaluator_task.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/number_text.h"
#include "base/status_macros.h"
#include "coordinator/checkpoint/bundle_catalog.h"
#include "coordinator/checkpoint/job_end.h"
#include "coordinator/report/format.h"

namespace divvy {
namespace {

constexpr char kRun[] = "evaluator";

// The chief writes its own runs in the same directory, and each run must be written by one process
// only.
std::string RunBelowOurs(const std::string& run) {
  return run == kRun ? run : absl::StrCat(kRun, "/", run);
}

// Receives the scores of one checkpoint.
class ScoreSink : public ProgressSink {
 public:
  ScoreSink(CheckpointId checkpoint, EventRecorder* events, const std::string& directory)
      : checkpoint_(checkpoint), events_(events), directory_(directory) {}
  void OnLoopBegin(const Layout&, StepKind) override {}
  void OnStep(const Metrics&) override {}
  void OnLoopEnd() override {}
  void OnReport(const std::string& run, int64_t step, const Metrics& metrics) override {
    std::map<std::string, double> means;
    for (const auto& [name, metric] : metrics) means[name] = metric.value();
    DIVVY_LOG(INFO) << checkpoint_.name() << ", step " << CountText(static_cast<double>(step))
                    << ": " << RunBelowOurs(run) << ": " << FormatMetrics(means);
    if (events_ != nullptr) events_->Scalars(RunBelowOurs(run), step, std::move(means));
  }
  void OnGoal(int64_t) override {}
  std::string event_directory() const override { return directory_; }

 private:
  const CheckpointId checkpoint_;
  EventRecorder* const events_;
  const std::string& directory_;
};

}  // namespace

EvaluatorTask::EvaluatorTask(EvaluatorOptions options)
    : options_(std::move(options)),
      directory_(options_.cluster.options.checkpoint_dir),
      executor_(1),
      events_(options_.tensorboard_dir.empty()
                  ? nullptr
                  : std::make_shared<EventRecorder>(
                        std::make_unique<SummaryWriter>(options_.tensorboard_dir), executor_)) {}

EvaluatorTask::~EvaluatorTask() { executor_.Stop(); }

absl::StatusOr<std::unique_ptr<EvaluatorTask>> EvaluatorTask::Start(EvaluatorOptions options) {
  if (options.cluster.options.checkpoint_dir.empty()) {
    return absl::InvalidArgumentError(
        "an evaluator scores checkpoints: set --checkpoint_dir to the directory of its job");
  }
  return std::unique_ptr<EvaluatorTask>(new EvaluatorTask(std::move(options)));
}

int EvaluatorTask::exit_code() const {
  MutexLock lock(mu_);
  return ended_.value_or(0);
}

std::string EvaluatorTask::StatusText() const {
  MutexLock lock(mu_);
  return absl::StrCat("evaluator of ", directory_, ": ",
                      last_ ? absl::StrCat("the last checkpoint was ", last_->name())
                            : "there is no checkpoint yet",
                      ended_ ? "; the job is over" : "");
}

void EvaluatorTask::Flush() {
  if (events_ != nullptr) events_->Finish();
}

absl::Status EvaluatorTask::Watch(Score score) {
  DIVVY_LOG(INFO) << "waits for checkpoints in " << directory_;
  for (;;) {
    ASSIGN_OR_RETURN(const std::optional<CheckpointId> next, Next());
    if (!next) return damage_;
    RETURN_IF_ERROR(ScoreOne(*next, score));
    MutexLock lock(mu_);
    last_ = next;
  }
}

// Blocks until a checkpoint has not been scored. nullopt: the job is over, and all are scored.
absl::StatusOr<std::optional<CheckpointId>> EvaluatorTask::Next() {
  for (;;) {
    // The order matters: a list that is read after the end of the job has the job's final
    // checkpoint.
    ASSIGN_OR_RETURN(const std::optional<int> ended, ReadJobEnd(FileSystem::Real(), directory_));
    ASSIGN_OR_RETURN(const std::optional<CheckpointId> next, Unscored());
    MutexLock lock(mu_);
    ended_ = ended;
    if (next || ended) return next;
    look_.WaitFor(mu_, options_.look_every, [] { return false; });
  }
}

// The oldest checkpoint that is newer than the last one; at the beginning the newest.
absl::StatusOr<std::optional<CheckpointId>> EvaluatorTask::Unscored() const {
  const absl::StatusOr<std::vector<CheckpointId>> newest_first =
      ListCheckpoints(FileSystem::Real(), directory_);
  // The chief has not made the directory yet.
  if (absl::IsNotFound(newest_first.status())) return std::optional<CheckpointId>();
  RETURN_IF_ERROR(newest_first.status());
  MutexLock lock(mu_);
  std::optional<CheckpointId> next;
  for (const CheckpointId checkpoint : *newest_first) {
    if (last_ ? !(*last_ < checkpoint) : next.has_value()) break;
    next = checkpoint;
  }
  return next;
}

absl::Status EvaluatorTask::ScoreOne(CheckpointId checkpoint, const Score& score) {
  ScoreSink sink(checkpoint, events_.get(), options_.tensorboard_dir);
  const absl::StatusOr<std::unique_ptr<EmbeddedCluster>> cluster = Restore(checkpoint, sink);
  if (!cluster.ok()) return PassOver(checkpoint, cluster.status());
  damage_ = absl::OkStatus();
  return score((*cluster)->coordinator());
}

absl::StatusOr<std::unique_ptr<EmbeddedCluster>> EvaluatorTask::Restore(CheckpointId checkpoint,
                                                                        ProgressSink& sink) const {
  EmbeddedSetup setup = options_.cluster;
  setup.coordinator.report.reset();
  setup.coordinator.sink = &sink;
  setup.only = checkpoint;
  // The flag is for the chief; an evaluator writes no checkpoints.
  setup.coordinator.core.checkpoint_every = absl::ZeroDuration();
  setup.coordinator.core.final_checkpoint = false;
  ASSIGN_OR_RETURN(std::unique_ptr<EmbeddedCluster> cluster, EmbeddedCluster::Start(setup));
  RETURN_IF_ERROR(cluster->coordinator().RestoreLatest().status());
  return cluster;
}

// OK for a checkpoint that the job has removed, and for a damaged one that may have a successor.
absl::Status EvaluatorTask::PassOver(CheckpointId checkpoint, const absl::Status& why) {
  ASSIGN_OR_RETURN(const std::vector<CheckpointId> there,
                   ListCheckpoints(FileSystem::Real(), directory_));
  const bool removed = std::find(there.begin(), there.end(), checkpoint) == there.end();
  if (!removed && !absl::IsDataLoss(why)) return why;
  DIVVY_LOG(WARNING) << checkpoint.name()
                     << (removed ? " was removed before it was scored (--keep)"
                                 : absl::StrCat(" is not scored: ", why.message()));
  if (!removed) damage_ = why;
  return absl::OkStatus();
}

}  // namespace divvy
