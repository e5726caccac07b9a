// Tests of the tests: with one rule of the protocol switched off, the explorer must find a
// violation within a few hundred seeds.
#include <algorithm>
#include <iostream>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "base/breakable.h"
#include "gtest/gtest.h"
#include "tests/sim/sim_cluster.h"

namespace divvy::sim {
namespace {

// The explorer's configuration with more zombies, without lost parameter servers, and with re-runs
// that differ from the lost run. A late commit then leaves a visible difference.
SimConfig Rough(uint64_t seed) {
  SimConfig config = ConfigOf(seed);
  config.kill_ps = config.kill_coordinator = config.duplicates = config.drain = config.liar =
      config.lying_ps = false;
  config.loops = config.own_data = config.late_workers = config.colocated = config.large =
      config.tight_memory = config.reads_fail = false;
  config.changing_steps = seed % 2 == 0;
  config.fault_rate = 0.05;
  config.late = 0.02;
  config.num_ps = std::max(config.num_ps, 2);
  return config;
}

// Any re-run may differ from the lost run.
SimConfig WithChangingSteps(uint64_t seed) {
  SimConfig config = Rough(seed);
  config.changing_steps = true;
  config.slow = 0.3;
  return config;
}

// Coordinators that are replaced while they live, with few other faults. So a coordinator and its
// successor give the same session numbers.
SimConfig WithZombieCoordinators(uint64_t seed) {
  SimConfig config;
  config.seed = seed;
  config.rounds = 8;
  config.kill_workers = config.pause_workers = config.cut_links = config.replace_workers = false;
  config.kill_coordinator = config.zombie_coordinator = true;
  config.fault_rate = 0.1;
  return config;
}

// Checkpoints and restores as often as possible.
SimConfig WithCheckpoints(uint64_t seed) {
  SimConfig config = Rough(seed);
  config.checkpoints = config.restore = config.kill_coordinator = true;
  config.zombie_coordinator = config.lose_store = config.changing_steps = false;
  return config;
}

// Parameter servers that come back empty, as often as possible.
SimConfig WithRewinds(uint64_t seed) {
  SimConfig config = Rough(seed);
  config.kill_ps = config.restart_ps = config.replay = true;
  config.changing_steps = config.failing_steps = false;
  config.redo_log_bytes = 256 << 20;
  return config;
}

// In addition few other faults, and a longer program: it often reads during a rewind.
SimConfig WithRewindsAndReads(uint64_t seed) {
  SimConfig config = WithRewinds(seed);
  config.kill_workers = config.pause_workers = config.cut_links = config.replace_workers =
      config.checkpoints = false;
  config.rounds = 20;
  config.fault_rate = 0.1;
  return config;
}

// Coordinators that are killed again and again, beside workers whose commits arrive late.
SimConfig WithAdoptions(uint64_t seed) {
  SimConfig config = Rough(seed);
  config.kill_coordinator = config.restore = true;
  config.zombie_coordinator = config.lose_store = config.changing_steps = config.failing_steps =
      false;
  config.fault_rate = 0.2;
  return config;
}

// In addition a parameter server is lost soon after each adoption.
SimConfig WithAdoptionsAndRewinds(uint64_t seed) {
  SimConfig config = WithAdoptions(seed);
  config.restart_ps = config.replay = config.lose_at_worst = true;
  config.drain = config.store_faults = config.kill_workers = false;
  config.fault_rate = 0.1;
  // The log is large: without checkpoints a full log is given up for good, and a lost server ends
  // the job from then on.
  config.checkpoints = seed % 2 == 0;
  config.redo_log_bytes = 256 << 20;
  return config;
}

// A parameter server is lost when the program has ended and no step needs the server any more.
SimConfig WithALossAtTheEnd(uint64_t seed) {
  SimConfig config = WithRewinds(seed);
  config.lose_at_worst = true;
  config.checkpoints = false;
  config.fault_rate = 0.01;  // low, so that the program ends while faults still happen
  config.num_ps = 1;
  return config;
}

// Steps that read rows.
SimConfig WithRows(uint64_t seed) {
  SimConfig config = Rough(seed);
  config.changing_steps = false;
  config.reads_rows = true;
  config.pipeline_depth = 1;
  return config;
}

// Steps and assigns of the program change the same cells, some at the same time and some in
// sequence, and servers are lost.
SimConfig WithCells(uint64_t seed) {
  SimConfig config = WithRewinds(seed);
  config.cells = config.beside = config.assign_in_steps = true;
  config.create_at_cuts = config.die_loading = false;
  config.num_workers = std::max(config.num_workers, 3);
  config.rounds = 8;
  return config;
}

// Steps run in sequence, and the program makes no calls meanwhile.
SimConfig WithOrderedSteps(uint64_t seed) {
  SimConfig config = WithRewindsAndReads(seed);
  config.cells = config.assign_in_steps = true;
  config.beside = config.die_loading = config.failing_steps = false;
  config.num_workers = 4;
  config.batch = 6;
  config.cell_rate = 0.6;
  config.rounds = 16;
  config.fault_rate = 0.005;  // low: servers are lost just after the program has read
  return config;
}

// In addition the program assigns all the time.
SimConfig WithAssigns(uint64_t seed) {
  SimConfig config = WithOrderedSteps(seed);
  config.beside = true;
  return config;
}

// In addition many messages are late, so that a write is still on its way when a step commits.
SimConfig WithLateWrites(uint64_t seed) {
  SimConfig config = WithAssigns(seed);
  config.slow = 0.3;
  return config;
}

// Steps that read two datasets.
SimConfig WithReaders(uint64_t seed) {
  SimConfig config = Rough(seed);
  config.readers = true;
  config.changing_steps = config.failing_steps = false;
  config.max_step_attempts = 1000;
  config.fault_rate = 0.01;
  config.rounds = 6;
  return config;
}

// Workers that join while others read data that was divided without them.
SimConfig WithOwnData(uint64_t seed) {
  SimConfig config = Rough(seed);
  config.loops = config.own_data = config.late_workers = true;
  config.changing_steps = config.failing_steps = config.power_loss = false;
  config.num_workers = 4;
  config.fault_rate = config.lose = config.duplicate = config.break_stream = config.slow =
      config.late = 0;
  config.rounds = 10;
  return config;
}

// Variables that are created while the checkpoint of a resize is made.
SimConfig WithResizes(uint64_t seed) {
  SimConfig config = Rough(seed);
  config.checkpoints = config.resize = config.only_grow = config.beside = config.create_at_cuts =
      true;
  config.changing_steps = config.disk_faults = false;
  config.rounds = 12;
  config.num_ps = 1;
  config.num_workers = 4;
  config.kill_workers = config.pause_workers = config.cut_links = config.replace_workers = false;
  return config;
}

// The same, while the shards are moved.
SimConfig WithRebalances(uint64_t seed) {
  SimConfig config = WithResizes(seed);
  config.rebalance = true;
  config.num_ps = 3;
  return config;
}

// Servers that are lost whenever they load.
SimConfig WithDeathsWhileLoading(uint64_t seed) {
  SimConfig config = WithRewinds(seed);
  config.die_loading = true;
  config.max_recoveries = 4;
  config.rounds = 12;
  // Few other losses.
  config.fault_rate = 0.01;
  // With one server, all deaths are counted for it.
  config.num_ps = 1;
  // Each life of the coordinator counts from 0, so it must not be replaced.
  config.kill_coordinator = config.drain = config.power_loss = false;
  return config;
}

// A lying worker beside three honest ones, without any loss. Only an error that names the liar may
// be raised or end the job.
SimConfig WithLiar(uint64_t seed) {
  SimConfig config = Rough(seed);
  config.failing_steps = false;
  config.kill_workers = config.pause_workers = config.cut_links = config.replace_workers = false;
  AddLiar(config);
  config.liar_says_failed = true;
  config.liar_says_done = config.liar_says_applied = config.liar_only_refuses = false;
  return config;
}

// The liar refuses every coordinator that attaches it, for some reason.
SimConfig WithRefusals(uint64_t seed) {
  SimConfig config = WithLiar(seed);
  config.liar_only_refuses = true;
  config.restore = config.kill_coordinator = true;
  config.zombie_coordinator = config.lose_store = false;
  return config;
}

SimConfig WithRefusalsThatEndIt(uint64_t seed) {
  SimConfig config = WithRefusals(seed);
  config.liar_may_end_job = true;
  return config;
}

// GPUs that fail, without other losses. The supervisor restarts the workers.
SimConfig WithLostDevices(uint64_t seed) {
  SimConfig config = Rough(seed);
  config.lose_devices = config.breaking_steps = true;
  // Ten attempts of a step take half a minute.
  config.fault_time = absl::Minutes(1);
  config.failing_steps = config.changing_steps = false;
  config.kill_workers = config.pause_workers = config.cut_links = config.replace_workers =
      config.drain = false;
  config.kill_coordinator = config.power_loss = false;
  config.fault_rate = 0.005;
  config.rounds = 6;
  return config;
}

// A table whose rows go, and messages that come twice.
SimConfig WithEvictions(uint64_t seed) {
  SimConfig config = Rough(seed);
  config.changing_steps = config.failing_steps = false;
  config.duplicate = 0.1;
  config.evict_unused = config.evict_below_norm = false;
  config.fault_rate = 0.05;
  AddEvictions(config);
  return config;
}

// In addition servers are lost, so that evictions and steps are replayed.
SimConfig WithEvictionsAndRewinds(uint64_t seed) {
  SimConfig config = WithEvictions(seed);
  config.kill_ps = config.restart_ps = config.replay = true;
  config.redo_log_bytes = 256 << 20;
  return config;
}

// Overlapping steps on each worker, some of which assign.
SimConfig WithPipelines(uint64_t seed) {
  SimConfig config = Rough(seed);
  config.pipeline_depth = 2;
  config.assigning_steps = true;
  config.reads_rows = false;
  config.rounds = 8;
  return config;
}

// Most rules are found within 20 seeds.
constexpr uint64_t kMostSeeds = 300;

// The first seed at which breaking `rule` violates `invariant`; 0 if there is none. With all rules
// in place, this seed and those before it must pass. `older`: a rule whose breach leads to that of
// `rule`; it is broken too.
uint64_t FirstSeedThatFails(Rule rule, SimConfig (*config)(uint64_t seed) = Rough,
                            absl::string_view invariant = "",
                            std::optional<Rule> older = std::nullopt) {
  const auto break_rules = [&](bool broken) {
    SetRuleBroken(rule, broken);
    if (older) SetRuleBroken(*older, broken);
  };
  break_rules(true);
  uint64_t found = 0;
  for (uint64_t seed = 1; seed <= kMostSeeds && found == 0; ++seed) {
    if (const SimResult result = RunSimulation(config(seed));
        !result.violation.ok() && absl::StartsWith(result.violation.message(), invariant)) {
      found = seed;
      std::cout << "seed " << seed << ": " << result.violation << "\n";
    }
  }
  break_rules(false);
  for (uint64_t seed = 1; seed <= found; ++seed) {
    const SimResult result = RunSimulation(config(seed));
    EXPECT_TRUE(result.violation.ok())
        << "with all rules in place, seed " << seed << ": " << result.violation;
  }
  return found;
}

// No mutation uses these configurations.
TEST(MutationTest, SeedsOfRowsAndCellsPass) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    for (const auto config : {WithRows, WithCells}) {
      const SimResult result = RunSimulation(config(seed));
      EXPECT_TRUE(result.violation.ok()) << "seed " << seed << ": " << result.violation;
    }
  }
}

TEST(MutationTest, APsThatDoesNotDedupeIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kDedupe), 0u);
}
TEST(MutationTest, ACommitThatWritesToWhatAPullHasBorrowedIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kLentBlocksDoNotChange), 0u);
}
TEST(MutationTest, APullThatMakesRowsIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kPullsMakeNoRows), 0u);
}
TEST(MutationTest, AnEvictionThatIsAppliedTwiceIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kEvictionsCountOnce, WithEvictions), 0u);
}
TEST(MutationTest, AnAttemptThatCountsIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kAttemptsDoNotCount, WithEvictions, "X22: "), 0u);
}
TEST(MutationTest, AnEvictionThatIsReplayedElsewhereAmongTheStepsIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kReplayKeepsOrder, WithEvictionsAndRewinds, "X22: "), 0u);
}
TEST(MutationTest, AnEvictionThatStepsCommitBesideIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kWritesHoldCommits, WithEvictions, "X22: "), 0u);
}
TEST(MutationTest, APsThatDoesNotCheckTheSessionIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kSessionCheck), 0u);
}
TEST(MutationTest, ACoordinatorThatDoesNotWaitForTheFenceIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kWaitForFence), 0u);
}
TEST(MutationTest, AHorizonWithoutTheStepsInFlightIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kOpenContainsInFlight), 0u);
}
TEST(MutationTest, AWorkerThatCommitsWhileACheckpointIsCutIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kHoldBeforeSnapshot, WithCheckpoints), 0u);
}
TEST(MutationTest, AWorkerThatSaysItIsHeldWhileItCommitsIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kHeldWhenNothingCommits, WithCheckpoints), 0u);
}
TEST(MutationTest, AStepHalfOfWhichIsOfAnotherRunIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kRewindWhenReRunDiffers, WithChangingSteps), 0u);
}
TEST(MutationTest, AProgramThatReadsBeforeAllIsThereAgainIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kReadsWaitForReplay, WithRewindsAndReads), 0u);
}
TEST(MutationTest, ACoordinatorThatAdoptsHalfOfAStepIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kAdoptOnlyWhole, WithAdoptions), 0u);
}
TEST(MutationTest, ACoordinatorThatGoesBackBehindWhatItAdoptedIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kCheckpointAfterAdopting, WithAdoptionsAndRewinds), 0u);
}
TEST(MutationTest, AJobThatIsCalledCompleteWithoutAskingEveryServerIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kSyncBeforeComplete, WithALossAtTheEnd), 0u);
}
TEST(MutationTest, CoordinatorsWhoseSessionsHaveTheNumbersOfTheirSuccessorsAreFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kSessionsOfEpochsDiffer, WithZombieCoordinators), 0u);
}
TEST(MutationTest, AnEndThatIsTakenForThatOfAllDatasetsIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kEndIsOfOneDataset, WithReaders, "X10: "), 0u);
}
TEST(MutationTest, AWorkerThatComesTooLateForItsShareAndIsGivenStepsIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kLateWorkerHasNoPart, WithOwnData, "X8: "), 0u);
}
TEST(MutationTest, DataThatIsCutAnewAfterStepsHaveReadOfItIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kReadDataKeepsItsCut, WithOwnData, "X10: "), 0u);
}
TEST(MutationTest, AHorizonThatDoesNotSayHowFarPassesHaveGotIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kHorizonHasPasses, WithAdoptions), 0u);
}
TEST(MutationTest, AReplayOfStepsInAnotherOrderThanTheProgramsIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kReplayKeepsOrder, WithOrderedSteps, "X9: cell"), 0u);
}
TEST(MutationTest, AWriteOfTheProgramThatStepsCommitBesideIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kWritesHoldCommits, WithAssigns, "X9: cell"), 0u);
}
TEST(MutationTest, AStepThatIsDispatchedBesideAWriteFromBeforeItIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kStepsWaitForWrites, WithLateWrites, "X9: cell"), 0u);
}
TEST(MutationTest, AResizeFromACheckpointThatLacksWhatWasCreatedSinceIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kResizeFromAWholeCut, WithResizes), 0u);
}
TEST(MutationTest, ARebalanceFromACheckpointThatLacksWhatWasCreatedSinceIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kResizeFromAWholeCut, WithRebalances), 0u);
}
TEST(MutationTest, LossesOfServersThatLoadWhichNobodyCountsAreFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kLossWhileLoadingCounts, WithDeathsWhileLoading, "X16: ps "),
            0u);
}
TEST(MutationTest, OneWorkersWordThatEndsTheJobIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kOneWorkerEndsNoJob, WithRefusals,
                               "X16: the job ended with FAILED_PRECONDITION: worker "),
            0u);
}
TEST(MutationTest, OneWorkersWordOfTheDataThatCountsForAllIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kOneWorkerEndsNoJob, WithLiar, "X10: "), 0u);
}
TEST(MutationTest, ASizeThatOneWorkerClaimsAmongOthersWhoDoNotKnowItIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kSizeIsOfMost, WithLiar), 0u);
}
TEST(MutationTest, AnEpochWithoutSenseThatIsStoredIsFound) {
  EXPECT_NE(
      FirstSeedThatFails(Rule::kEpochsArePlausible, WithRefusalsThatEndIt,
                         "X16: DATA_LOSS: the store says that epoch ", Rule::kOneWorkerEndsNoJob),
      0u);
}
TEST(MutationTest, AWorkerThatIsNowhereAndHasAShareOfTheDataIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kPhantomsHaveNoShare, WithLiar, "X10: data is cut for "), 0u);
}
TEST(MutationTest, AnErrorOfAStepThatEndsTheJobIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kStepErrorsAreOfSteps, WithLiar, "X16: the job ended"), 0u);
}
TEST(MutationTest, ALostDeviceThatIsTakenForTheStepsErrorIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kLostDeviceFailsNoStep, WithLostDevices, "X8: "), 0u);
}
TEST(MutationTest, AWorkerThatGoesOnWithoutItsDeviceIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kLostDeviceEndsItsWorker, WithLostDevices, "X16: worker"), 0u);
}
TEST(MutationTest, AStepThatMayBreakTheDevicesOfAllWorkersIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kDeviceLossesAreCounted, WithLostDevices, "X16: step"), 0u);
}
TEST(MutationTest, AStepThatRunsBesideAnAssignOfItsOwnWorkerIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kAssignsAreNotMissed, WithPipelines, "X11: "), 0u);
}
TEST(MutationTest, AStepThatMissesMoreThanTheDepthAllowsIsFound) {
  EXPECT_NE(FirstSeedThatFails(Rule::kDepthCountsCommits, WithPipelines, "X9: "), 0u);
}

}  // namespace
}  // namespace divvy::sim
