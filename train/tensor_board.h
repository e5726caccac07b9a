// Keras' TensorBoard callback.
#ifndef DIVVY_TRAIN_TENSOR_BOARD_H_
#define DIVVY_TRAIN_TENSOR_BOARD_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "strategy/summary_writer.h"
#include "train/callback.h"

namespace divvy {

// Writes event files that `tensorboard --logdir DIRECTORY` shows; steps are training steps. In the
// run "train": the means of each report interval, and the text "configuration"; at an epoch's end
// those of the epoch if it ended before its first report. In the run "validation": each
// validation's metrics, under the same names, so that TensorBoard draws both in one picture.
//
//   options.callbacks = {std::make_shared<TensorBoard>("/logs/experiment-7")};
//
// Fit gives, at its beginning, the file system's error where nothing can be written, and
// FailedPrecondition where --tensorboard_dir names the same directory: the chief then draws these
// points there by itself, and each would stand there twice. Later errors are logged and training
// goes on: it is worth more than its curves.
class TensorBoard : public Callback {
 public:
  explicit TensorBoard(std::string directory);
  // REQUIRES: both outlive it
  TensorBoard(std::string directory, FileSystem& files, const Clock& clock);
  absl::Status OnFitBegin(TrainingRun& run) override;
  absl::Status OnReport(TrainingRun& run) override;
  absl::Status OnEpochEnd(TrainingRun& run) override;

 private:
  bool WriteTrain(TrainingRun& run);  // whether there was something to write

  const std::string directory_;
  SummaryWriter summaries_;
  int64_t last_step_ = 0;  // that has points in "train"
  bool reported_ = false;  // in this epoch
};

}  // namespace divvy

#endif  // DIVVY_TRAIN_TENSOR_BOARD_H_
