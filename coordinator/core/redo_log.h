// The log of everything done since the state that a rewind returns to. Running it again restores
// the lost state.
#ifndef DIVVY_COORDINATOR_CORE_REDO_LOG_H_
#define DIVVY_COORDINATOR_CORE_REDO_LOG_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "protocol/horizon.h"
#include "protocol/ids.h"
#include "protocol/messages.h"
#include "tensor/nest.h"

namespace divvy {

// All entries since the base, which is the newest committed checkpoint or the empty state that the
// job began with. Entries are training steps and direct writes; the log also has the shards of
// variables and slots that were made. Read-only steps are not in it, and a step that fails or is
// cancelled leaves it. Entries stand in the order of their ids. In a replay, an entry that had
// finished before another began again does so (replay_order.h). For this the log numbers the
// entries as they finish.
//
// The log is in memory and bounded. At half of its bounds a checkpoint is wanted. When it is full
// it takes no new entry until a checkpoint has been committed. One entry that arrives while there
// is room may exceed the bound by its own size.
//
// Pure; not thread-safe.
class RedoLog {
 public:
  static constexpr int64_t kMaxEntries = 4'000'000;

  // A step as it is dispatched again. The same input gives the same writes.
  struct Step {
    std::string function;
    Nest args;
    std::vector<InputLease> inputs;
    // The iterators that `args` names.
    std::vector<std::shared_ptr<const MakeResource>> iterators;
    int64_t ordinal = 0;
    double learning_rate_scale = 1;
    // As Dispatch::tick.
    uint32_t tick = 0;
    // The worker that ran the step. A replay prefers that worker, because it reads the data
    // forward.
    int worker = -1;
  };
  struct Write {
    std::map<int, std::vector<CommitPart>> parts;  // by ps
    // As CommitRequest::tick.
    uint32_t tick = 0;
  };
  struct Entry {
    EntryId id;
    int64_t bytes = 0;
    // The step failed or was cancelled.
    bool gone = false;
    // The value of finishes() when the entry began. Entries with numbers up to this one come before
    // it.
    uint64_t begun = 0;
    // The entry's own number. 0: it has not finished.
    uint64_t finished = 0;
    // Null while the step is open, and for a write.
    std::shared_ptr<const Step> step = nullptr;
    // Null for a step.
    std::shared_ptr<const Write> write = nullptr;
  };

  // REQUIRES: max_bytes > 0.
  explicit RedoLog(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // The bytes that a step's entry counts for.
  static int64_t BytesOf(const std::string& function, const Nest& args, size_t inputs);

  // Adds a step that begins. REQUIRES: each id is above all earlier ones.
  void OpenStep(EntryId id, int64_t bytes);
  // Adds a direct write. REQUIRES: as OpenStep.
  void AddWrite(EntryId id, Write write);
  // The open step has finished: from now on a replay runs it. `begun`: the value of finishes() when
  // its last attempt began.
  void FinishStep(EntryId id, Step step, uint64_t begun);
  // The entry keeps `bytes` more in memory. Data shared with later entries is charged to the first
  // one.
  void Charge(EntryId id, int64_t bytes);
  // Every ps has applied the write. Returns the write's number, which a replay does not change. 0:
  // the write is not in the log.
  uint64_t FinishWrite(EntryId id);
  // The number of the last entry that has finished.
  uint64_t finishes() const { return finishes_; }
  // The step has failed or was cancelled and leaves no trace. Does nothing if there is no such
  // entry.
  void Forget(EntryId id);
  // Adds shards that were made, by ps. `version`: the first layout that has them.
  void AddShards(uint64_t version, const std::map<int, std::vector<ShardSpec>>& shards);

  // A checkpoint becomes the base: it contains everything that `cut` closes, and the layout of
  // `layout_version`. Returns the entries that it covers. Destroy them without the lock: freeing
  // millions takes a while.
  std::deque<Entry> MoveBase(const Horizon& cut, uint64_t layout_version);

  // The first entry from `id` on that is to be replayed: a finished step, or a write. Null: none.
  const Entry* Next(EntryId id) const;
  // All shards made since the base, by ps.
  std::map<int, std::vector<ShardSpec>> Shards() const;
  int64_t finished_steps() const { return finished_steps_; }

  // Ends the log for good: it stays empty, and a rewind is not possible any more. Returns its
  // entries.
  std::deque<Entry> GiveUp();
  // Whether the log is in use; false after GiveUp.
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
  // By id, rising.
  std::deque<Entry> entries_;
  std::deque<MadeShards> shards_;
  int64_t bytes_ = 0, finished_steps_ = 0;
  uint64_t finishes_ = 0;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_REDO_LOG_H_
