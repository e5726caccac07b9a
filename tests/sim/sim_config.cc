#include <algorithm>

#include "base/random.h"
#include "tests/sim/sim_cluster.h"

namespace divvy::sim {
namespace {

// Calls of the program beside its steps. Each Draw function has a random generator of its own, so a
// new draw does not change the others.
void DrawProgram(SimConfig& config) {
  Random random(MixSeeds(config.seed, 43));
  config.cells = random.Chance(0.4);
  config.beside = random.Chance(0.4);
  config.assign_in_steps = config.cells && config.beside && random.Chance(0.3);
  config.create_at_cuts = config.beside && config.resize;
  config.slots_on_demand = random.Chance(0.25);
  config.die_loading = config.kill_ps && config.restart_ps && config.replay && random.Chance(0.3);
  if (config.die_loading) config.max_recoveries = 3 + static_cast<int>(random.Below(8));
  config.pause_ps = random.Chance(0.2);
}

void DrawLimits(SimConfig& config) {
  Random random(MixSeeds(config.seed, 44));
  config.slow_work = random.Chance(0.2);
  config.off_grid = random.Chance(0.5);
  config.suspend = random.Chance(0.2);
  config.read_only_steps = random.Chance(0.3);
  config.stop_runs = random.Chance(0.3);
  config.readers = random.Chance(0.4);
  if (random.Chance(0.2)) config.replicas = 2;
  config.long_steps = random.Chance(0.15);
  if (config.long_steps) config.step_deadline = absl::Seconds(6);
  if (random.Chance(0.15)) config.max_step_attempts = 3 + static_cast<int>(random.Below(6));
}

// Further data that the program reads, workers that start late, and variables of special sizes and
// places.
void DrawMore(SimConfig& config) {
  Random random(MixSeeds(config.seed, 47));
  config.loops = random.Chance(0.4);
  const bool may_replay = (config.kill_ps && config.restart_ps && config.replay) ||
                          config.changing_steps || config.power_loss;
  // A replayed step may read another element of such data than at its first run.
  config.own_data = config.loops && !may_replay && random.Chance(0.7);
  config.late_workers = random.Chance(0.25);
  config.colocated = random.Chance(0.3);
  config.large = random.Chance(0.15);
  if (config.large && config.commit_buffer_bytes > 0) config.commit_buffer_bytes = 40'000;
  config.tight_memory = config.beside && random.Chance(0.4);
  config.reads_fail = config.disk_faults && random.Chance(0.5);
}

void DrawTable(SimConfig& config) {
  Random random(MixSeeds(config.seed, 52));
  config.table = random.Chance(0.4);
  config.admit_after = 1 + static_cast<int64_t>(random.Below(3));
  config.admit_by_filter = random.Chance(0.3);
  config.table_gradients = random.Chance(0.5);
  if (config.table && random.Chance(0.4)) AddEvictions(config);
}

// How the gradients of "late" travel.
void DrawWire(SimConfig& config) {
  Random random(MixSeeds(config.seed, 51));
  constexpr WireFormat kFormats[] = {WireFormat::kExact, WireFormat::kBFloat16,
                                     WireFormat::kBFloat16Random};
  config.late_wire = kFormats[random.Below(3)];
}

// GPUs that fail.
void DrawDevices(SimConfig& config) {
  Random random(MixSeeds(config.seed, 50));
  config.lose_devices = random.Chance(0.15);
  config.breaking_steps = config.lose_devices && random.Chance(0.3);
}

// A lying worker or a lying parameter server. A step that the worker does not report returns to the
// queue when its deadline has passed.
void DrawLiar(SimConfig& config) {
  Random random(MixSeeds(config.seed, 45));
  config.liar = random.Chance(0.15);
  if (config.liar) AddLiar(config);
  if (!config.liar && random.Chance(0.1)) AddLyingPs(config);
}

}  // namespace

void AddEvictions(SimConfig& config) {
  Random random(MixSeeds(config.seed, 53));
  config.table = true;
  if (!config.Evicts()) {
    config.evict_below_norm = random.Chance(0.4);
    config.evict_unused = config.evict_below_norm ? 0 : 1 + static_cast<int>(random.Below(2));
  }
  // With a filter it is open which rows are unused (Cluster::CheckTableRows).
  if (config.evict_unused > 0) config.admit_by_filter = false;
  config.rounds += 6;
  config.fault_time = absl::Minutes(5);
  config.fault_rate /= 8;
}

// A false report that a step has finished is accepted. A later life that asks the servers finds
// that it was not applied. So with `liar_says_done` no state is loaded or replayed. With
// `liar_says_applied` a step that is falsely called half applied can be taken back only with a redo
// log.
void AddLiar(SimConfig& config) {
  Random random(MixSeeds(config.seed, 46));
  config.liar = true;
  config.lying_ps = false;
  config.liar_says_done = random.Chance(0.3);
  config.liar_says_failed = random.Chance(0.3);
  config.liar_says_applied = !config.liar_says_done && random.Chance(0.3);
  config.liar_only_refuses = random.Chance(0.1);
  config.num_workers = std::max(config.num_workers, 3);
  config.step_deadline = absl::Seconds(6);
  config.max_step_attempts = config.max_recoveries = 1000;
  config.changing_steps = config.die_loading = config.duplicates = false;
  config.own_data = false;  // the share of the liar would never be read
  if (config.liar_says_done)
    config.kill_coordinator = config.kill_ps = config.power_loss = config.replay =
        config.read_only_steps = false;
  if (config.liar_says_applied)
    config.kill_coordinator = config.power_loss = config.lose_at_worst = false,
    config.replay = true, config.redo_log_bytes = 256 << 20;
}

// The job continues, or ends with an error that names the server. Then the server and the program
// are restarted. The values of the state cannot be judged, only that the job comes to its end.
void AddLyingPs(SimConfig& config) {
  config.lying_ps = config.kill_coordinator = true;
  config.liar = config.resize = config.zombie_coordinator = config.lose_store = config.power_loss =
      config.duplicates = false;
  config.changing_steps = config.failing_steps = config.die_loading = config.learn_addresses =
      config.disk_faults = config.store_faults = false;
  config.tight_memory = config.lose_devices = config.breaking_steps = false;
  config.max_step_attempts = config.max_recoveries = 1000;
  config.step_deadline = absl::Seconds(6);
}

SimConfig ConfigOf(uint64_t seed) {
  Random random(MixSeeds(seed, 42));
  SimConfig config;
  config.seed = seed;
  config.num_ps = 1 + static_cast<int>(random.Below(3));
  config.num_workers = 1 + static_cast<int>(random.Below(4));
  config.num_variables = 1 + static_cast<int>(random.Below(4));
  config.rounds = 2 + static_cast<int>(random.Below(5));
  const bool calm = random.Chance(0.1);
  const auto rate = [&](double most) {
    return calm || random.Chance(0.3) ? 0 : most * random.Uniform();
  };
  config.lose = rate(0.03);
  config.duplicate = rate(0.1);
  config.break_stream = rate(0.01);
  config.slow = rate(0.2);
  config.fault_rate = rate(0.05);
  config.failing_steps = random.Chance(0.3);
  config.changing_steps = random.Chance(0.15);
  config.kill_ps = random.Chance(0.1);
  config.restart_ps = random.Chance(0.7);
  config.kill_coordinator = random.Chance(0.3);
  config.zombie_coordinator = random.Chance(0.5);
  config.lose_store = random.Chance(0.3);
  config.named_job = random.Chance(0.5);
  config.drain = random.Chance(0.3);
  config.duplicates = random.Chance(0.15);
  config.learn_addresses = random.Chance(0.3);
  if (random.Chance(0.5)) config.commit_buffer_bytes = 2'000;
  config.late = rate(0.005);
  if (random.Chance(0.5)) config.id_block = 4 + random.Below(60);
  config.checkpoints = random.Chance(0.6);
  config.restore = random.Chance(0.8);
  config.disk_faults = random.Chance(0.3);
  config.power_loss = config.kill_coordinator && random.Chance(0.3);
  config.replay = random.Chance(0.8);
  if (config.replay && random.Chance(0.5)) config.kill_ps = config.restart_ps = true;
  if (random.Chance(0.5))
    config.redo_log_bytes = 10'000 + static_cast<int64_t>(random.Below(40'000));
  config.resize = config.checkpoints && random.Chance(0.25);
  config.lose_at_worst = config.replay && config.restart_ps && random.Chance(0.2);
  config.store_faults = config.kill_coordinator && random.Chance(0.3);
  if (random.Chance(0.3)) config.pipeline_depth = 2 + static_cast<int>(random.Below(2));
  config.reads_rows = random.Chance(0.3);
  config.assigning_steps = random.Chance(0.3);
  DrawProgram(config);
  DrawLimits(config);
  DrawMore(config);
  DrawDevices(config);
  DrawWire(config);
  DrawTable(config);
  DrawLiar(config);
  return config;
}

}  // namespace divvy::sim
