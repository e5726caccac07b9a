// Rows of a part of a dynamic table, as an operator asks for them.
#ifndef DIVVY_PS_SERVER_CORE_TABLE_FOUND_ROWS_H_
#define DIVVY_PS_SERVER_CORE_TABLE_FOUND_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "ps_server/core/table/table_shard.h"

namespace divvy {

// A copy of a row.
struct FoundRow {
  int64_t key = 0;
  int64_t count = 0;
  // The latest tick.
  int64_t minute = 0;
  std::vector<float> values = {};
};

// The rows of `keys`, which may be any keys in any order, in this order. Keys without a row here
// are left out. Locks one segment after another, so the rows may be of different moments.
std::vector<FoundRow> RowsOf(TableShard& table, absl::Span<const int64_t> keys);

// The largest rows of the parts that it has looked at. Of rows of the same size, those with the
// smaller key count as larger. Not thread-safe.
class LargestRows {
 public:
  enum class By : uint8_t {
    kCount,
    // The Euclidean norm of the values. A norm that is not a number counts as the largest.
    kNorm,
  };
  // Keeps `most` rows.
  LargestRows(size_t most, By by) : most_(most), by_(by) {}
  // Looks at all rows of the part, which takes some nanoseconds for each. Locks one segment after
  // another, for some thousand rows at a time. Rows that come or go meanwhile may be left out.
  void Look(TableShard& table);
  // The largest one first.
  std::vector<FoundRow> Take() &&;

 private:
  using Ranked = std::pair<double, FoundRow>;
  static bool IsLarger(const Ranked& a, const Ranked& b);
  // Rows [row, row + some thousand) of the segment. Returns the next one; nullopt: there is none.
  std::optional<uint32_t> Look(const TableFormat& format, const TableSegment& segment,
                               uint32_t row);
  double SizeOf(const TableFormat& format, const char* row) const;

  const size_t most_;
  const By by_;
  // A heap whose first element is the smallest row.
  std::vector<Ranked> rows_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_TABLE_FOUND_ROWS_H_
