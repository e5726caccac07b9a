#include "optimizers/apply.h"

#include <algorithm>
#include <limits>

#include "absl/base/attributes.h"
#include "absl/strings/str_cat.h"
#include "optimizers/kernels.h"

namespace divvy {
namespace {

using internal::Run;

float* ValuesAt(const SlotView& slot, int64_t element) {
  return slot.values.empty() ? nullptr : slot.values.data() + element;
}

Run RunAt(const ParameterBlock& block, int64_t row, int64_t rows, const float* gradient) {
  const int64_t element = row * block.width;
  Run run{block.values.data() + element, gradient, {}, rows * block.width};
  for (size_t slot = 0; slot < run.slots.size(); ++slot)
    run.slots[slot] = ValuesAt(block.slots[slot], element);
  return run;
}

void ApplyRun(const OptimizerStep& step, const Run& run) {
  switch (step.kind) {
    case OptimizerKind::kSgd: return internal::SgdRun(step, run);
    case OptimizerKind::kMomentum: return internal::MomentumRun(step, run);
    case OptimizerKind::kAdagrad: return internal::AdagradRun(step, run);
    case OptimizerKind::kRmsProp: return internal::RmsPropRun(step, run);
    case OptimizerKind::kFtrl: return internal::FtrlRun(step, run);
    case OptimizerKind::kAdam: return;            // see AdamDense, AdamSparse
    case OptimizerKind::kRowwiseAdagrad: return;  // see RowwiseAdagradRow
  }
}

void Count(int32_t& t) {
  if (t < std::numeric_limits<int32_t>::max()) ++t;
}

// Consecutive rows with the same t form one run. Usually this is the whole block.
void AdamDense(const OptimizerStep& step, const ParameterBlock& block, const float* gradient) {
  internal::AdamRate rate(step);
  const absl::Span<int32_t> t = block.slots[2].counts;
  const int64_t rows = block.rows();
  for (int64_t begin = 0, end; begin < rows; begin = end) {
    end = std::find_if(t.begin() + begin, t.begin() + rows,
                       [before = t[begin]](int32_t other) { return other != before; }) -
          t.begin();
    std::for_each(t.begin() + begin, t.begin() + end, Count);
    internal::AdamRun(step, rate.At(t[begin]),
                      RunAt(block, begin, end - begin, gradient + begin * block.width));
  }
}

// The processor cannot predict the rows of a large table. So the next rows are prefetched while one
// is computed, and their cache misses overlap (bench:optimizers). Always inline: GCC considers a
// function that only prefetches to have no effect, and drops the calls.
ABSL_ATTRIBUTE_ALWAYS_INLINE inline void FetchRow(const ParameterBlock& block, int64_t row) {
  constexpr int64_t kLine = 64 / sizeof(float);
  for (int64_t at = row * block.width; at < (row + 1) * block.width; at += kLine) {
    __builtin_prefetch(block.values.data() + at, 1);
    for (const SlotView& slot : block.slots) {
      if (slot.values.size() == block.values.size()) __builtin_prefetch(slot.values.data() + at, 1);
    }
  }
}

// Calls `apply(row of the block, its gradient)` for each of `rows`.
template <typename Apply>
void ForEachRow(const ParameterBlock& block, absl::Span<const int64_t> rows, const float* gradient,
                int64_t first_row, const Apply& apply) {
  constexpr size_t kAhead = 8;
  for (size_t i = 0; i < std::min(kAhead, rows.size()); ++i) FetchRow(block, rows[i] - first_row);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + kAhead < rows.size()) FetchRow(block, rows[i + kAhead] - first_row);
    apply(rows[i] - first_row, gradient + static_cast<int64_t>(i) * block.width);
  }
}

void AdamSparse(const OptimizerStep& step, const ParameterBlock& block,
                absl::Span<const int64_t> rows, const float* gradient, int64_t first_row) {
  internal::AdamRate rate(step);
  ForEachRow(block, rows, gradient, first_row, [&](int64_t row, const float* row_gradient) {
    int32_t& t = block.slots[2].counts[row];
    Count(t);
    internal::AdamRun(step, rate.At(t), RunAt(block, row, 1, row_gradient));
  });
}

void RowwiseAdagradRow(const OptimizerStep& step, const ParameterBlock& block, int64_t row,
                       const float* gradient) {
  internal::RowwiseAdagradRun(step, block.slots[0].values[row],
                              {block.values.data() + row * block.width, gradient, {}, block.width});
}

absl::Status CheckSlot(OptimizerKind optimizer, const ParameterBlock& block, size_t slot,
                       SlotSpec::Kind kind) {
  const size_t wanted =
      kind == SlotSpec::Kind::kValues ? block.values.size() : static_cast<size_t>(block.rows());
  const size_t got = kind == SlotSpec::Kind::kRowCounts ? block.slots[slot].counts.size()
                                                        : block.slots[slot].values.size();
  if (got == wanted) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(OptimizerName(optimizer), " was given ", got,
                                          " elements of slot ", slot, " for a block that needs ",
                                          wanted));
}

}  // namespace

absl::Status CheckBlock(const OptimizerStep& step, const ParameterBlock& block) {
  if (block.width < 0 || (block.width > 0 && block.values.size() % block.width != 0)) {
    return absl::InternalError(absl::StrCat("a block of ", block.values.size(),
                                            " elements is not made of rows of ", block.width));
  }
  const std::vector<SlotSpec::Kind> kinds = SlotKindsOf(step);
  for (size_t slot = 0; slot < kinds.size(); ++slot) {
    if (absl::Status status = CheckSlot(step.kind, block, slot, kinds[slot]); !status.ok())
      return status;
  }
  return absl::OkStatus();
}

void ApplyDense(const OptimizerStep& step, const ParameterBlock& block,
                absl::Span<const float> gradient) {
  if (step.kind == OptimizerKind::kAdam) return AdamDense(step, block, gradient.data());
  if (step.kind == OptimizerKind::kRowwiseAdagrad) {
    for (int64_t row = 0; row < block.rows(); ++row)
      RowwiseAdagradRow(step, block, row, gradient.data() + row * block.width);
    return;
  }
  ApplyRun(step, RunAt(block, 0, block.rows(), gradient.data()));
}

void ApplySparse(const OptimizerStep& step, const ParameterBlock& block,
                 absl::Span<const int64_t> rows, absl::Span<const float> gradient,
                 int64_t first_row) {
  if (step.kind == OptimizerKind::kAdam)
    return AdamSparse(step, block, rows, gradient.data(), first_row);
  ForEachRow(block, rows, gradient.data(), first_row, [&](int64_t row, const float* row_gradient) {
    if (step.kind == OptimizerKind::kRowwiseAdagrad)
      return RowwiseAdagradRow(step, block, row, row_gradient);
    ApplyRun(step, RunAt(block, row, 1, row_gradient));
  });
}

}  // namespace divvy
