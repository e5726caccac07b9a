#include "optimizers/apply.h"

#include <algorithm>
#include <limits>

#include "absl/base/attributes.h"
#include "absl/strings/str_cat.h"
#include "base/vector_level.h"
#include "optimizers/adagrad_kernel.h"
#include "optimizers/adam_kernel.h"
#include "optimizers/ftrl_kernel.h"
#include "optimizers/momentum_kernel.h"
#include "optimizers/rms_prop_kernel.h"
#include "optimizers/run.h"
#include "optimizers/sgd_kernel.h"

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

// Calls use(kernel) with the kernel of a step whose rows all count alike.
template <typename Use>
void WithKernel(const OptimizerStep& step, const Use& use) {
  switch (step.kind) {
    case OptimizerKind::kSgd: return use(internal::SgdKernel{step});
    case OptimizerKind::kMomentum:
      return step.nesterov ? use(internal::MomentumKernel<true>{step})
                           : use(internal::MomentumKernel<false>{step});
    case OptimizerKind::kAdagrad: return use(internal::AdagradKernel{step});
    case OptimizerKind::kRmsProp:
      if (step.momentum > 0)
        return step.centered ? use(internal::RmsPropKernel<true, true>{step})
                             : use(internal::RmsPropKernel<true, false>{step});
      return step.centered ? use(internal::RmsPropKernel<false, true>{step})
                           : use(internal::RmsPropKernel<false, false>{step});
    case OptimizerKind::kFtrl:
      return step.learning_rate_power == -0.5f
                 ? use(internal::FtrlKernel<internal::FtrlRootPower>{step})
                 : use(internal::FtrlKernel<internal::FtrlAnyPower>{step});
    case OptimizerKind::kAdam:            // needs the t of its rows: AdamDense, AdamSparse
    case OptimizerKind::kRowwiseAdagrad:  // go by row: ApplyRow
    case OptimizerKind::kGroupFtrl: return;
  }
}

void Count(int32_t& t) {
  if (t < std::numeric_limits<int32_t>::max()) ++t;
}

// Consecutive rows with the same t form one run. Usually this is the whole block.
template <bool Amsgrad>
void AdamDense(const OptimizerStep& step, const ParameterBlock& block, const float* gradient) {
  internal::AdamRate rate(step);
  const absl::Span<int32_t> t = block.slots[2].counts;
  const int64_t rows = block.rows();
  for (int64_t begin = 0, end; begin < rows; begin = end) {
    end = std::find_if(t.begin() + begin, t.begin() + rows,
                       [before = t[begin]](int32_t other) { return other != before; }) -
          t.begin();
    std::for_each(t.begin() + begin, t.begin() + end, Count);
    const float corrected = rate.At(t[begin]);
    const Run run = RunAt(block, begin, end - begin, gradient + begin * block.width);
    AtVectorLevel([&] { internal::AdamKernel<Amsgrad>{step}(corrected, run); });
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

template <bool Amsgrad>
void AdamSparse(const OptimizerStep& step, const ParameterBlock& block,
                absl::Span<const int64_t> rows, const float* gradient, int64_t first_row) {
  internal::AdamRate rate(step);
  AtVectorLevel([&] {
    ForEachRow(block, rows, gradient, first_row, [&](int64_t row, const float* row_gradient) {
      int32_t& t = block.slots[2].counts[row];
      Count(t);
      internal::AdamKernel<Amsgrad>{step}(rate.At(t), RunAt(block, row, 1, row_gradient));
    });
  });
}

void RowwiseAdagradRow(const OptimizerStep& step, const ParameterBlock& block, int64_t row,
                       const float* gradient) {
  internal::RowwiseAdagradKernel{step}(
      block.slots[0].values[row],
      {block.values.data() + row * block.width, gradient, {}, block.width});
}

void GroupFtrlRow(const OptimizerStep& step, const ParameterBlock& block, int64_t row,
                  const float* gradient) {
  const Run run = RunAt(block, row, 1, gradient);
  return step.learning_rate_power == -0.5f
             ? internal::GroupFtrlKernel<internal::FtrlRootPower>{step}(run)
             : internal::GroupFtrlKernel<internal::FtrlAnyPower>{step}(run);
}

// Whether the elements of a row depend on each other, so that ApplyRow takes one row after another.
bool GoesByRow(OptimizerKind kind) {
  return kind == OptimizerKind::kRowwiseAdagrad || kind == OptimizerKind::kGroupFtrl;
}

void ApplyRow(const OptimizerStep& step, const ParameterBlock& block, int64_t row,
              const float* gradient) {
  return step.kind == OptimizerKind::kGroupFtrl ? GroupFtrlRow(step, block, row, gradient)
                                                : RowwiseAdagradRow(step, block, row, gradient);
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
  if (step.kind == OptimizerKind::kAdam) {
    return step.amsgrad ? AdamDense<true>(step, block, gradient.data())
                        : AdamDense<false>(step, block, gradient.data());
  }
  if (GoesByRow(step.kind)) {
    return AtVectorLevel([&] {
      for (int64_t row = 0; row < block.rows(); ++row)
        ApplyRow(step, block, row, gradient.data() + row * block.width);
    });
  }
  const Run run = RunAt(block, 0, block.rows(), gradient.data());
  WithKernel(step, [&](const auto& kernel) { AtVectorLevel([&] { kernel(run); }); });
}

void ApplySparse(const OptimizerStep& step, const ParameterBlock& block,
                 absl::Span<const int64_t> rows, absl::Span<const float> gradient,
                 int64_t first_row) {
  if (step.kind == OptimizerKind::kAdam) {
    return step.amsgrad ? AdamSparse<true>(step, block, rows, gradient.data(), first_row)
                        : AdamSparse<false>(step, block, rows, gradient.data(), first_row);
  }
  const auto for_each_row = [&](const auto& apply) {
    AtVectorLevel([&] { ForEachRow(block, rows, gradient.data(), first_row, apply); });
  };
  if (GoesByRow(step.kind)) {
    return for_each_row(
        [&](int64_t row, const float* row_gradient) { ApplyRow(step, block, row, row_gradient); });
  }
  WithKernel(step, [&](const auto& kernel) {
    for_each_row([&](int64_t row, const float* row_gradient) {
      kernel(RunAt(block, row, 1, row_gradient));
    });
  });
}

}  // namespace divvy
