// bazel run //bench:mlp [-- --format=json]
//
// Examples a second of mnist_mlp's model (784-512-10, Adam, batches of 64), embedded with one
// worker and data in memory, beside the same arithmetic written straight down (bench/direct_mlp.h):
// with OpenBLAS' own threads, and on one thread, which is faster where others need the cores. The
// aim is 0.95 of the better: the rest is what copies to and from the parameter server, the tape and
// scheduling may cost.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/flags/parse.h"
#include "absl/strings/str_format.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "bench/mlp_work.h"
#include "bench/rounds.h"
#include "divvy.h"
#include "program/main.h"

namespace divvy::bench {
namespace {

absl::Status Measure() {
  PrepareMlpImages();
  EmbeddedOptions options;
  options.num_ps = 1;
  options.num_workers = 1;
  ASSIGN_OR_RETURN(std::unique_ptr<Coordinator> coordinator, StartEmbedded(options));
  Trainer trainer(*coordinator, MlpModel(), Adam{kMlpLearningRate});
  DirectMlp direct(kMlpBatch, kMlpPixels, kMlpHidden, kMlpClasses, kMlpLearningRate);
  DirectMlp direct_too = direct;
  absl::Status status;
  double loss = 0, direct_loss = 0;
  const auto fit = [&] {
    const auto metrics = trainer.Fit(MlpData());
    status.Update(metrics.status());
    if (metrics.ok()) loss = metrics->at("loss");
  };
  const Contender figure{"embedded, 1 worker, 1 ps", fit};
  const Contender one_thread{"directly, on one thread", [&] { TrainMlpDirectly(direct_too, 1); }};
  const Contender ceiling{"the same arithmetic on OpenBLAS",
                          [&] { direct_loss = TrainMlpDirectly(direct, NumCores()); }};
  const std::vector<Comparison> comparisons =
      CompareAll({figure, one_thread}, ceiling, kMlpExamples);
  RETURN_IF_ERROR(status);
  Show("mlp", comparisons[0], {"examples/s"},
       {{"of_one_thread", TimesAsFast(comparisons[1], comparisons[0])},
        {"loss", loss},
        {"ceiling_loss", direct_loss}});
  Show("mlp", comparisons[1], {"examples/s"});
  ShowPeakMemory();
  return absl::OkStatus();
}

int Main() {
  ShowText(absl::StrFormat(
      "%d-%d-%d, Adam, %d batches of %d a run, %d cores; medians of %d rounds in turns", kMlpPixels,
      kMlpHidden, kMlpClasses, kMlpBatches, kMlpBatch, NumCores(), Rounds()));
  const absl::Status status = Measure();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace divvy::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return divvy::bench::Main();
}
