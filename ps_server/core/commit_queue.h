// The commits that a parameter server has accepted and not yet answered.
#ifndef DIVVY_PS_SERVER_CORE_COMMIT_QUEUE_H_
#define DIVVY_PS_SERVER_CORE_COMMIT_QUEUE_H_

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "protocol/ids.h"
#include "ps_server/core/writer_queues.h"

namespace divvy {

// A commit waits for its turn at every shard that it writes to (WriterQueues), runs, and is then
// removed. A second request with the same entry waits beside the queues until the first is settled.
//
//   Enter  --TakeReady-->  taken  --Start-->  running  --Finish-->  gone
//                          taken  --Refuse--> gone
//
// `Run` is copied and compared; use a shared pointer. Not thread-safe: the core's lock guards it.
template <typename Run>
class CommitQueue {
 public:
  // Adds a commit that writes to `shards`. REQUIRES: they are variables' shards (slot 0), distinct
  // and not empty.
  void Enter(const Run& run, const std::vector<ShardKey>& shards) {
    turns_.Enter(run, shards);
    ++waiting_;
  }

  bool has_ready() const { return turns_.has_ready(); }
  // The next commit whose turn has come; nullopt: there is none. The caller then calls Start or
  // Refuse.
  std::optional<Run> TakeReady() {
    std::optional<Run> run = turns_.TakeReady();
    if (run) --waiting_;
    return run;
  }
  void Start(const Run& run) { running_.insert(run); }
  // The commit is refused at its turn. REQUIRES: it was taken and not started. `shards` as for
  // Enter.
  void Refuse(const std::vector<ShardKey>& shards) { turns_.Leave(shards); }
  // The commit has been applied. REQUIRES: it is running. `shards` as for Enter.
  void Finish(const Run& run, const std::vector<ShardKey>& shards) {
    running_.erase(run);
    turns_.Leave(shards);
  }

  // `run` waits until the commit of `entry` is settled.
  void AddDuplicate(EntryId entry, const Run& run) { duplicates_[entry].push_back(run); }
  // Removes and returns the requests that wait for `entry`, in the order of arrival.
  std::vector<Run> TakeDuplicates(EntryId entry) {
    const auto found = duplicates_.find(entry);
    if (found == duplicates_.end()) return {};
    std::vector<Run> waiting = std::move(found->second);
    duplicates_.erase(found);
    return waiting;
  }

  // Whether a running commit writes to this shard or to one of its slots.
  bool IsBeingWritten(ShardKey shard) const {
    const Run* const first = turns_.First(ShardKey{shard.variable, 0, shard.part});
    return first != nullptr && running_.count(*first) > 0;
  }
  // The running commits, in no particular order.
  const std::set<Run>& running() const { return running_; }
  // Number of commits that wait for their turn.
  size_t waiting() const { return waiting_; }
  // Whether no commit waits or runs. Commits that were taken but neither started nor refused do not
  // count, nor do duplicates that wait for the first request's answer.
  bool is_idle() const { return running_.empty() && waiting_ == 0; }

 private:
  WriterQueues<Run> turns_;
  std::set<Run> running_;
  size_t waiting_ = 0;
  std::map<EntryId, std::vector<Run>> duplicates_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_COMMIT_QUEUE_H_
