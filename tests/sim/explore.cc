// bazel run //tests/sim:explore -- --seeds=N --from=S [--minutes=M] [--trace]
//
// Runs the simulation over the seeds S, S + 1, ... and stops at the first violation. It prints the
// command that replays that seed. For long runs, --minutes sets a time instead of a number of
// seeds, and --keep_going reports every violation without stopping. --with=cells,max_recoveries=4
// sets fields of SimConfig, whatever the seed draws.
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "tests/sim/sim_cluster.h"

ABSL_FLAG(uint64_t, seeds, 500, "how many");
ABSL_FLAG(uint64_t, from, 1, "the first");
ABSL_FLAG(double, minutes, 0, "run for this long, whatever --seeds says; 0: off");
ABSL_FLAG(bool, trace, false, "print the trace of each seed");
ABSL_FLAG(bool, keep_going, false, "continue after a violation");
ABSL_FLAG(std::vector<std::string>, with, {}, "fields of SimConfig to turn on, or field=number");
ABSL_FLAG(std::vector<std::string>, without, {}, "fields of SimConfig to turn off");

namespace {

using divvy::sim::SimConfig;

bool Set(SimConfig& config, const std::string& name, bool value) {
  if (name == "liar" && value) return divvy::sim::AddLiar(config), true;
  if (name == "evictions" && value) return divvy::sim::AddEvictions(config), true;
  if (name == "lying_ps" && value) return divvy::sim::AddLyingPs(config), true;
  static const std::vector<std::pair<std::string, bool SimConfig::*>> fields = {
      {"cells", &SimConfig::cells},
      {"table", &SimConfig::table},
      {"table_gradients", &SimConfig::table_gradients},
      {"evict_below_norm", &SimConfig::evict_below_norm},
      {"beside", &SimConfig::beside},
      {"slow_work", &SimConfig::slow_work},
      {"pause_ps", &SimConfig::pause_ps},
      {"assign_in_steps", &SimConfig::assign_in_steps},
      {"create_at_cuts", &SimConfig::create_at_cuts},
      {"slots_on_demand", &SimConfig::slots_on_demand},
      {"die_loading", &SimConfig::die_loading},
      {"resize", &SimConfig::resize},
      {"rebalance", &SimConfig::rebalance},
      {"checkpoints", &SimConfig::checkpoints},
      {"restore", &SimConfig::restore},
      {"kill_ps", &SimConfig::kill_ps},
      {"restart_ps", &SimConfig::restart_ps},
      {"replay", &SimConfig::replay},
      {"kill_coordinator", &SimConfig::kill_coordinator},
      {"zombie_coordinator", &SimConfig::zombie_coordinator},
      {"lose_store", &SimConfig::lose_store},
      {"duplicates", &SimConfig::duplicates},
      {"drain", &SimConfig::drain},
      {"changing_steps", &SimConfig::changing_steps},
      {"failing_steps", &SimConfig::failing_steps},
      {"lose_devices", &SimConfig::lose_devices},
      {"breaking_steps", &SimConfig::breaking_steps},
      {"assigning_steps", &SimConfig::assigning_steps},
      {"off_grid", &SimConfig::off_grid},
      {"suspend", &SimConfig::suspend},
      {"read_only_steps", &SimConfig::read_only_steps},
      {"readers", &SimConfig::readers},
      {"stop_runs", &SimConfig::stop_runs},
      {"loops", &SimConfig::loops},
      {"own_data", &SimConfig::own_data},
      {"late_workers", &SimConfig::late_workers},
      {"colocated", &SimConfig::colocated},
      {"large", &SimConfig::large},
      {"tight_memory", &SimConfig::tight_memory},
      {"reads_fail", &SimConfig::reads_fail},
      {"long_steps", &SimConfig::long_steps},
      {"named_job", &SimConfig::named_job},
      {"disk_faults", &SimConfig::disk_faults},
      {"store_faults", &SimConfig::store_faults},
      {"power_loss", &SimConfig::power_loss},
      {"lose_at_worst", &SimConfig::lose_at_worst},
      {"learn_addresses", &SimConfig::learn_addresses},
      {"liar", &SimConfig::liar},
      {"lying_ps", &SimConfig::lying_ps},
      {"liar_says_done", &SimConfig::liar_says_done},
      {"liar_says_failed", &SimConfig::liar_says_failed},
      {"liar_only_refuses", &SimConfig::liar_only_refuses},
  };
  static const std::vector<std::pair<std::string, int SimConfig::*>> numbers = {
      {"max_recoveries=", &SimConfig::max_recoveries},
      {"max_step_attempts=", &SimConfig::max_step_attempts},
      {"replicas=", &SimConfig::replicas},
      {"pipeline_depth=", &SimConfig::pipeline_depth},
  };
  for (const auto& [field, member] : fields) {
    if (field == name) return config.*member = value, true;
  }
  for (const auto& [field, member] : numbers) {
    if (absl::StartsWith(name, field))
      return config.*member = std::stoi(name.substr(field.size())), true;
  }
  std::fprintf(stderr, "--with, --without: SimConfig has no field %s here\n", name.c_str());
  return false;
}

// The flags --with and --without as they were given.
std::string FieldsSet() {
  const auto text = [](absl::string_view flag, const std::vector<std::string>& fields) {
    return fields.empty() ? "" : absl::StrCat(" --", flag, "=", absl::StrJoin(fields, ","));
  };
  return text("with", absl::GetFlag(FLAGS_with)) + text("without", absl::GetFlag(FLAGS_without));
}

}  // namespace

int main(int argc, char** argv) {
  using namespace divvy;
  absl::ParseCommandLine(argc, argv);
  const absl::Duration began = Clock::Real().Elapsed(),
                       length = absl::Minutes(absl::GetFlag(FLAGS_minutes));
  int64_t checkpoints = 0, restores = 0, power = 0, rewinds = 0, too_often = 0;
  absl::Duration longest;
  int64_t steps = 0, reruns = 0, faults = 0, lost = 0, failed = 0, events = 0, violations = 0;
  uint64_t seed = absl::GetFlag(FLAGS_from);
  const uint64_t end = seed + absl::GetFlag(FLAGS_seeds);
  for (; length > absl::ZeroDuration() ? Clock::Real().Elapsed() - began < length : seed < end;
       ++seed) {
    sim::SimConfig config = sim::ConfigOf(seed);
    config.trace = absl::GetFlag(FLAGS_trace);
    for (const std::string& name : absl::GetFlag(FLAGS_with)) {
      if (!Set(config, name, true)) return 2;
    }
    for (const std::string& name : absl::GetFlag(FLAGS_without)) {
      if (!Set(config, name, false)) return 2;
    }
    const sim::SimResult result = sim::RunSimulation(config);
    for (const std::string& line : result.trace) std::printf("%s\n", line.c_str());
    steps += result.finished_steps, reruns += result.reruns, faults += result.faults,
        lost += result.job_lost, failed += result.failed_steps, events += result.events,
        checkpoints += result.checkpoints, restores += result.restores,
        power += result.power_losses, rewinds += result.rewinds,
        longest = std::max(longest, result.longest_recovery), too_often += result.rewound_too_often;
    if (result.violation.ok()) continue;
    ++violations;
    std::printf(
        "seed %llu: %s\n  replay: bazel run //tests/sim:explore -- --seeds=1 --trace "
        "--from=%llu%s\n",
        static_cast<unsigned long long>(seed), result.violation.ToString().c_str(),
        static_cast<unsigned long long>(seed), FieldsSet().c_str());
    std::fflush(stdout);
    if (!absl::GetFlag(FLAGS_keep_going)) return 1;
  }
  std::printf(
      "%llu seeds, %s: %lld events, %lld steps finished, %lld re-runs, %lld batches raised an "
      "error, %lld faults, %lld jobs ended with a lost ps; "
      "%lld checkpoints, %lld restores, %lld power losses, %lld rewinds, longest recovery %s; "
      "%lld that a liar made rewind too often; "
      "%s\n",
      static_cast<unsigned long long>(seed - absl::GetFlag(FLAGS_from)),
      violations == 0 ? "no violation" : absl::StrCat(violations, " violations").c_str(),
      static_cast<long long>(events), static_cast<long long>(steps), static_cast<long long>(reruns),
      static_cast<long long>(failed), static_cast<long long>(faults), static_cast<long long>(lost),
      static_cast<long long>(checkpoints), static_cast<long long>(restores),
      static_cast<long long>(power), static_cast<long long>(rewinds),
      absl::FormatDuration(longest).c_str(), static_cast<long long>(too_often),
      absl::FormatDuration(Clock::Real().Elapsed() - began).c_str());
  return violations == 0 ? 0 : 1;
}
