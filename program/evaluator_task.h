// The evaluator as a process has it: looks at a directory of checkpoints, and scores each in an
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

struct EvaluatorOptions {
  // options.checkpoint_dir is what is watched; report, sink and only are filled in
  EmbeddedSetup cluster;
  // scores stand below its run "evaluator"; empty: nowhere
  std::string tensorboard_dir;
  // At the directory.
  absl::Duration look_every = absl::Seconds(1);
};

// Watch is for one thread; the rest is thread-safe.
class EvaluatorTask : public Evaluator {
 public:
  // InvalidArgument: there is no directory to watch.
  static absl::StatusOr<std::unique_ptr<EvaluatorTask>> Start(EvaluatorOptions options);
  ~EvaluatorTask() override;

  using Evaluator::Watch;
  absl::Status Watch(std::function<absl::Status(Coordinator& restored)> score) override;
  // That the job ended with; 0: it has not, or well.
  int exit_code() const;
  // In one line.
  std::string StatusText() const;
  // Returns when the scores reported so far are on the disk. Blocks.
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
  absl::Status damage_;                          // of the last one, if that could not be read
  mutable Mutex mu_;
  CondVar look_;  // nobody rings: Watch waits for the time to pass
  std::optional<int> ended_ DIVVY_GUARDED_BY(mu_);
  std::optional<CheckpointId> last_ DIVVY_GUARDED_BY(mu_);  // scored, or passed over
};

}  // namespace divvy

#endif  // DIVVY_PROGRAM_EVALUATOR_TASK_H_
