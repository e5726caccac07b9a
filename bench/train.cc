// bazel run //bench:train [-- --format=json]
//
// mnist_mlp's model (784-512-10, Adam, batches of 64) on 2 parameter servers and 2 workers, which
// are processes of this machine. Each training step is a scheduled step. Run by `divvyctl launch`.
// The ceiling, which the coordinator's process measures in turn with the training: the same
// arithmetic in one process, OpenBLAS on all cores.
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "bench/mlp_work.h"
#include "bench/rounds.h"
#include "divvy.h"

ABSL_FLAG(std::string, format, "table", "table or json");
ABSL_FLAG(int, rounds, 7, "rounds; figure and ceiling run once in each");

namespace divvy::bench {
namespace {

void Show(const Comparison& comparison) {
  const int64_t trained = int64_t{kMlpExamples} * (absl::GetFlag(FLAGS_rounds) + 1);
  if (absl::GetFlag(FLAGS_format) != "json") {
    Print(comparison, {"examples/s"});
    absl::PrintF("%d examples trained\n", trained);
    return;
  }
  absl::PrintF(
      "{\"bench\": \"train\", \"examples_per_s\": %.0f, \"direct_examples_per_s\": %.0f, "
      "\"ratio\": %.3f, \"examples\": %d}\n",
      comparison.rate, comparison.ceiling_rate, comparison.ratio, trained);
}

absl::Status Train(Coordinator& coordinator) {
  PrepareMlpImages();
  Trainer trainer(coordinator, MlpModel(), Adam{kMlpLearningRate});
  DirectMlp direct(kMlpBatch, kMlpPixels, kMlpHidden, kMlpClasses, kMlpLearningRate);
  absl::Status status;
  const Contender figure{"2 workers, 2 ps",
                         [&] { status.Update(trainer.Fit(MlpData()).status()); }};
  const Contender ceiling{"the same arithmetic in one process",
                          [&] { TrainMlpDirectly(direct, NumCores()); }};
  const Comparison comparison = Compare(figure, ceiling, kMlpExamples, absl::GetFlag(FLAGS_rounds));
  RETURN_IF_ERROR(status);
  Show(comparison);
  std::fflush(stdout);
  return absl::OkStatus();
}

}  // namespace
}  // namespace divvy::bench

DIVVY_PROGRAM(divvy::bench::Train);
