// The optimizers' arithmetic: applies gradients to a block of rows, in place.
#ifndef DIVVY_OPTIMIZERS_APPLY_H_
#define DIVVY_OPTIMIZERS_APPLY_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "optimizers/optimizer.h"

namespace divvy {

// One slot of the rows of a block. For SlotSpec::Kind::kValues and kRowValues the numbers are in
// `values`, for kRowCounts in `counts`; the other span is empty.
struct SlotView {
  absl::Span<float> values;    // [rows * width], or [rows]
  absl::Span<int32_t> counts;  // [rows]
};

// Consecutive rows of a parameter and of its slots. The memory is borrowed, and nobody else may
// read or write it during a call. Cheap to copy; allocates nothing.
struct ParameterBlock {
  static constexpr int kMaxSlots = 4;
  absl::Span<float> values;                 // [rows * width]
  int64_t width = 1;                        // elements of a row; rank 0 and 1: 1
  std::array<SlotView, kMaxSlots> slots{};  // in the order of SlotsOf

  int64_t rows() const { return width == 0 ? 0 : static_cast<int64_t>(values.size()) / width; }
};

// Checks that the slots and sizes of `block` fit `step`. Internal: they do not fit, which is a bug
// in the caller's bookkeeping. For debug checks and tests, because the functions below check
// nothing.
absl::Status CheckBlock(const OptimizerStep& step, const ParameterBlock& block);

// Applies one gradient, with the size of the block, to every row. Computes in float32, in the order
// of TensorFlow's kernels, element by element; so the result does not depend on how the rows are
// cut into blocks. Does not block or allocate. Thread-safe for blocks that do not overlap. Call it
// under FlushDenormals (optimizers/denormals.h), because slots that decay towards 0 otherwise make
// it many times slower. REQUIRES: Validate(step) and CheckBlock are OK.
void ApplyDense(const OptimizerStep& step, const ParameterBlock& block,
                absl::Span<const float> gradient);

// Applies some rows of a gradient: gradient row i to the block's row rows[i] - first_row. Other
// rows and their slots do not change. The arithmetic on the named rows is that of ApplyDense.
// REQUIRES: as ApplyDense; `rows` are unique (GroupById in kernels/duplicates.h) and in [first_row,
// first_row + block.rows()); gradient.size() == rows.size() * block.width.
void ApplySparse(const OptimizerStep& step, const ParameterBlock& block,
                 absl::Span<const int64_t> rows, absl::Span<const float> gradient,
                 int64_t first_row = 0);

}  // namespace divvy

#endif  // DIVVY_OPTIMIZERS_APPLY_H_
