// What has been done since the state that a rewind goes back to: run again, it makes the state that
// was lost.
#ifndef DIVVY_COORDINATOR_CORE_REDO_LOG_H_
#define DIVVY_COORDINATOR_CORE_REDO_LOG_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cluster/horizon.h"
#include "cluster/ids.h"
#include "cluster/messages.h"
#include "tensor/nest.h"

namespace divvy {

// Every entry since the base, which is the newest committed checkpoint, or the empty state that the
// job began with: training steps, direct writes, and the shards of variables and slots that were
// made. Read-only steps are not in it; a step that failed or was cancelled leaves it. Entries come
// in the order of their ids. They are run again in an order that keeps each "finished before began"
// (replay_order.h): for that the log numbers them as they finish.
//
// In memory, and bounded: at half of its bounds a checkpoint is wanted, full it takes no new entry
// until one has been committed. An entry that comes when it is not full may carry it beyond by its
// own size.
//
// Pure; not thread-safe.
class RedoLog {
 public:
  static constexpr int64_t kMaxEntries = 4'000'000;

  // A step as it is dispatched again: the same input gives the same writes.
  struct Step {
    std::string function;
    Nest args;
    std::vector<InputLease> inputs;
    std::vector<std::shared_ptr<const MakeResource>> iterators;  // that its args name
    int64_t ordinal = 0;
    double learning_rate_scale = 1;
    int worker = -1;  // that ran it: it reads forward there
  };
  struct Write {
    std::map<int, std::vector<CommitPart>> parts;  // by ps
  };
  struct Entry {
    EntryId id;
    int64_t bytes = 0;
    bool gone = false;                 // failed or cancelled
    uint64_t begun = 0;                // finishes() when it began: those numbers come before it
    uint64_t finished = 0;             // its own number; 0: it has not finished
    std::shared_ptr<const Step> step;  // null while the step is open
    std::shared_ptr<const Write> write;
  };

  // REQUIRES: max_bytes > 0.
  explicit RedoLog(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // What a step's entry is charged with.
  static int64_t BytesOf(const std::string& function, const Nest& args, size_t inputs);

  // REQUIRES: each id is above those before it.
  void OpenStep(EntryId id, int64_t bytes);
  void AddWrite(EntryId id, Write write);
  // The open step has finished: from here on it is run again after a rewind. `begun`: what
  // finishes() was when its last attempt began.
  void FinishStep(EntryId id, Step step, uint64_t begun);
  // The entry keeps so much more in memory: what it shares with later entries is charged to the
  // first.
  void Charge(EntryId id, int64_t bytes);
  // Every ps has applied the write. Its number, which it keeps if it is run again; 0: it is not in
  // the log.
  uint64_t FinishWrite(EntryId id);
  // The number of the last entry that has finished.
  uint64_t finishes() const { return finishes_; }
  // The step has failed or was cancelled: there is no trace of it. No such entry: nothing is done.
  void Forget(EntryId id);
  // Shards were made, by ps; `version` of the layout that has them.
  void AddShards(uint64_t version, const std::map<int, std::vector<ShardSpec>>& shards);

  // A checkpoint has been committed that contains all that its cut closes, and the layout of that
  // version: it is the base. Returns the entries it covers; to free millions of them takes a while.
  std::deque<Entry> MoveBase(const Horizon& cut, uint64_t layout_version);

  // The first entry from `id` on that is to be run again: a finished step, or a write. Null: none.
  const Entry* Next(EntryId id) const;
  // All shards made since the base, by ps.
  std::map<int, std::vector<ShardSpec>> Shards() const;
  int64_t finished_steps() const { return finished_steps_; }

  // Ends the log for good: it is empty and takes nothing any more, and what it held cannot be made
  // again. Returns what it held.
  std::deque<Entry> GiveUp();
  bool kept() const { return kept_; }

  int64_t bytes() const { return bytes_; }
  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  bool half_full() const { return 2 * bytes_ >= max_bytes_ || 2 * size() >= kMaxEntries; }
  bool full() const { return bytes_ >= max_bytes_ || size() >= kMaxEntries; }

 private:
  struct MadeShards {
    uint64_t version = 0;
    std::map<int, std::vector<ShardSpec>> shards;
    int64_t bytes = 0;
  };
  Entry* Find(EntryId id);

  const int64_t max_bytes_;
  bool kept_ = true;
  std::deque<Entry> entries_;  // by id, rising
  std::deque<MadeShards> shards_;
  int64_t bytes_ = 0, finished_steps_ = 0;
  uint64_t finishes_ = 0;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_REDO_LOG_H_
