// A value in a computation.
#ifndef DIVVY_OPS_VAR_H_
#define DIVVY_OPS_VAR_H_

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensor/nest.h"
#include "tensor/tensor.h"

namespace divvy {

namespace internal {
struct VarNode;
}  // namespace internal

// A value in a computation: a constant, or something that a GradientTape knows the derivative of.
// Errors travel: an operation on a failed Var is failed, with the first reason (operation, shapes).
// So expressions stay expressions, and one check at the end (Gradient, Value) suffices. A handle,
// cheap to copy. Used on its tape's thread; REQUIRES: the tape outlives it. A constant belongs to
// no tape: it is used on one thread at a time. One that is made of a tensor on the CPU while a tape
// lives on the thread goes to where the youngest computes. What was recorded on two tapes does not
// meet: InvalidArgument.
//
//   // the one check of all that the expression did
//   const absl::StatusOr<Tensor> loss = ReduceMean(losses).Value();
// A variable that was only asked for is *pending*: shape, status and Value fetch it, and all else
// that is pending on its tape, and block meanwhile.
class Var {
 public:
  Var(Tensor constant);
  Var(const Nest& leaf);  // failed if it holds no tensor
  // A literal: float32 alone, and beside another operand its number in that one's dtype, rounded
  // once: 0.1 is float64's own 0.1 there. (0.1f is what a float has of it; write 0.1.)
  Var(double scalar);

  const Shape& shape() const;  // rank 0 if failed
  DType dtype() const;         // float32 if failed
  absl::Status status() const;
  // Where the tape computes: on a GPU it may still be being computed, and Tensor::To(Device())
  // waits for it. The reason if failed.
  absl::StatusOr<Tensor> Value() const;

  // For operations, which are written with ops/recording.h.
  explicit Var(std::shared_ptr<internal::VarNode> node) : node_(std::move(node)) {}
  const std::shared_ptr<internal::VarNode>& node() const { return node_; }

 private:
  std::shared_ptr<internal::VarNode> node_;
};

}  // namespace divvy

#endif  // DIVVY_OPS_VAR_H_
