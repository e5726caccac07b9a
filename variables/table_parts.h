// The parts of a dynamic table: what each may have, and what it tells.
#ifndef DIVVY_VARIABLES_TABLE_PARTS_H_
#define DIVVY_VARIABLES_TABLE_PARTS_H_

#include <cstdint>
#include <limits>
#include <tuple>

#include "variables/table_keys.h"
#include "variables/table_stats.h"

namespace divvy {

// The share of buckets [first, end) in the most rows of a table. The shares of all parts add up to
// `max_rows`. REQUIRES: max_rows > 0.
inline int64_t ShareOfRows(int64_t max_rows, int64_t first, int64_t end) {
  const auto up_to = [&](int64_t bucket) {
    return static_cast<int64_t>(static_cast<__int128>(max_rows) * bucket / kTableBuckets);
  };
  return up_to(end) - up_to(first);
}

// The numbers of a row of PullWant::kRecords: count and minute.
inline constexpr int64_t kTableRecordWidth = 2;
// The numbers of PullWant::kStats: TablePartStats in the order of its fields.
inline constexpr int64_t kTableStatsWidth = 6;
static_assert(std::tuple_size_v<decltype(TablePartStats().fields())> == kTableStatsWidth);

// Writes kTableStatsWidth numbers to `to`.
inline void WriteStats(const TablePartStats& stats, int64_t* to) {
  std::apply([&to](const auto&... number) { ((*to++ = number), ...); }, stats.fields());
}

// REQUIRES: kTableStatsWidth numbers at `from`.
inline TablePartStats ReadStats(const int64_t* from) {
  return {from[0], from[1], from[2], from[3], from[4], from[5]};
}

// Adds up the parts of a table. A sum that overflows, which only a wrong message can cause, stays
// at the largest number.
inline TablePartStats& operator+=(TablePartStats& sum, const TablePartStats& part) {
  const auto add = [](int64_t& to, int64_t more) {
    if (__builtin_add_overflow(to, more, &to)) to = std::numeric_limits<int64_t>::max();
  };
  add(sum.rows, part.rows);
  add(sum.waiting, part.waiting);
  add(sum.bytes, part.bytes);
  add(sum.admitted, part.admitted);
  add(sum.refused, part.refused);
  add(sum.evicted, part.evicted);
  return sum;
}

}  // namespace divvy

#endif  // DIVVY_VARIABLES_TABLE_PARTS_H_
