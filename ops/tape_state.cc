#include "ops/tape_state.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/backends.h"
#include "ops/tensors.h"

namespace divvy::internal {
namespace {

absl::Status CheckRead(const ReadRequest& request) {
  const Shape& shape = request.value.shape();
  if (!request.ids || (shape.rank() >= 1 && shape.dim(0) == request.ids->shape().num_elements()))
    return absl::OkStatus();
  return absl::InternalError(absl::StrCat("reading ", request.ids->shape().num_elements(),
                                          " rows of ", request.name, " gave ",
                                          request.value.ToString()));
}

void Fill(ReadRequest request, Leaf& leaf) {
  VarNode& node = *leaf.node;
  node.pending = false;
  node.status = CheckRead(request);
  if (!node.status.ok()) return;
  leaf.num_rows = request.num_rows;
  if (!leaf.from_rows) {
    node.value = std::move(request.value);
    return;
  }
  absl::StatusOr<Tensor> value = leaf.from_rows(request.value);
  node.status = value.status();
  if (value.ok()) node.value = *std::move(value);
}

absl::StatusOr<Tensor> Sum(const Tensor& a, const Tensor& b) {
  ASSIGN_OR_RETURN(const Backend* backend, BackendFor(a.device()));
  ASSIGN_OR_RETURN(const Tensor wide_a, CastTo(*backend, a, SummedIn(a.dtype())));
  ASSIGN_OR_RETURN(const Tensor wide_b, CastTo(*backend, b, SummedIn(b.dtype())));
  ASSIGN_OR_RETURN(Tensor sum, NewLike(wide_a));
  backend->Binary(BinaryOp::kAdd, wide_a, wide_b, sum);
  return CastTo(*backend, sum, a.dtype());
}

absl::Status Accumulate(VarNode& node, Tensor gradient) {
  if (node.gradient) {
    ASSIGN_OR_RETURN(node.gradient, Sum(*node.gradient, gradient));
  } else {
    node.gradient = std::move(gradient);
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> Joined(const Tensor& a, const Tensor& b) {
  ASSIGN_OR_RETURN(const Backend* backend, BackendFor(a.device()));
  ASSIGN_OR_RETURN(
      Tensor joined,
      Tensor::Uninitialized(a.dtype(), a.shape().WithRows(a.shape().dim(0) + b.shape().dim(0)),
                            a.device()));
  char* to = joined.fresh_data<char>();
  backend->CopyBlocks(joined.device(), a.data(), 0, to, 0, a.size_bytes(), 1);
  backend->CopyBlocks(joined.device(), b.data(), 0, to + a.size_bytes(), 0, b.size_bytes(), 1);
  return joined;
}

// A table may be looked up several times. It gets one entry with the ids of all lookups.
absl::Status AddSlices(const std::string& name, IndexedSlices slices, Gradients& gradients) {
  const auto found = gradients.entries().find(name);
  if (found != gradients.entries().end()) {
    const auto& before = std::get<IndexedSlices>(found->second);
    ASSIGN_OR_RETURN(slices.ids, Joined(before.ids, slices.ids));
    ASSIGN_OR_RETURN(slices.rows, Joined(before.rows, slices.rows));
  }
  gradients.Set(name, std::move(slices));
  return absl::OkStatus();
}

// For each operation, the leaves whose gradients are complete once the walk back has passed it,
// because it is the first operation that uses them. These gradients can be copied from a GPU while
// the GPU computes the others.
class Completions {
 public:
  Completions(absl::Span<const std::unique_ptr<Leaf>> leaves,
              absl::Span<const Operation> operations)
      : completed_by_(operations.size()) {
    std::unordered_set<VarNode*> unused;
    for (const auto& leaf : leaves) unused.insert(leaf->node.get());
    for (size_t i = 0; i < operations.size(); ++i) {
      for (const std::shared_ptr<VarNode>& input : operations[i].inputs) {
        if (unused.erase(input.get()) > 0) completed_by_[i].push_back(input.get());
      }
    }
  }
  void Passed(size_t operation) const {
    if (completed_by_.empty()) return;
    for (const VarNode* const leaf : completed_by_[operation]) {
      if (leaf->gradient) leaf->gradient->MarkWritten();
    }
  }
  Completions() = default;  // for gradients that nobody copies

 private:
  std::vector<std::vector<VarNode*>> completed_by_;
};

std::string NotScalar(const Tensor& value) {
  return absl::StrCat("Gradient: the target is ", value.ToString(),
                      ", not a floating scalar; reduce it with ReduceMean or ReduceSum");
}

// The number 1 on the CPU, from where a GPU's backend can use it.
absl::StatusOr<Tensor> OneOf(DType dtype) {
  ASSIGN_OR_RETURN(const Backend* cpu, BackendFor(Device{}));
  return CastTo(*cpu, Tensor::Scalar<float>(1), dtype);
}

std::vector<TapeState*>& TapesOfThisThread() {
  thread_local std::vector<TapeState*> tapes;
  return tapes;
}

}  // namespace

TapeState::TapeState(VariableReader& variables, bool records)
    : variables_(variables), records_(records) {
  TapesOfThisThread().push_back(this);
}

TapeState::~TapeState() {
  std::vector<TapeState*>& tapes = TapesOfThisThread();
  tapes.erase(std::remove(tapes.begin(), tapes.end(), this), tapes.end());
}

TapeState* TapeState::Innermost() {
  return TapesOfThisThread().empty() ? nullptr : TapesOfThisThread().back();
}

Leaf& TapeState::Whole(absl::string_view name) {
  const auto found = whole_.find(name);
  if (found != whole_.end()) return *found->second;
  Leaf& leaf = AddPending(name);
  whole_.emplace(std::string(name), &leaf);
  return leaf;
}

Leaf& TapeState::AddPending(absl::string_view name) {
  leaves_.push_back(std::make_unique<Leaf>());
  Leaf& leaf = *leaves_.back();
  leaf.name = std::string(name);
  leaf.node = std::make_shared<VarNode>();
  leaf.node->tape = this;
  leaf.node->pending = true;
  leaf.node->needs_gradient = records_;
  pending_.push_back(&leaf);
  return leaf;
}

absl::StatusOr<std::shared_ptr<VarNode>> TapeState::AddWatched(absl::string_view name,
                                                               Tensor value) {
  for (const auto& leaf : leaves_) {
    if (leaf->name != name) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "Watch: ", name, " was watched or read before on this tape; it would have two gradients"));
  }
  Leaf& leaf = AddPending(name);
  pending_.pop_back();
  whole_.emplace(leaf.name, &leaf);
  leaf.asked = true;
  leaf.node->pending = false;
  leaf.node->value = std::move(value);
  return leaf.node;
}

void TapeState::Flush() {
  std::vector<Leaf*> leaves = std::exchange(pending_, {});
  std::vector<ReadRequest> requests(leaves.size());
  for (size_t i = 0; i < leaves.size(); ++i) {
    requests[i].name = leaves[i]->name;
    requests[i].ids = leaves[i]->read_ids;
  }
  const absl::Status status = variables_.Read(absl::MakeSpan(requests));
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (status.ok()) {
      Fill(std::move(requests[i]), *leaves[i]);
    } else {
      leaves[i]->node->pending = false;
      leaves[i]->node->status = status;
    }
  }
  if (!records_) ForgetLookups();
}

void TapeState::ForgetLookups() {
  const auto is_lookup = [](const std::unique_ptr<Leaf>& leaf) { return leaf->ids.has_value(); };
  leaves_.erase(std::remove_if(leaves_.begin(), leaves_.end(), is_lookup), leaves_.end());
}

absl::Status TapeState::CheckDifferentiable(const VarNode& target) const {
  if (!records_)
    return absl::FailedPreconditionError(
        "Gradient: the tape is in inference mode and has recorded nothing");
  if (differentiated_)
    return absl::FailedPreconditionError(
        "Gradient: called before on this tape; the first call frees the recording. Add up the "
        "targets");
  RETURN_IF_ERROR(target.status);
  const Tensor& value = target.value;
  if (!CheckComputedWith("Gradient", value).ok())
    return absl::InvalidArgumentError(NotScalar(value));
  if (target.tape != nullptr && target.tape != this)
    return absl::InvalidArgumentError("Gradient: the target was recorded on another tape");
  return CheckTables();
}

absl::Status TapeState::CheckTables() const {
  for (const auto& leaf : leaves_) {
    if (!leaf->ids) continue;
    const auto whole = whole_.find(leaf->name);
    if (whole == whole_.end() || !whole->second->asked) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("Gradient: ", leaf->name,
                     " was both looked up and read whole (or watched) on this tape: its gradient "
                     "cannot be rows and dense at "
                     "once. Look all of it up, or read it whole only"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Gradients> TapeState::Differentiate(const std::shared_ptr<VarNode>& target) {
  if (target->pending) target->tape->Flush();
  RETURN_IF_ERROR(CheckDifferentiable(*target));
  if (target->value.shape().rank() != 0)
    return absl::InvalidArgumentError(NotScalar(target->value));
  return DifferentiateSum(target, 1);
}

absl::StatusOr<Gradients> TapeState::DifferentiateSum(const std::shared_ptr<VarNode>& target,
                                                      double scale) {
  if (target->pending) target->tape->Flush();
  RETURN_IF_ERROR(CheckDifferentiable(*target));
  differentiated_ = true;
  // From here on nothing is recorded, because the results of the walk back need no derivatives.
  records_ = false;
  if (target->needs_gradient) {
    ASSIGN_OR_RETURN(target->gradient, NewLike(target->value));
    ASSIGN_OR_RETURN(const Backend* backend, BackendFor(target->value.device()));
    ASSIGN_OR_RETURN(const Tensor one, OneOf(target->value.dtype()));
    backend->Broadcast(one, scale, *target->gradient);
  }
  const absl::Status walked = WalkBack(target->value.device());
  operations_.clear();
  RETURN_IF_ERROR(walked);
  return Collect();
}

absl::Status TapeState::WalkBack(Device device) {
  const Completions completions =
      device.kind == Device::Kind::kGpu ? Completions(leaves_, operations_) : Completions();
  // Frees what the operation kept as soon as it has been used.
  for (; !operations_.empty(); operations_.pop_back()) {
    RETURN_IF_ERROR(StepBack(operations_.back()));
    completions.Passed(operations_.size() - 1);
  }
  return absl::OkStatus();
}

absl::Status TapeState::StepBack(Operation& operation) {
  if (!operation.output->gradient) return absl::OkStatus();  // the target does not depend on it
  const Tensor gradient = *std::exchange(operation.output->gradient, std::nullopt);
  ASSIGN_OR_RETURN(std::vector<std::optional<Tensor>> gradients, operation.backward(gradient));
  for (size_t i = 0; i < operation.inputs.size(); ++i) {
    if (operation.inputs[i] == nullptr || !gradients[i]) continue;
    RETURN_IF_ERROR(Accumulate(*operation.inputs[i], *std::move(gradients[i])));
  }
  return absl::OkStatus();
}

absl::StatusOr<Gradients> TapeState::Collect() {
  Gradients gradients;
  for (const auto& leaf : leaves_) {
    std::optional<Tensor> gradient = std::exchange(leaf->node->gradient, std::nullopt);
    if (!gradient) continue;
    if (!leaf->ids) {
      gradients.Set(leaf->name, *std::move(gradient));
      continue;
    }
    ASSIGN_OR_RETURN(Tensor rows, leaf->to_rows(*gradient));
    RETURN_IF_ERROR(AddSlices(
        leaf->name, IndexedSlices{*leaf->ids, std::move(rows), leaf->num_rows}, gradients));
  }
  return gradients;
}

}  // namespace divvy::internal
