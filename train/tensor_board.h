// Keras' TensorBoard callback.
#ifndef DIVVY_TRAIN_TENSOR_BOARD_H_
#define DIVVY_TRAIN_TENSOR_BOARD_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "strategy/summary_writer.h"
#include "train/callback.h"

namespace divvy {

// Writes event files that `tensorboard --logdir DIRECTORY` shows. Steps are training steps. The run
// "train" has the means of each report interval and the text "configuration"; an epoch that ended
// before its first report adds its own means. The run "validation" has the metrics of each
// validation under the same names, so TensorBoard draws both in one chart.
//
//   options.callbacks = {std::make_shared<TensorBoard>("/logs/experiment-7")};
//
// Before it trains, Fit returns the file system's error if the directory cannot be written, and
// returns FailedPrecondition if --tensorboard_dir names the same directory: the coordinator already
// writes these points there, and each would appear twice. Later errors are only logged, and
// training continues.
class TensorBoard : public Callback {
 public:
  explicit TensorBoard(std::string directory);
  // REQUIRES: `files` and `clock` outlive the callback.
  TensorBoard(std::string directory, FileSystem& files, const Clock& clock);
  absl::Status OnFitBegin(TrainingRun& run) override;
  absl::Status OnReport(TrainingRun& run) override;
  absl::Status OnEpochEnd(TrainingRun& run) override;

 private:
  // Returns false if no step has ended since the last points of "train".
  bool WriteTrain(TrainingRun& run);

  const std::string directory_;
  SummaryWriter summaries_;
  int64_t last_step_ = 0;  // of the last points in "train"
  bool reported_ = false;  // in this epoch
};

}  // namespace divvy

#endif  // DIVVY_TRAIN_TENSOR_BOARD_H_
