// tools/chaos: many faults, and the exact sum they leave.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/exit_codes.h"
#include "base/random.h"
#include "tests/e2e/chaos.h"
#include "tools/launch/supervisor.h"

ABSL_FLAG(double, minutes, 1, "how long, at most");
ABSL_FLAG(int, kills, 0, "ends earlier, after so many; 0: only when the time is over");
ABSL_FLAG(uint64_t, seed, 0, "of victims, faults and pauses; 0: takes one and prints it");
ABSL_FLAG(int, ps, 3, "parameter servers");
ABSL_FLAG(int, workers, 4, "workers");
ABSL_FLAG(std::vector<std::string>, roles,
          std::vector<std::string>({"worker", "ps", "coordinator"}), "whom faults hit");
ABSL_FLAG(std::string, durability, "", "the job's; empty: its own default");
ABSL_FLAG(std::string, gpus, "",
          "the job's: workers compute there or fail; empty: its own default");
ABSL_FLAG(int64_t, records, 0, "that the steps read, each once in a pass; 0: they read none");
ABSL_FLAG(bool, changes, false,
          "the program assigns and creates variables while its steps run, and the job is resized");
ABSL_FLAG(bool, tls, false, "every task has a certificate");
ABSL_FLAG(bool, liar, false,
          "one more worker, with a certificate of the job, answers anything; with --tls");
ABSL_FLAG(bool, only_kills, false, "no SIGSTOP, no broken connections, no full disks");
ABSL_FLAG(std::string, program, "", "counter_program");
ABSL_FLAG(std::string, divvyctl, "", "divvyctl");
ABSL_FLAG(std::string, directory, "/tmp", "for one small file");

namespace divvy {
namespace {

void Say(const std::string& text) {
  std::printf("chaos: %s\n", text.c_str());
  std::fflush(stdout);
}

ChaosOptions OptionsFromFlags() {
  ChaosOptions options;
  options.program = absl::GetFlag(FLAGS_program);
  options.directory = absl::GetFlag(FLAGS_directory);
  options.num_ps = absl::GetFlag(FLAGS_ps);
  options.num_workers = absl::GetFlag(FLAGS_workers);
  options.durability = absl::GetFlag(FLAGS_durability);
  options.gpus = absl::GetFlag(FLAGS_gpus);
  options.records = absl::GetFlag(FLAGS_records);
  options.changes = absl::GetFlag(FLAGS_changes);
  options.liar = absl::GetFlag(FLAGS_liar);
  options.tls = absl::GetFlag(FLAGS_tls) || options.liar;
  options.divvyctl = absl::GetFlag(FLAGS_divvyctl);
  options.only_kills = absl::GetFlag(FLAGS_only_kills);
  options.faults = 0;
  options.kills = absl::GetFlag(FLAGS_kills);
  options.time = absl::Minutes(absl::GetFlag(FLAGS_minutes));
  options.seed = absl::GetFlag(FLAGS_seed) != 0 ? absl::GetFlag(FLAGS_seed) : EntropySeed();
  options.on_fault = [told = 0](const ChaosResult& so_far) mutable {
    if (so_far.faults() / 50 > told) Say(ToString(so_far));
    told = so_far.faults() / 50;
  };
  return options;
}

int Main() {
  ChaosOptions options = OptionsFromFlags();
  options.roles.clear();
  for (const std::string& name : absl::GetFlag(FLAGS_roles)) {
    const std::optional<Role> role = ChaosRole(name);
    if (!role)
      return Say(absl::StrCat("there is no role \"", name, "\": worker, ps, coordinator")),
             exit_codes::kUsage;
    options.roles.push_back(*role);
  }
  if (options.changes && options.records > 0)
    return Say("--changes goes with steps that read no data: leave out --records"),
           exit_codes::kUsage;
  if (options.changes && options.num_ps < 2)
    return Say("--changes takes a parameter server away: --ps=2 at least"), exit_codes::kUsage;
  Say(absl::StrCat(options.num_ps, " ps, ", options.num_workers, " workers, ",
                   absl::FormatDuration(options.time), ", faults of ",
                   absl::StrJoin(absl::GetFlag(FLAGS_roles), ", "), ", seed ", options.seed));
  const absl::StatusOr<ChaosResult> result = RunChaos(options);
  if (!result.ok())
    return Say(absl::StrCat("seed ", options.seed, ": ", result.status().message())),
           Say("FAILED: 1 violation"), 1;
  Say(ToString(*result));
  Say(absl::StrCat("PASSED: 0 violations; every counter = ", result->steps,
                   " = the steps that were scheduled"));
  return 0;
}

}  // namespace
}  // namespace divvy

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return divvy::Main();
}
