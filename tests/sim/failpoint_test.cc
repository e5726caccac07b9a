// Tests every failpoint of base/failpoint.h: the simulation reaches each, and a process that dies
// there breaks no promise of the protocol.
#include "base/failpoint.h"

#include <algorithm>
#include <array>
#include <iostream>
#include <string>

#include "absl/strings/str_replace.h"
#include "base/random.h"
#include "gtest/gtest.h"
#include "tests/sim/sim_cluster.h"

namespace divvy::sim {
namespace {

// Jobs that reach many failpoints: checkpoints as often as possible, restarts from them, lost
// workers, broken streams, and small blocks of ids.
SimConfig BusyJob(uint64_t seed) {
  SimConfig config = ConfigOf(seed);
  config.num_ps = std::max(config.num_ps, 2);
  config.num_workers = std::max(config.num_workers, 2);
  config.rounds = std::max(config.rounds, 4);
  config.checkpoints = config.restore = config.kill_coordinator = config.restart_ps = true;
  config.zombie_coordinator = config.lose_store = config.kill_ps = config.changing_steps =
      config.duplicates = config.drain = false;
  config.disk_faults = config.store_faults = config.power_loss = config.liar = config.lying_ps =
      false;
  config.id_block = 16;
  config.fault_rate = 0.03;
  return config;
}

constexpr uint64_t kSeeds = 6, kMostSeeds = 60;  // kMostSeeds: for failpoints that few jobs reach

class FailpointTest : public ::testing::TestWithParam<int> {};

TEST_P(FailpointTest, AProcessThatDiesThereCostsNothingThatWasPromised) {
  const Failpoint point = static_cast<Failpoint>(GetParam());
  int64_t killed = 0;
  for (uint64_t seed = 1; seed <= kSeeds || (killed == 0 && seed <= kMostSeeds); ++seed) {
    SimConfig config = BusyJob(seed);
    const int64_t hits = RunSimulation(config).hits[static_cast<size_t>(point)];
    if (hits == 0) continue;
    config.kill_at = point;
    config.kill_at_hit = 1 + static_cast<int64_t>(MixSeeds(seed, static_cast<uint64_t>(point)) %
                                                  static_cast<uint64_t>(hits));
    const SimResult result = RunSimulation(config);
    EXPECT_TRUE(result.violation.ok())
        << "seed " << seed << ", hit " << config.kill_at_hit << ": " << result.violation;
    killed += result.killed_at_points;
  }
  EXPECT_GT(killed, 0) << "no seed reaches " << FailpointName(point);
}

INSTANTIATE_TEST_SUITE_P(
    Each, FailpointTest, ::testing::Range(0, kNumFailpoints),
    [](const ::testing::TestParamInfo<int>& info) {
      return absl::StrReplaceAll(FailpointName(static_cast<Failpoint>(info.param)), {{".", "_"}});
    });

TEST(SimStoreTest, AStoreThatFailsAtAnyChangeEndsTheCoordinatorAndTheNextGoesOn) {
  int64_t coordinators = 0, restores = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SimConfig config = BusyJob(seed);
    config.store_faults = true;
    config.fault_rate = 0.1;
    const SimResult result = RunSimulation(config);
    EXPECT_TRUE(result.violation.ok()) << "seed " << seed << ": " << result.violation;
    coordinators += result.coordinators, restores += result.restores;
  }
  EXPECT_GT(coordinators, 60);
  EXPECT_GT(restores, 20);
}

}  // namespace
}  // namespace divvy::sim
