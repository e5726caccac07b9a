// The rows that a dynamic table begins with.
#ifndef DIVVY_VARIABLES_FIRST_ROWS_H_
#define DIVVY_VARIABLES_FIRST_ROWS_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "initializers/initializer.h"
#include "tensor/tensor.h"

namespace divvy {

// Rows that a dynamic table has from its creation on, whatever its admission says. A table's spec
// has them in place of its initializer (AsInitializer). The coordinator calls `rows` and sends what
// it returns, as with FromRows.
struct FirstRows {
  // Some of the rows. No key comes twice in all of them.
  struct Block {
    Tensor keys;                   // int64 [n]
    Tensor values;                 // float32 [n, width]
    std::optional<Tensor> counts;  // int64 [n]; without them a row counts one step
  };
  // How many there are.
  int64_t num_rows = 0;
  // The rows [first, first + count) of them. Blocks are asked for in order, on a thread of the
  // program.
  std::function<absl::StatusOr<Block>(int64_t first, int64_t count)> rows;
  // Gives the values of all other keys.
  Initializer others;
};

// The rows as the initializer of a table's spec. Of another variable it is refused.
Initializer AsInitializer(FirstRows rows);
// The rows in an initializer that AsInitializer made; null for any other. Valid as long as
// `initializer` is.
const FirstRows* FirstRowsOf(const Initializer& initializer);

}  // namespace divvy

#endif  // DIVVY_VARIABLES_FIRST_ROWS_H_
