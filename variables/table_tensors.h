// The tensors of a dynamic table in a checkpoint.
#ifndef DIVVY_VARIABLES_TABLE_TENSORS_H_
#define DIVVY_VARIABLES_TABLE_TENSORS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "optimizers/optimizer.h"
#include "tensor/tensor.h"
#include "variables/table_options.h"

namespace divvy {

// A tensor with one row for each key, or for each key that waits to be admitted. Rows come in the
// order of (bucket, key).
struct TableTensor {
  std::string name;
  DType dtype = DType::kInt64;
  // The shape with `rows` rows.
  Shape ShapeWith(int64_t rows) const { return one_row.WithRows(rows); }
  Shape one_row = {1};
};

// "NAME-keys" int64 [n], "NAME-freqs" int64 [n] (how many steps have named the key),
// "NAME-versions" int64 [n] (the tick of the last of them), "NAME-values" [n, width] of the table's
// dtype, "NAME-values/<Optimizer>/<slot>". The names of keys, freqs and values are those of
// DeepRec's checkpoints.
struct TableTensors {
  // `optimizer`: the table's own; nullopt: without slots.
  TableTensors(const std::string& table, int64_t width, const std::optional<Optimizer>& optimizer,
               DType dtype = DType::kFloat32);

  TableTensor keys, counts, ticks, values;
  std::vector<TableTensor> slots;
  // "NAME-filter-keys", "-filter-freqs", "-filter-versions": keys that wait to be admitted.
  TableTensor waiting_keys, waiting_counts, waiting_ticks;
  // "NAME-filter-counters" uint8 [kTableBuckets, bytes]: the counting Bloom filter. One row for
  // each bucket.
  std::string filter;
  // The names of all of them.
  std::vector<std::string> names() const;
};

// The tables of which one could have a tensor of this name: "user" for "user-keys", "ad" and
// "ad-filter" for "ad-filter-keys". Empty: no table has such a tensor.
std::vector<std::string> TablesOfTensor(absl::string_view tensor);

// Whether the rows of tables with these optimizers hold the same slots, which is not the case for
// all options of one optimizer (SlotsOf). nullopt: a table without an optimizer.
bool HaveSameSlots(const std::optional<Optimizer>& a, const std::optional<Optimizer>& b);

}  // namespace divvy

#endif  // DIVVY_VARIABLES_TABLE_TENSORS_H_
