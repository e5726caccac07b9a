// A change of the number of parameter servers, while the job goes on: who has to join, and what
// waits. resize.cc has the steps.
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

namespace divvy {

// At most one change is under way. Whoever asked for it is answered exactly once, and every call
// that was deferred is made again exactly once, when the change is over for any reason. Calls
// nobody: answers go through the outbox. Not thread-safe: the coordinator's lock guards it.
class Resizing {
 public:
  // Those that are to join are waited for during `patience` (--ps_timeout). REQUIRES: `outbox`
  // outlives it.
  Resizing(absl::Duration patience, Outbox& outbox) : patience_(patience), outbox_(outbox) {}

  bool is_under_way() const { return goal_ != 0; }
  // The number of servers that there will be. 0: no change is under way.
  int goal() const { return goal_; }
  // Where each server that is to join can be dialled; empty: it has not registered.
  const std::map<int, std::string>& joining() const { return joining_; }
  bool IsJoining(int ps) const { return joining_.count(ps) > 0; }
  bool HaveAllJoined() const;

  // From `servers` to `goal`. `done` is answered when the change is over. REQUIRES: none is under
  // way; goal > 0.
  void Begin(int servers, int goal, absl::Duration now, std::function<void(absl::Status)> done);
  // A server has registered. False: it is not one that is to join.
  bool Admit(int ps, const std::string& address);
  // The call must not meet the old servers any more: it is made again when the change is over.
  // REQUIRES: under way.
  void Defer(Task call) { deferred_.push_back(std::move(call)); }

  // Unavailable, naming it: a server that is to join has not registered in time.
  absl::Status CheckTime(absl::Duration now) const;

  // The number stays, if a change is under way.
  void Cancel(const absl::Status& why);
  // The number stays `servers`. The answer says how to try again: those that have joined for it
  // register again, are refused, and end. REQUIRES: under way.
  void Refuse(int servers, const absl::Status& why);
  // The job has failed: `calls` gets the answer and the deferred calls.
  void FailAll(const absl::Status& error, std::vector<Task>& calls);

  struct Waiting {
    std::function<void(absl::Status)> done;
    std::vector<Task> deferred;
  };
  // The servers have changed. The caller answers, and makes the deferred calls, when the job runs
  // again.
  Waiting Complete();

 private:
  const absl::Duration patience_;
  Outbox& outbox_;
  int goal_ = 0;
  absl::Duration since_;
  std::map<int, std::string> joining_;
  std::function<void(absl::Status)> done_;
  std::vector<Task> deferred_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_RESIZING_H_
