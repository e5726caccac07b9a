// The rules of a dynamic table: which keys get a row, and which lose it.
#ifndef DIVVY_VARIABLES_TABLE_OPTIONS_H_
#define DIVVY_VARIABLES_TABLE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace divvy {

// ---- admission ----------------------------------------------------------------------------------

// A key gets its row from the first finished step that writes to it.
struct AdmitAlways {
  friend bool operator==(AdmitAlways, AdmitAlways) { return true; }
};
// A key gets its row from the finished step number `steps` that names it. The gradients of the
// steps before that one are dropped.
struct AdmitAfter {
  // at least 1, at most 2^31
  int64_t steps = 2;
  // 0: the counts are exact, at about 26 bytes for each key that waits. max_rows does not limit
  // them; EvictUnusedFor forgets them as it forgets rows. Otherwise a counting Bloom filter of this
  // size for the whole table, at least 1 MiB, rounded down to a multiple of 64 KiB. Keys that
  // collide in it are admitted too early, and no key too late. Its counters never fall, so an
  // evicted key returns with the next step that names it. `steps` is at most 255 then.
  int64_t counter_bytes = 0;
  friend bool operator==(const AdmitAfter& a, const AdmitAfter& b) {
    return a.steps == b.steps && a.counter_bytes == b.counter_bytes;
  }
};
// Each finished step that names a key without a row gives it one with this probability, in (0, 1].
// The draw follows from the table's seed, the key and the step's id, so every attempt of the step
// draws the same.
struct AdmitWithProbability {
  double probability = 1;
  friend bool operator==(AdmitWithProbability a, AdmitWithProbability b) {
    return a.probability == b.probability;
  }
};
using Admission = std::variant<AdmitAlways, AdmitAfter, AdmitWithProbability>;

// ---- eviction -----------------------------------------------------------------------------------

// Every row stays.
struct EvictNever {
  friend bool operator==(EvictNever, EvictNever) { return true; }
};
// Rows that no finished step has named for so long. In whole minutes, at least one.
struct EvictUnusedFor {
  absl::Duration duration;
  friend bool operator==(EvictUnusedFor a, EvictUnusedFor b) { return a.duration == b.duration; }
};
// Rows whose values have a smaller Euclidean norm.
struct EvictBelowNorm {
  float norm = 0;
  friend bool operator==(EvictBelowNorm a, EvictBelowNorm b) { return a.norm == b.norm; }
};
// These two act where a step makes a row in a full table: 5 % of the rows of neighbouring buckets
// go, but none that the step itself names. So which rows go depends on the order of the steps, and
// on how the table is cut. EvictLeastUsed: the rows that the fewest steps have named, of these the
// least recent ones.
struct EvictLeastUsed {
  friend bool operator==(EvictLeastUsed, EvictLeastUsed) { return true; }
};
// The rows that no step has named for the longest time, of these the least used ones.
struct EvictLeastRecent {
  friend bool operator==(EvictLeastRecent, EvictLeastRecent) { return true; }
};
using Eviction =
    std::variant<EvictNever, EvictUnusedFor, EvictBelowNorm, EvictLeastUsed, EvictLeastRecent>;

// ---- the table ----------------------------------------------------------------------------------

// Which keys of a table have a row, and what the others read.
struct TableOptions {
  Admission admission;
  Eviction eviction;
  // What a read of a key without a row gives: the initial value that its row would have, or zeros.
  enum class Absent : uint8_t { kInitialValue, kZeros } absent = Absent::kInitialValue;
  // The most rows of the table; 0: no limit. Each part of the table has its share, by its buckets.
  // A new key that meets a full part gets no row if its eviction makes no room, and is counted.
  int64_t max_rows = 0;
  // What follows when a key gets no row for want of room (max_rows, or memory): nothing but the
  // count, or the job ends with ResourceExhausted, which names the table and the limit. The step
  // that met it has finished by then, and the job may run some steps more.
  enum class Full : uint8_t { kRefuse, kFail } full = Full::kRefuse;
  friend bool operator==(const TableOptions& a, const TableOptions& b) {
    return a.admission == b.admission && a.eviction == b.eviction && a.absent == b.absent &&
           a.max_rows == b.max_rows && a.full == b.full;
  }
};

// InvalidArgument, naming the option and the fix: a number outside its range, as described above;
// or EvictLeastUsed or EvictLeastRecent without max_rows. Pure.
absl::Status Validate(const TableOptions& options);

}  // namespace divvy

#endif  // DIVVY_VARIABLES_TABLE_OPTIONS_H_
