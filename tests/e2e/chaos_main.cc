// tools/chaos: many kills, and the exact sum they leave.
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "base/random.h"
#include "tests/e2e/chaos.h"

ABSL_FLAG(double, minutes, 1, "how long workers are killed");
ABSL_FLAG(uint64_t, seed, 0, "of victims and pauses; 0: takes one and prints it");
ABSL_FLAG(int, ps, 3, "parameter servers");
ABSL_FLAG(int, workers, 4, "workers");
ABSL_FLAG(std::string, program, "", "counter_program");
ABSL_FLAG(std::string, directory, "/tmp", "for one small file");

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  divvy::ChaosOptions options;
  options.program = absl::GetFlag(FLAGS_program);
  options.directory = absl::GetFlag(FLAGS_directory);
  options.num_ps = absl::GetFlag(FLAGS_ps);
  options.num_workers = absl::GetFlag(FLAGS_workers);
  options.kills = 1;
  options.time = absl::Minutes(absl::GetFlag(FLAGS_minutes));
  options.seed = absl::GetFlag(FLAGS_seed) != 0 ? absl::GetFlag(FLAGS_seed) : divvy::EntropySeed();
  options.on_kill = [](int kills) {
    if (kills % 50 == 0) std::printf("%d kills\n", kills), std::fflush(stdout);
  };
  std::printf("chaos: %d ps, %d workers, %g minutes, seed %llu\n", options.num_ps, options.num_workers, absl::GetFlag(FLAGS_minutes),
              static_cast<unsigned long long>(options.seed));
  std::fflush(stdout);
  const absl::StatusOr<divvy::ChaosResult> result = divvy::RunChaos(options);
  if (!result.ok()) {
    std::printf("chaos: seed %llu: %s\n", static_cast<unsigned long long>(options.seed), std::string(result.status().message()).c_str());
    return 1;
  }
  std::printf("chaos: %d kills; every counter = %lld = the steps that finished\n", result->kills, static_cast<long long>(result->steps));
}
