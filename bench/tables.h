// The parts of bench:tables, and what they share.
#ifndef DIVVY_BENCH_TABLES_H_
#define DIVVY_BENCH_TABLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ps_server/core/table/table_segment.h"

namespace divvy::bench {

// The optimizer of all tables here.
inline const Adagrad kTableOptimizer{0.01};

// The key of a row: hashed ids are spread over all numbers.
int64_t KeyOfRow(int64_t row);
// Distinct random row numbers below `rows`, in rising order.
std::vector<int64_t> RandomRows(int64_t rows, int64_t count, uint64_t seed);
// The keys of rows, in the order of a request.
std::vector<TableKey> KeysOf(const std::vector<int64_t>& rows);
TableFormat FormatOf(int64_t width, TableOptions options = {});

// Prints a figure that has to stay below a bound, as a part of that bound.
void ShowBounded(const std::string& what, double figure, const std::string& bound_name,
                 double bound, const std::string& unit);

// The longest time that a write, an eviction or a checkpoint holds the lock of a segment, where a
// server has --server_rows.
void MeasureStalls();
// Pulls and pushes through a parameter server in another process.
absl::Status MeasureRequests(int64_t width);
// Writing and restoring --checkpoint_rows in `directory`.
absl::Status MeasureCheckpoint(const std::string& directory);

}  // namespace divvy::bench

#endif  // DIVVY_BENCH_TABLES_H_
