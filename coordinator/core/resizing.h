// A change of the number of parameter servers while the job runs, or of where the shards lie
// (rebalance). Keeps the list of servers that have to join and the calls that wait. resize.cc has
// the steps.
#ifndef DIVVY_COORDINATOR_CORE_RESIZING_H_
#define DIVVY_COORDINATOR_CORE_RESIZING_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "base/outbox.h"
#include "coordinator/core/rebalance_schedule.h"

namespace divvy {

// At most one change is under way. When it ends, for any reason, its caller is answered exactly
// once, and every deferred call is made again exactly once. Calls no other part; answers go through
// the outbox. Never blocks. Not thread-safe: the coordinator's lock guards it.
class Resizing {
 public:
  // `patience`: how long joining servers are waited for (--ps_timeout). REQUIRES: `outbox` outlives
  // it.
  Resizing(absl::Duration patience, Outbox& outbox) : patience_(patience), outbox_(outbox) {}

  bool is_under_way() const { return goal_ != 0; }
  RebalanceSchedule& schedule() { return schedule_; }
  // The new number of servers. 0: no change is under way.
  int goal() const { return goal_; }
  // Of a rebalance: where the shards will lie (Arrangement::ps). Empty: it is a resize.
  const std::map<std::string, std::vector<int>>& arrangement() const { return arrangement_; }
  // The address of each server that is to join. Empty: it has not registered yet.
  const std::map<int, std::string>& joining() const { return joining_; }
  bool IsJoining(int ps) const { return joining_.count(ps) > 0; }
  // Whether every server that is to join has registered.
  bool HaveAllJoined() const;

  // Begins a change from `servers` to `goal`. `done` is called when it is over. REQUIRES: no change
  // is under way; goal > 0.
  void Begin(int servers, int goal, absl::Duration now, std::function<void(absl::Status)> done);
  // Begins a rebalance. REQUIRES: no change is under way; `arrangement` has a variable.
  void BeginRebalance(int servers, absl::Duration now,
                      std::map<std::string, std::vector<int>> arrangement,
                      std::function<void(absl::Status)> done);
  // A server has registered. False: the server is not one of those that are to join.
  bool Admit(int ps, const std::string& address);
  // Keeps a call that must not reach the old servers any more. The call is made again when the
  // change is over. REQUIRES: a change is under way.
  void Defer(Task call) { deferred_.push_back(std::move(call)); }

  // Unavailable: a server that is to join has not registered in time; the message names it.
  absl::Status CheckTime(absl::Duration now) const;

  // Ends the change with `why`, if one is under way. The number of servers stays.
  void Cancel(const absl::Status& why);
  // The change ends with `why`, and the number of servers stays `servers`, and the shards stay
  // where they are. The message says how to try again. Servers that have joined for the change
  // register again, are refused, and exit. REQUIRES: a change is under way.
  void Refuse(int servers, const absl::Status& why);
  // The job has failed: moves the answer and the deferred calls to `calls`.
  void FailAll(const absl::Status& error, std::vector<Task>& calls);

  // The calls that a completed change has to answer.
  struct Waiting {
    std::function<void(absl::Status)> done;
    std::vector<Task> deferred;
  };
  // The servers have changed. The caller answers `done` and makes the deferred calls when the job
  // runs again.
  Waiting Complete();

 private:
  const absl::Duration patience_;
  Outbox& outbox_;
  RebalanceSchedule schedule_;
  int goal_ = 0;
  absl::Duration since_;
  std::map<int, std::string> joining_;
  std::map<std::string, std::vector<int>> arrangement_;
  std::function<void(absl::Status)> done_;
  std::vector<Task> deferred_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_RESIZING_H_
