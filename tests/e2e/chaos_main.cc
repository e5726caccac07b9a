// tools/chaos: runs a job under many faults and checks its exact sum.
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
ABSL_FLAG(int, kills, 0, "end after this many kills; 0: only when --minutes have passed");
ABSL_FLAG(uint64_t, seed, 0, "seed of victims, faults and pauses; 0: a random one, printed");
ABSL_FLAG(int, ps, 3, "parameter servers");
ABSL_FLAG(int, workers, 4, "workers");
ABSL_FLAG(std::vector<std::string>, roles,
          std::vector<std::string>({"worker", "ps", "coordinator"}), "roles whose tasks are hit");
ABSL_FLAG(std::string, durability, "", "--durability of the job; empty: the flag's default");
ABSL_FLAG(std::string, gpus, "",
          "--gpus of the job; workers must then compute on GPUs; empty: the flag's default");
ABSL_FLAG(int64_t, records, 0, "records that the steps read, each once in a pass; 0: no data");
ABSL_FLAG(bool, changes, false, "assign and create variables while steps run, and resize the job");
ABSL_FLAG(
    bool, keys, false,
    "write to rows of dynamic tables, which grow and forget; without --changes and --records");
ABSL_FLAG(bool, tls, false, "give every task a certificate");
ABSL_FLAG(bool, liar, false,
          "add a worker with a certificate of the job that sends false messages; implies --tls");
ABSL_FLAG(bool, only_kills, false, "no pauses, no broken connections, no full disks");
ABSL_FLAG(std::string, program, "", "counter_program");
ABSL_FLAG(std::string, divvyctl, "", "divvyctl");
ABSL_FLAG(std::string, directory, "/tmp", "directory for one small file");

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
  options.keys = absl::GetFlag(FLAGS_keys);
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
      return Say(absl::StrCat("--roles: unknown role \"", name, "\"; use worker, ps, coordinator")),
             exit_codes::kUsage;
    options.roles.push_back(*role);
  }
  if (options.changes && options.records > 0)
    return Say("--changes needs steps that read no data: leave out --records"), exit_codes::kUsage;
  if (options.changes && options.num_ps < 2)
    return Say("--changes removes a parameter server: use --ps=2 or more"), exit_codes::kUsage;
  if (options.keys && (options.changes || options.records > 0))
    return Say("--keys has steps of its own: leave out --changes and --records"),
           exit_codes::kUsage;
  Say(absl::StrCat(options.num_ps, " ps, ", options.num_workers, " workers, ",
                   absl::FormatDuration(options.time), ", faults of ",
                   absl::StrJoin(absl::GetFlag(FLAGS_roles), ", "), ", seed ", options.seed));
  const absl::StatusOr<ChaosResult> result = RunChaos(options);
  if (!result.ok())
    return Say(absl::StrCat("seed ", options.seed, ": ", result.status().message())),
           Say("FAILED: 1 violation"), 1;
  Say(ToString(*result));
  if (options.keys)
    Say(absl::StrCat("every row of the tables is as the finished steps say; gone: ",
                     result->small_rows_gone, " small rows, ", result->old_rows_gone, " old rows"));
  Say(absl::StrCat("PASSED: 0 violations; every counter is ", result->steps,
                   ", the number of scheduled steps"));
  return 0;
}

}  // namespace
}  // namespace divvy

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return divvy::Main();
}
