// What Variable::Find and Variable::Stats tell about a dynamic table.
#ifndef DIVVY_STRATEGY_TABLE_ROWS_H_
#define DIVVY_STRATEGY_TABLE_ROWS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "variables/table_stats.h"

namespace divvy {

// A key of a dynamic table.
struct TableRow {
  int64_t key = 0;
  // Whether the key has a row.
  bool exists = false;
  // The number of finished steps that named the key since its row began; 0 without a row.
  int64_t count = 0;
  // The latest minute of the job's time in which one of these steps was dispatched; 0 without a
  // row.
  int64_t last_minute = 0;
  // [width] the values that a lookup of the key gives. Without a row: what the table's `absent`
  // says. In a step they have the step's own writes, of which the other fields know nothing.
  std::vector<float> values;
};

// The size of a dynamic table, and what has become of keys: the sums over its parameter servers.
// `admitted`, `refused` and `evicted` count from the moment at which each server made or loaded its
// part, so a server that was started again counts from 0. `refused` counts from 0 when a program
// that is started again gives the table other options.
struct TableStats : TablePartStats {
  // By the index of the parameter server: the sums of its parts.
  std::map<int, TablePartStats> servers;
};

}  // namespace divvy

#endif  // DIVVY_STRATEGY_TABLE_ROWS_H_
