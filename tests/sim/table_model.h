// The rows of a dynamic table as its history makes them, entry by entry, in one plain map.
#ifndef DIVVY_TESTS_SIM_TABLE_MODEL_H_
#define DIVVY_TESTS_SIM_TABLE_MODEL_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "ps_server/core/table/table_image.h"
#include "variables/table_options.h"

namespace divvy::sim {

// Elements of a row.
constexpr int64_t kTableWidth = 2;

// What a step writes to the row of each key that it names. All elements of a row are equal.
enum class TableWrite {
  // Adds 1.
  kAdd,
  // A gradient of -1, which Momentum applies with a momentum and a learning rate of 1. So the slot
  // is the number of writes, and the value is the sum of the slots so far.
  kGradient
};

// Rows begin with zeros. Takes AdmitAlways and AdmitAfter, and of evictions those that are entries
// of the history. A filter is taken for one without collisions: the buckets of all keys must
// differ. Pure, and copied with the model that it is part of.
//
//   model.Step({7, 8}, /*minute=*/3);
//   model.Evict(/*now=*/10, 0, kTableBuckets);
//   EXPECT_EQ(model.Contradiction({image of part 0, image of part 1}), "");
class TableModel {
 public:
  struct Row {
    // Finished steps that named the key since its row, or the count before it, began.
    int64_t count = 0;
    // The latest minute of these steps.
    uint32_t minute = 0;
    // The steps whose writes are in the row.
    int64_t writes = 0;
  };
  using Rows = std::map<int64_t, Row>;  // by key

  TableModel() = default;
  TableModel(TableOptions rules, TableWrite write) : rules_(std::move(rules)), write_(write) {}

  // A step has finished that names these keys, each once.
  void Step(absl::Span<const int64_t> keys, uint32_t minute);
  // The rows of buckets [first, end) that the rule lets go are gone. Returns their number.
  int64_t Evict(uint32_t now, int64_t first, int64_t end);

  const Rows& rows() const { return rows_; }
  // Keys whose steps are counted exactly until they get a row.
  const Rows& waiting() const { return waiting_; }
  // Each element of a key's row; 0 if it has none.
  float ValueOf(int64_t key) const;

  // What is wrong with the rows that the parts of the table hold; empty: nothing.
  enum class Minutes : uint8_t { kCompared, kIgnored };
  std::string Contradiction(const std::vector<TableImage>& parts,
                            Minutes minutes = Minutes::kCompared) const;

 private:
  float ValueAfter(int64_t writes) const;
  bool Admits(int64_t key, Row& row);
  std::string WrongElements(const TableImage& part, size_t i, const Row& row) const;

  TableOptions rules_;
  TableWrite write_ = TableWrite::kAdd;
  Rows rows_, waiting_;
  // By key: what a filter has counted.
  std::map<int64_t, int64_t> filter_;
};

// What is wrong with the columns of one part; empty: keys, counts, minutes, values and each slot
// are of the same rows.
std::string UnevenColumns(const TableImage& part);

}  // namespace divvy::sim

#endif  // DIVVY_TESTS_SIM_TABLE_MODEL_H_
