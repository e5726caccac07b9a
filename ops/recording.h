// The interface for writing operations: the contents of a Var, and how the result of an operation
// gets its derivative. For ops/ and for libraries that add operations without holding the tape (a
// collective of strategy/); programs use GradientTape::Record. Used on the tape's thread.
//
//   Var Doubled(const Var& x) {
//     if (const absl::Status error = FirstError({x}); !error.ok()) return FailedVar(error);
//     const Tensor y = ...;  // computed from ValueOf(x)
//     return Result(y, {x},
//                   [](const Tensor& gradient)
//                       -> absl::StatusOr<std::vector<std::optional<Tensor>>> { ... });
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

// The state that a Var points to.
struct VarNode {
  absl::Status status;             // the reason why there is no value
  Tensor value;                    // set once it is no longer pending
  TapeState* tape = nullptr;       // null: a constant
  bool pending = false;            // asked for, not yet fetched
  bool needs_gradient = false;     // recorded: a leaf, or computed from one
  bool adapts = false;             // a C++ scalar: takes the other operand's dtype
  double scalar = 0;               // its number in full precision, if it adapts
  std::optional<Tensor> gradient;  // set while Gradient runs
};

// Returns one gradient for each input, in their order; nullopt where the input needs none. Called
// at most once, so it may consume what it captured.
using Backward =
    std::function<absl::StatusOr<std::vector<std::optional<Tensor>>>(const Tensor& gradient)>;

Var FailedVar(absl::Status reason);  // REQUIRES: not OK
// The value; fetches it if it is pending. REQUIRES: status() was OK.
const Tensor& ValueOf(const Var& var);
// Whether a derivative with respect to `var` is needed. An operation computes and keeps nothing for
// inputs that need none.
bool NeedsGradient(const Var& var);
// The first error among the inputs. Fetches pending inputs, so it may block.
absl::Status FirstError(absl::Span<const Var> inputs);

// The result of an operation on `inputs`. It is recorded on their tape if one of them needs a
// gradient. Otherwise it is a constant, and `backward` is destroyed; so construct an expensive
// closure only where NeedsGradient. The result is failed with InvalidArgument if the inputs were
// recorded on different tapes.
Var Result(Tensor value, absl::Span<const Var> inputs, Backward backward);

}  // namespace divvy::internal

#endif  // DIVVY_OPS_RECORDING_H_
