// Var: a value in a computation.
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

// A value in a computation: a constant, or a value whose derivative a GradientTape knows. A Var is
// a handle and cheap to copy.
//
// Errors propagate: an operation on a failed Var gives a failed Var with the first reason
// (operation and shapes). So expressions need no checks inside, and one check at the end (Gradient
// or Value) suffices:
//
//   const absl::StatusOr<Tensor> loss = ReduceMean(losses).Value();
//
// A variable that was asked for but not yet fetched is *pending*. shape, status and Value fetch
// everything that is pending on its tape and block until it is there.
//
// Threads and lifetime: use a Var on its tape's thread. REQUIRES: the tape outlives it. A constant
// belongs to no tape; use it on one thread at a time. A constant that is made from a CPU tensor is
// copied to the device of the innermost tape on this thread, if there is one. An operation on
// values that were recorded on two different tapes fails with InvalidArgument.
class Var {
 public:
  // A constant: no gradient flows into it.
  Var(Tensor constant);
  Var(const Nest& leaf);  // fails if the leaf is not a tensor
  // A literal number. By itself it is a float32. Beside another operand it takes that operand's
  // dtype and is rounded once: with a float64 operand, 0.1 is the double 0.1. Write 0.1 rather than
  // 0.1f, which has already been rounded to a float.
  Var(double scalar);

  // These three fetch a pending variable, and block meanwhile.
  const Shape& shape() const;  // rank 0 if failed
  DType dtype() const;         // float32 if failed
  absl::Status status() const;
  // The value, on the tape's device. On a GPU it may still be computed; Tensor::To(Device()) waits
  // for it. If this Var is failed: its reason.
  absl::StatusOr<Tensor> Value() const;

  // For the authors of operations; see ops/recording.h.
  explicit Var(std::shared_ptr<internal::VarNode> node) : node_(std::move(node)) {}
  const std::shared_ptr<internal::VarNode>& node() const { return node_; }

 private:
  std::shared_ptr<internal::VarNode> node_;
};

}  // namespace divvy

#endif  // DIVVY_OPS_VAR_H_
