// A program that runs `divvyctl launch` only.
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "tools/launch/launch.h"

ABSL_FLAG(int, ps, 1, "");
ABSL_FLAG(int, workers, 1, "");
ABSL_FLAG(std::string, logs, "", "");
ABSL_FLAG(absl::Duration, chaos, absl::ZeroDuration(), "");
ABSL_FLAG(std::vector<std::string>, chaos_roles, {"worker"}, "");
ABSL_FLAG(uint64_t, seed, 0, "");
ABSL_FLAG(int, max_restarts, 5, "");
ABSL_FLAG(bool, evaluator, false, "");
ABSL_FLAG(bool, usage, false, "");

int main(int argc, char** argv) {
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  divvy::LaunchOptions options;
  options.ps = absl::GetFlag(FLAGS_ps);
  options.workers = absl::GetFlag(FLAGS_workers);
  options.logs = absl::GetFlag(FLAGS_logs);
  options.chaos = absl::GetFlag(FLAGS_chaos);
  options.chaos_roles = absl::GetFlag(FLAGS_chaos_roles);
  options.seed = absl::GetFlag(FLAGS_seed);
  options.max_restarts = absl::GetFlag(FLAGS_max_restarts);
  options.evaluator = absl::GetFlag(FLAGS_evaluator);
  options.usage = absl::GetFlag(FLAGS_usage);
  options.command.assign(words.begin() + 1, words.end());
  return divvy::Launch(options);
}
