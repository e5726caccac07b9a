// The program's loops other than its ordinary pass: loops over data of which each worker reads its
// own share, loops that end at a given training step, loops whose steps handle the end of the data
// themselves, and two loops at the same time. No later life of the program continues one of them.
#ifndef DIVVY_TESTS_SIM_LOOPS_H_
#define DIVVY_TESTS_SIM_LOOPS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "protocol/messages.h"
#include "tests/sim/program_site.h"
#include "tests/sim/sim_cluster.h"
#include "worker/core/testing/scripted_step_runner.h"

namespace divvy::sim {

// Lives as long as the cluster, over all lives of the program. Not thread-safe: the simulation has
// one thread.
class Loops {
 public:
  // REQUIRES: `config` and `site` outlive this object.
  Loops(const SimConfig& config, ProgramSite& site) : config_(config), site_(site) {}

  // Another life of the program begins: no loop is running.
  void BeginLife(int life);
  // Runs one loop or two, whose steps have tags from `first_tag` to `first_tag + kTags`. Calls
  // `done` when all loops are over, with OK or with the first error. An error that ends the program
  // is reported at once.
  void Run(int64_t first_tag, std::function<void(const Nest&)> value,
           std::function<void(const absl::Status&)> done);
  static constexpr int64_t kTags = 2000;

  // ---- for the workers ----
  static void Define(const SimConfig& config, ScriptedInputOpener& inputs);
  // Whether the step belongs to one of these loops. If so, TagOf has its tag.
  static bool IsOf(const StepCall& call);
  static int64_t TagOf(const StepCall& call);
  // Plays a step's read of its data and appends the moves that follow. Returns false if the data
  // has ended and the step does not handle that. `again`: the step has run before.
  bool Take(int worker, ScriptedInputOpener& inputs, const StepCall& call, bool again,
            std::vector<script::Move>& moves);
  // A worker was asked to open data.
  void OnMake(const MakeResource& make);

  struct Counts {
    int64_t loops = 0, own = 0, own_judged = 0, handled_ends = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Loop {
    RunRequest request;
    absl::Status status;
    bool stopped = false;
    int64_t args = 0;
  };
  Loop Draw(int64_t first_tag);
  void StopSometime(const std::shared_ptr<Loop>& loop);
  void OnOver(const std::shared_ptr<Loop>& loop, const absl::Status& status);
  void Check(const Loop& loop);
  const std::set<ResourceId>& IteratorsOf(const Loop& loop) {
    return made_[{loop.request.source, loop.args}];
  }
  void CheckLeased(const Loop& loop, bool complete);
  void CheckOwn(const Loop& loop);
  bool MayFail() const;

  const SimConfig& config_;
  ProgramSite& site_;
  int life_ = 0;
  int64_t drawn_ = 0;
  uint64_t next_token_ = uint64_t{1} << 40;   // apart from the tokens of the program's other loops
  std::vector<std::shared_ptr<Loop>> loops_;  // running
  int left_ = 0;
  std::function<void(const absl::Status&)> done_;
  // The iterators of this life, by source and the number among the source's arguments.
  std::map<std::pair<std::string, int64_t>, std::set<ResourceId>> made_;
  // For data that each worker reads its own share of: the elements that the worker of each share
  // has taken, by iterator and share index.
  std::map<std::pair<ResourceId, int>, std::vector<int64_t>> taken_;
  std::map<ResourceId, int> shares_;
  Counts counts_;
};

}  // namespace divvy::sim

#endif  // DIVVY_TESTS_SIM_LOOPS_H_
