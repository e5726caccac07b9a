// What the core keeps of a request while block tasks work for it. Internal to this folder.
#ifndef DIVVY_PS_SERVER_CORE_RUNS_H_
#define DIVVY_PS_SERVER_CORE_RUNS_H_

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ps_server/core/block_work.h"
#include "ps_server/core/commit_plan.h"
#include "ps_server/core/parameter_server_core.h"
#include "ps_server/core/read_plan.h"

namespace divvy {

struct ParameterServerCore::CommitRun {
  CommitRequest request;  // without its parts: the plan has them
  ResultCallback<CommitReply> done;
  absl::StatusOr<CommitPlan> plan;
  enum class State : uint8_t { kQueued, kRunning, kSettled } state = State::kQueued;  // under the core's lock
};

struct ParameterServerCore::ReadRun {
  struct Seen {
    uint64_t version = 0;
    bool being_written = false;
  };
  Fence fence;
  ResultCallback<PullReply> done;
  ReadPlan plan;
  std::vector<Seen> at_start;  // of each part
};

// Shards that are being made.
struct ParameterServerCore::CreateRun {
  CreateRun(HeldCreate call, int64_t unit_bytes) : call(std::move(call)), units(unit_bytes) {}
  void Initialize(int64_t unit);

  HeldCreate call;
  std::map<ShardKey, const ShardSpec*> specs;      // of the request: those that did not exist
  ShardTable fresh;                                // made from them
  int64_t bytes = 0;                               // of them
  std::vector<std::pair<Shard*, int64_t>> pieces;  // shard, block
  UnitList units;
  Mutex mu;
  absl::Status error DIVVY_GUARDED_BY(mu);  // the first of a block
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_RUNS_H_
