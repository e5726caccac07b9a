// The optimizers' arithmetic on a block of rows, in place.
#ifndef DIVVY_OPTIMIZERS_APPLY_H_
#define DIVVY_OPTIMIZERS_APPLY_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "optimizers/optimizer.h"

namespace divvy {

// The same rows of one slot as its block has of the parameter: `values` for SlotSpec::Kind::kValues
// and kRowValues, `counts` for kRowCounts; the other is empty.
struct SlotView {
  absl::Span<float> values;    // [rows * width], or [rows]
  absl::Span<int32_t> counts;  // [rows]
};

// Consecutive rows of a parameter and of its slots: borrowed memory that nobody else reads or
// writes meanwhile. Cheap to copy; allocates nothing.
struct ParameterBlock {
  static constexpr int kMaxSlots = 4;
  absl::Span<float> values;                 // [rows * width]
  int64_t width = 1;                        // elements of a row; rank 0 and 1: 1
  std::array<SlotView, kMaxSlots> slots{};  // in the order of SlotsOf

  int64_t rows() const { return width == 0 ? 0 : static_cast<int64_t>(values.size()) / width; }
};

// OK if the slots and sizes of `block` are those that `step` needs. Internal otherwise: the
// caller's bookkeeping is wrong. For the caller's debug checks and tests; the functions below do
// not check.
absl::Status CheckBlock(const OptimizerStep& step, const ParameterBlock& block);

// Applies one gradient, which has the block's size, to every row. Float32 arithmetic, in the order
// of TensorFlow's kernels; element by element, so how the rows are cut into blocks changes no bit
// of the result. Does not block or allocate. Run it under FlushDenormals (optimizers/denormals.h),
// else slots that decay towards 0 make it many times slower. REQUIRES: Validate(step) and
// CheckBlock are OK.
void ApplyDense(const OptimizerStep& step, const ParameterBlock& block,
                absl::Span<const float> gradient);

// Applies rows of a gradient: gradient row i to the block's row rows[i] - first_row. Other rows and
// their slots do not move: the same arithmetic as ApplyDense on the rows named. REQUIRES: as above;
// `rows` without duplicates (SumDuplicates), each in [first_row, first_row + block.rows());
// gradient.size() == rows.size() * block.width.
void ApplySparse(const OptimizerStep& step, const ParameterBlock& block,
                 absl::Span<const int64_t> rows, absl::Span<const float> gradient,
                 int64_t first_row = 0);

// Rows of a sparse gradient with equal ids summed: ids unique and rising, as ApplySparse and a
// commit want them. Occurrences are added in the order given, so the sums are the same in every
// run. REQUIRES: rows.size() == ids.size() * width.
struct SummedRows {
  std::vector<int64_t> ids;
  std::vector<float> rows;  // [ids.size() * width]
};
SummedRows SumDuplicates(absl::Span<const int64_t> ids, absl::Span<const float> rows,
                         int64_t width);

}  // namespace divvy

#endif  // DIVVY_OPTIMIZERS_APPLY_H_
