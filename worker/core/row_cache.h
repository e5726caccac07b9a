// Rows that a worker's steps have pulled by id, kept for its next steps.
#ifndef DIVVY_WORKER_CORE_ROW_CACHE_H_
#define DIVVY_WORKER_CORE_ROW_CACHE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "protocol/messages.h"
#include "tensor/tensor.h"
#include "variables/layout.h"

namespace divvy {

// Since it was made.
struct RowCacheStats {
  int64_t hits = 0, misses = 0;  // rows asked for; a row that is too old is a miss
  int64_t later_hits = 0;        // those of the hits that were pulled by an earlier step
  int64_t evictions = 0;         // rows that went because others needed their place
  int64_t bytes = 0;             // of what is kept, with what keeping it takes
};

// Those of a worker, over all its sessions: divvy_row_cache_{hits,misses,evictions}_total and
// divvy_row_cache_bytes.
struct RowCacheMetrics {
  RowCacheMetrics(MetricsRegistry& registry, int worker);
  Counter& hits;
  Counter& misses;
  Counter& evictions;
  Gauge& bytes;
};

// The rows of one session under one layout, found by variable and id. A row that a step has pulled
// may be used by that step and the `staleness` steps after it.
//
// Where there is no room, a row is kept when it has been pulled twice: so rows that are read once
// pass by. It takes the place of a row that is too old, or of one that was used little: the hand of
// a clock goes round, and each use (three at most count) saves a row from it once. With ids by
// Zipf's law it hits 97 % of what the best choice of rows would
// (RowCacheTest.KeepsTheHotRowsOfAZipfLaw); without the rule of the second pull it were 79 %, and
// an exact order of use would cost a list for every hit.
//
// Thread-safe; its lock is the last to be taken, and nothing blocks.
class RowCache {
 public:
  // REQUIRES: bytes > 0, staleness >= 0; the registry of `metrics` outlives this.
  RowCache(int64_t bytes, int staleness, const RowCacheMetrics& metrics);
  ~RowCache();
  RowCache(const RowCache&) = delete;

  // The next step of the worker begins: what is kept is older by one.
  void BeginStep();

  struct Found {
    // ids.shape + row shape; rows that are missing have no value yet
    Tensor values;
    // Their places in ids.
    std::vector<int64_t> missing;
    // Of each shard that rows were found of: the least version that one was pulled at.
    std::map<uint16_t, uint64_t> oldest;
  };
  // ResourceExhausted: there is no memory for the values; pull them.
  // REQUIRES: ids is int64, not empty, and inside the variable.
  absl::StatusOr<Found> Find(const VariableLayout& variable, const Tensor& ids);

  // A part of a pull was answered: its rows, by their numbers in the shard. A reply that does not
  // fit is ignored, and of a row that is kept from a newer one.
  void Keep(const VariableLayout& variable, const PullPart& asked, const PullPartReply& reply);

  // Forgets rows of a variable, or all of them, because their values change. The second costs
  // nothing where none are kept.
  void Drop(VariableId variable, const Tensor& ids);
  void Drop(VariableId variable);
  // And keeps none of it from now on, over Clear too.
  void NeverKeep(VariableId variable);
  // What was kept, to be let go where no lock is held: that may take a while.
  std::shared_ptr<const void> Clear();

  RowCacheStats stats() const;

 private:
  struct Key {
    VariableId variable;
    int64_t id = 0;
    friend bool operator==(const Key& a, const Key& b) {
      return a.variable == b.variable && a.id == b.id;
    }
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  struct Slot {
    Key key;
    bool taken = false;
    uint8_t uses = 0;  // that the hand has not counted off yet
    uint16_t part = 0;
    uint32_t number = 0;   // in slots_of_
    uint64_t version = 0;  // of the shard, and
    uint64_t step = 0;     // the number of the step, when it was pulled
    std::vector<char> row;
  };

  bool Fresh(const Slot& slot) const DIVVY_REQUIRES(mu_) { return step_ - slot.step <= staleness_; }
  void KeepRow(Key key, uint16_t part, uint64_t version, const char* row, size_t row_bytes)
      DIVVY_REQUIRES(mu_);
  Slot* FreshSlot(const Key& key) DIVVY_REQUIRES(mu_);
  void CopyBlock(VariableId variable, absl::Span<const int64_t> ids, size_t first, size_t row_bytes,
                 Found& found) DIVVY_REQUIRES(mu_);
  bool HasRoom(int64_t cost) const DIVVY_REQUIRES(mu_) {
    return stats_.bytes + cost <= limit_bytes_;
  }
  bool WasSeen(const Key& key) DIVVY_REQUIRES(mu_);
  void DropAll(VariableId variable) DIVVY_REQUIRES(mu_);
  void FreeTooOld() DIVVY_REQUIRES(mu_);
  size_t TakeSlot() DIVVY_REQUIRES(mu_);
  void EvictOne() DIVVY_REQUIRES(mu_);
  void Free(size_t slot) DIVVY_REQUIRES(mu_);
  void AddBytes(int64_t bytes) DIVVY_REQUIRES(mu_);

  const int64_t limit_bytes_;
  const uint64_t staleness_;
  const RowCacheMetrics metrics_;
  mutable Mutex mu_;
  uint64_t step_ DIVVY_GUARDED_BY(mu_) = 0;
  std::set<VariableId> never_ DIVVY_GUARDED_BY(mu_);
  RowCacheStats stats_ DIVVY_GUARDED_BY(mu_);
  absl::flat_hash_map<Key, uint32_t, KeyHash> index_ DIVVY_GUARDED_BY(mu_);
  std::vector<Slot> slots_ DIVVY_GUARDED_BY(mu_);
  // Those taken, of each variable, in any order.
  std::map<VariableId, std::vector<uint32_t>> slots_of_ DIVVY_GUARDED_BY(mu_);
  // slots
  std::vector<size_t> free_ DIVVY_GUARDED_BY(mu_);
  // hashes of rows that found no room
  std::vector<uint64_t> seen_ DIVVY_GUARDED_BY(mu_);
  size_t hand_ DIVVY_GUARDED_BY(mu_) = 0, sweep_ DIVVY_GUARDED_BY(mu_) = 0;
};

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_ROW_CACHE_H_
