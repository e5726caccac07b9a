// bazel run //bench:pipeline [-- --format=json] [--rounds=7]
//
// The gain from overlapping the steps of one worker (--pipeline_depth): training steps a second of
// mnist_mlp's model (784-512-10, Adam, batches of 64) with depths 1, 2 and 3. Each depth has a
// cluster of its own with 1 parameter server and 1 worker, which are processes of this machine. All
// clusters run at once, and bench/in_turns lets one of them train at a time. This program waits for
// its turn, trains one pass and reports its time.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "bench/mlp_work.h"
#include "divvy.h"

ABSL_FLAG(std::string, turns, "",
          "path of the two FIFOs of bench/in_turns: each line in TURNS.go asks this program to "
          "train a pass, and it writes the seconds and steps to TURNS.done");

namespace divvy::bench {
namespace {

absl::Status Train(Coordinator& coordinator) {
  const std::string turns = absl::GetFlag(FLAGS_turns);
  if (turns.empty())
    return absl::InvalidArgumentError(
        "--turns is missing: this program is run by bench/in_turns (bazel run //bench:pipeline)");
  PrepareMlpImages();
  Trainer trainer(coordinator, MlpModel(), Adam{kMlpLearningRate});
  std::ifstream go(absl::StrCat(turns, ".go"));
  std::ofstream done(absl::StrCat(turns, ".done"));
  for (std::string line; std::getline(go, line);) {
    const absl::Duration begin = Clock::Real().Elapsed();
    RETURN_IF_ERROR(trainer.Fit(MlpData()).status());
    done << absl::ToDoubleSeconds(Clock::Real().Elapsed() - begin) << " " << kMlpBatches
         << std::endl;
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace divvy::bench

DIVVY_PROGRAM(divvy::bench::Train);
