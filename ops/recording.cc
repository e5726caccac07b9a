#include "ops/recording.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "ops/tape_state.h"

namespace divvy {
namespace internal {
namespace {

std::shared_ptr<VarNode> Failed(absl::Status reason) {
  auto node = std::make_shared<VarNode>();
  node->status = std::move(reason);
  return node;
}

std::shared_ptr<VarNode> Holding(Tensor value) {
  auto node = std::make_shared<VarNode>();
  node->value = std::move(value);
  return node;
}

// A constant that a program makes on the CPU is moved to the tape's GPU, because operands must be
// on one device.
std::shared_ptr<VarNode> Constant(Tensor value) {
  TapeState* const tape = TapeState::Innermost();
  if (tape == nullptr || value.device().kind != Device::Kind::kCpu)
    return Holding(std::move(value));
  absl::StatusOr<Tensor> there = value.To(tape->variables().device());
  return there.ok() ? Holding(*std::move(there)) : Failed(there.status());
}

VarNode& Fetched(const Var& var) {
  VarNode& node = *var.node();
  if (node.pending) node.tape->Flush();
  return node;
}

}  // namespace

Var FailedVar(absl::Status reason) { return Var(Failed(std::move(reason))); }

const Tensor& ValueOf(const Var& var) { return Fetched(var).value; }

bool NeedsGradient(const Var& var) {
  const VarNode& node = *var.node();
  return node.needs_gradient && node.tape->records();
}

absl::Status FirstError(absl::Span<const Var> inputs) {
  for (const Var& input : inputs) {
    if (const VarNode& node = Fetched(input); !node.status.ok()) return node.status;
  }
  return absl::OkStatus();
}

Var Result(Tensor value, absl::Span<const Var> inputs, Backward backward) {
  Var result(std::move(value));
  TapeState* tape = nullptr;
  Operation operation;
  operation.inputs.reserve(inputs.size());
  for (const Var& input : inputs) {
    const bool needed = NeedsGradient(input);
    operation.inputs.push_back(needed ? input.node() : nullptr);
    if (!needed) continue;
    if (tape != nullptr && tape != input.node()->tape) {
      return FailedVar(
          absl::InvalidArgumentError("an operation has operands that were recorded on different "
                                     "tapes; use one GradientTape for both"));
    }
    tape = input.node()->tape;
  }
  if (tape == nullptr) return result;
  result.node()->tape = tape;
  result.node()->needs_gradient = true;
  operation.output = result.node();
  operation.backward = std::move(backward);
  tape->AddOperation(std::move(operation));
  return result;
}

}  // namespace internal

Var::Var(Tensor constant) : node_(internal::Constant(std::move(constant))) {}

Var::Var(const Nest& leaf) {
  absl::StatusOr<Tensor> tensor = leaf.tensor();
  node_ = tensor.ok() ? internal::Constant(*std::move(tensor)) : internal::Failed(tensor.status());
}

Var::Var(double scalar) : node_(internal::Holding(Tensor::Scalar(static_cast<float>(scalar)))) {
  node_->adapts = true;
  node_->scalar = scalar;
}

const Shape& Var::shape() const {
  static const Shape* const none = new Shape();
  const internal::VarNode& node = internal::Fetched(*this);
  return node.status.ok() ? node.value.shape() : *none;
}

DType Var::dtype() const { return internal::Fetched(*this).value.dtype(); }

absl::Status Var::status() const { return internal::Fetched(*this).status; }

absl::StatusOr<Tensor> Var::Value() const {
  const internal::VarNode& node = internal::Fetched(*this);
  if (!node.status.ok()) return node.status;
  return node.value;
}

}  // namespace divvy
