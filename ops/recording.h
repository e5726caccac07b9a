// How operations are written: what a Var holds, and how an operation's result gets its derivative.
// For ops/ and for libraries that add operations without holding the tape (a collective of
// strategy/); programs use GradientTape::Record. Used on the tape's thread.
//
//   Var Doubled(const Var& x) {
//     if (const absl::Status error = FirstError({x}); !error.ok()) return FailedVar(error);
//     // from ValueOf(x)
//     const Tensor y = ...;
//     return Result(y, {x}, [](const Tensor& gradient) ->
//     absl::StatusOr<std::vector<std::optional<Tensor>>> { ... });
//   }
#ifndef DIVVY_OPS_RECORDING_H_
#define DIVVY_OPS_RECORDING_H_

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ops/var.h"
#include "tensor/tensor.h"

namespace divvy::internal {

class TapeState;

// What Vars are handles of.
struct VarNode {
  absl::Status status;             // why there is no value
  Tensor value;                    // once it is no longer pending
  TapeState* tape = nullptr;       // null: a constant
  bool pending = false;            // asked for, not yet fetched
  bool needs_gradient = false;     // recorded: a leaf, or computed from one
  bool adapts = false;             // a C++ scalar: takes the other operand's dtype
  double scalar = 0;               // of one that adapts, in full
  std::optional<Tensor> gradient;  // while Gradient runs
};

// One gradient for each input, in their order; none where the input needs no gradient. Called at
// most once: it may use up what it captured.
using Backward =
    std::function<absl::StatusOr<std::vector<std::optional<Tensor>>>(const Tensor& gradient)>;

Var FailedVar(absl::Status reason);  // REQUIRES: not OK
// The value, fetched if it was pending. REQUIRES: status() was OK.
const Tensor& ValueOf(const Var& var);
// Whether a derivative with respect to `var` is wanted: an operation computes and keeps nothing for
// the others.
bool NeedsGradient(const Var& var);
// The first error among them, fetching what is pending.
absl::Status FirstError(absl::Span<const Var> inputs);

// The result of an operation on `inputs`. Recorded on their tape if one of them needs a gradient,
// else a constant and `backward` is dropped; so make closures that are dear only where
// NeedsGradient. Failed with InvalidArgument: inputs recorded on different tapes.
Var Result(Tensor value, absl::Span<const Var> inputs, Backward backward);

}  // namespace divvy::internal

#endif  // DIVVY_OPS_RECORDING_H_
