// bazel run //bench:train [-- --format=json]
//
// mnist_mlp's model (784-512-10, Adam, batches of 64) on 2 parameter servers and 2 workers, which
// are processes of this machine. Each training step is a scheduled step. Run by `divvyctl launch`.
// The ceiling, which the coordinator's process measures in turn with the training: the same
// arithmetic in one process, OpenBLAS on all cores.
#include "base/process.h"
#include "base/status_macros.h"
#include "bench/mlp_work.h"
#include "bench/rounds.h"
#include "divvy.h"

namespace divvy::bench {
namespace {

absl::Status Train(Coordinator& coordinator) {
  PrepareMlpImages();
  Trainer trainer(coordinator, MlpModel(), Adam{kMlpLearningRate});
  DirectMlp direct(kMlpBatch, kMlpPixels, kMlpHidden, kMlpClasses, kMlpLearningRate);
  absl::Status status;
  const Contender figure{"2 workers, 2 ps",
                         [&] { status.Update(trainer.Fit(MlpData()).status()); }};
  const Contender ceiling{"the same arithmetic in one process",
                          [&] { TrainMlpDirectly(direct, NumCores()); }};
  const Comparison comparison = Compare(figure, ceiling, kMlpExamples);
  RETURN_IF_ERROR(status);
  // bench/usage.py reads the number of examples.
  Show("train", comparison, {"examples/s"}, {{"examples_trained", kMlpExamples * (Rounds() + 1)}});
  return absl::OkStatus();
}

}  // namespace
}  // namespace divvy::bench

DIVVY_PROGRAM(divvy::bench::Train);
