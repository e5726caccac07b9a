// What a parameter server tells of a dynamic table.
#ifndef DIVVY_VARIABLES_TABLE_STATS_H_
#define DIVVY_VARIABLES_TABLE_STATS_H_

#include <cstdint>
#include <tuple>

namespace divvy {

// One part of a table. What became of keys counts from the moment at which its parameter server
// made or loaded the part.
struct TablePartStats {
  int64_t rows = 0;
  // Keys whose steps are counted, exactly, until they are admitted.
  int64_t waiting = 0;
  // The memory of rows, index and counts.
  int64_t bytes = 0;
  // Keys that got a row.
  int64_t admitted = 0;
  // Writes to a key that was admitted and got no row: the part is full, or there is no memory.
  int64_t refused = 0;
  // Rows that are gone.
  int64_t evicted = 0;

  auto fields() const { return std::tie(rows, waiting, bytes, admitted, refused, evicted); }
  friend bool operator==(const TablePartStats& a, const TablePartStats& b) {
    return a.fields() == b.fields();
  }
};

}  // namespace divvy

#endif  // DIVVY_VARIABLES_TABLE_STATS_H_
