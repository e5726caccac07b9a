// The evaluator of a process. It watches a directory of checkpoints, and scores each one in an
// embedded cluster of its own.
#ifndef DIVVY_PROGRAM_EVALUATOR_TASK_H_
#define DIVVY_PROGRAM_EVALUATOR_TASK_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "coordinator/report/event_recorder.h"
#include "program/embedded.h"
#include "train/evaluator.h"

namespace divvy {

// A plain value.
struct EvaluatorOptions {
  // options.checkpoint_dir is the directory to watch. EvaluatorTask sets report, sink and only
  // itself.
  EmbeddedSetup cluster;
  // The scores go to the run "evaluator" of this directory. Empty: only to the log.
  std::string tensorboard_dir;
  // How often to look at the directory.
  absl::Duration look_every = absl::Seconds(1);
};

// Watch must be called from one thread at a time; the other methods are thread-safe.
class EvaluatorTask : public Evaluator {
 public:
  // Starts nothing but a thread for events; Watch does the work. InvalidArgument: no directory is
  // given.
  static absl::StatusOr<std::unique_ptr<EvaluatorTask>> Start(EvaluatorOptions options);
  ~EvaluatorTask() override;

  using Evaluator::Watch;
  absl::Status Watch(std::function<absl::Status(Coordinator& restored)> score) override;
  // The exit code with which the job ended. 0: it ended well, or has not ended.
  int exit_code() const;
  // The state in one line, for the log.
  std::string StatusText() const;
  // Blocks until the scores reported so far are on disk.
  void Flush();

 private:
  using Score = std::function<absl::Status(Coordinator& restored)>;
  explicit EvaluatorTask(EvaluatorOptions options);
  absl::StatusOr<std::optional<CheckpointId>> Next();
  absl::StatusOr<std::optional<CheckpointId>> Unscored() const;
  absl::Status ScoreOne(CheckpointId checkpoint, const Score& score);
  absl::StatusOr<std::unique_ptr<EmbeddedCluster>> Restore(CheckpointId checkpoint,
                                                           ProgressSink& sink) const;
  absl::Status PassOver(CheckpointId checkpoint, const absl::Status& why);

  const EvaluatorOptions options_;
  const std::string& directory_;
  ThreadPoolExecutor executor_;
  const std::shared_ptr<EventRecorder> events_;  // null: none
  // the error of the last checkpoint, if that is damaged
  absl::Status damage_;
  mutable Mutex mu_;
  CondVar look_;  // never notified: Watch waits for the timeout
  std::optional<int> ended_ DIVVY_GUARDED_BY(mu_);
  // the last checkpoint that was scored or passed over
  std::optional<CheckpointId> last_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_PROGRAM_EVALUATOR_TASK_H_
