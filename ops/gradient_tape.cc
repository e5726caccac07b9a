#include "ops/gradient_tape.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/backends.h"
#include "ops/lookup.h"
#include "ops/recording.h"
#include "ops/tape_state.h"
#include "ops/tensors.h"
#include "ops/unique_ids.h"

namespace divvy {
namespace {

using UserBackward = std::function<absl::StatusOr<std::vector<Tensor>>(const Tensor& gradient)>;

// The rows of all ids, from the rows of the unique ids. Null: there are no duplicates.
absl::StatusOr<Tensor> Expanded(const std::shared_ptr<const internal::UniqueIds>& unique,
                                const Tensor& rows) {
  if (unique == nullptr) return rows;
  ASSIGN_OR_RETURN(const internal::Backend* backend, internal::BackendFor(rows.device()));
  ASSIGN_OR_RETURN(const Tensor places, unique->PlacesOn(rows.device()));
  ASSIGN_OR_RETURN(Tensor all, internal::NewLike(rows, rows.shape().WithRows(unique->num_ids())));
  RETURN_IF_ERROR(backend->GatherRows(rows, places, all));
  return all;
}

// Adds the leaf of a lookup. Duplicate ids are removed, so each row is sent once.
Var AddLookup(internal::TapeState& state, absl::string_view table,
              absl::StatusOr<internal::LookupPlan> plan) {
  if (!plan.ok())
    return internal::FailedVar(absl::Status(
        plan.status().code(), absl::StrCat("table ", table, ": ", plan.status().message())));
  internal::Leaf& leaf = state.AddPending(table);
  leaf.ids = plan->ids;
  const std::shared_ptr<const internal::UniqueIds> unique = internal::UniqueOf(plan->ids);
  leaf.read_ids = unique != nullptr ? unique->unique() : plan->ids;
  // The gradient needs the shape of the rows, and with max_norm the rows themselves.
  auto rows_read = state.records() ? std::make_shared<Tensor>() : nullptr;
  leaf.from_rows = [from_rows = std::move(plan->from_rows), unique,
                    rows_read](const Tensor& rows) -> absl::StatusOr<Tensor> {
    ASSIGN_OR_RETURN(const Tensor all, Expanded(unique, rows));
    if (rows_read != nullptr) *rows_read = all;
    return from_rows(all);
  };
  if (rows_read == nullptr) return Var(leaf.node);
  leaf.to_rows = [to_rows = std::move(plan->to_rows), rows_read](const Tensor& gradient) {
    return to_rows(*rows_read, gradient);
  };
  return Var(leaf.node);
}

absl::Status CheckUserGradient(const Tensor& gradient, const Tensor& input, size_t index) {
  if (gradient.dtype() == input.dtype() && gradient.shape() == input.shape())
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("Record: backward's gradient of input ", index,
                                                 " is ", gradient.ToString(), "; the input is ",
                                                 input.ToString()));
}

// Wraps a user's function as the backward function of an operation. Its results are checked, and
// dropped where they are not needed.
internal::Backward Checked(UserBackward backward, std::vector<Var> inputs) {
  return [backward = std::move(backward), inputs = std::move(inputs)](
             const Tensor& gradient) -> absl::StatusOr<std::vector<std::optional<Tensor>>> {
    ASSIGN_OR_RETURN(std::vector<Tensor> gradients, backward(gradient));
    if (gradients.size() != inputs.size()) {
      return absl::InvalidArgumentError(absl::StrCat("Record: backward gave ", gradients.size(),
                                                     " gradients for ", inputs.size(), " inputs"));
    }
    std::vector<std::optional<Tensor>> checked(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].node()->needs_gradient) continue;
      RETURN_IF_ERROR(CheckUserGradient(gradients[i], internal::ValueOf(inputs[i]), i));
      checked[i] = std::move(gradients[i]);
    }
    return checked;
  };
}

}  // namespace

GradientTape::GradientTape(VariableReader& variables, Mode mode)
    : state_(std::make_unique<internal::TapeState>(variables, mode == Mode::kTraining)),
      mode_(mode) {}

GradientTape::~GradientTape() = default;

uint64_t GradientTape::seed() const { return state_->variables().seed(); }

Var GradientTape::Read(absl::string_view variable) & {
  internal::Leaf& leaf = state_->Whole(variable);
  leaf.asked = true;
  return Var(leaf.node);
}

void GradientTape::Prefetch(absl::Span<const std::string> variables) {
  for (const std::string& variable : variables) state_->Whole(variable);
}

Var GradientTape::Lookup(absl::string_view table, const Var& ids, const LookupOptions& options) & {
  if (const absl::Status status = ids.status(); !status.ok()) return internal::FailedVar(status);
  return AddLookup(*state_, table, internal::PlanLookup(internal::ValueOf(ids), options));
}

Var GradientTape::LookupSparse(absl::string_view table, const Nest& sparse_ids, Combiner combiner,
                               const LookupOptions& options) & {
  return AddLookup(*state_, table, internal::PlanLookupSparse(sparse_ids, combiner, options));
}

Var GradientTape::Watch(absl::string_view name, Tensor value) & {
  const bool is_here = value.device().kind == Device::Kind::kCpu;
  absl::StatusOr<Tensor> there = value.To(is_here ? state_->variables().device() : value.device());
  if (!there.ok()) return internal::FailedVar(there.status());
  absl::StatusOr<std::shared_ptr<internal::VarNode>> node =
      state_->AddWatched(name, *std::move(there));
  return node.ok() ? Var(*std::move(node)) : internal::FailedVar(node.status());
}

Var GradientTape::Record(Tensor value, std::vector<Var> inputs, UserBackward backward) & {
  if (const absl::Status status = internal::FirstError(inputs); !status.ok())
    return internal::FailedVar(status);
  internal::Backward checked = Checked(std::move(backward), inputs);
  return internal::Result(std::move(value), inputs, std::move(checked));
}

absl::StatusOr<Gradients> GradientTape::Gradient(const Var& target) {
  return state_->Differentiate(target.node());
}

absl::StatusOr<Gradients> GradientTape::GradientOfSum(const Var& target, double scale) {
  return state_->DifferentiateSum(target.node(), scale);
}

}  // namespace divvy
