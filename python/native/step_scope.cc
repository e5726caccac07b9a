#include "python/native/step_scope.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace divvy::python {
namespace {

thread_local StepScope* current_step = nullptr;

absl::Status BothKinds(const std::string& variable) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", variable,
                   "\" gets a gradient of the whole variable and one of rows in the same step: "
                   "give all of them in one form"));
}

// The parts along axis 0.
absl::StatusOr<Tensor> Joined(const std::vector<Tensor>& parts) {
  if (parts.size() == 1) return parts[0];
  int64_t rows = 0;
  for (const Tensor& part : parts) rows += part.shape().rows();
  DIVVY_ASSIGN_OR_RETURN(Tensor joined,
                         Tensor::Uninitialized(parts[0].dtype(), parts[0].shape().WithRows(rows)));
  char* to = joined.fresh_data<char>();
  for (const Tensor& part : parts) {
    if (part.size_bytes() == 0) continue;
    std::memcpy(to, part.data(), static_cast<size_t>(part.size_bytes()));
    to += part.size_bytes();
  }
  return joined;
}

}  // namespace

absl::Status PendingGradients::AddWhole(const std::string& variable, Tensor gradient) {
  const auto [entry, is_new] = pending_.try_emplace(variable, gradient);
  if (is_new) return absl::OkStatus();
  Tensor* const sum = std::get_if<Tensor>(&entry->second);
  if (sum == nullptr) return BothKinds(variable);
  DIVVY_ASSIGN_OR_RETURN(const absl::Span<const float> more, gradient.values<float>());
  DIVVY_ASSIGN_OR_RETURN(const absl::Span<float> all, sum->mutable_values<float>());
  for (size_t i = 0; i < all.size(); ++i) all[i] += more[i];
  return absl::OkStatus();
}

absl::Status PendingGradients::AddRows(const std::string& variable, IndexedSlices gradient) {
  const auto [entry, is_new] = pending_.try_emplace(variable, Rows());
  Rows* const rows = std::get_if<Rows>(&entry->second);
  if (rows == nullptr) return BothKinds(variable);
  rows->push_back(std::move(gradient));
  return absl::OkStatus();
}

absl::StatusOr<Gradients> PendingGradients::Take() && {
  Gradients gradients;
  for (auto& [variable, pending] : pending_) {
    if (const Tensor* const whole = std::get_if<Tensor>(&pending)) {
      gradients.Set(variable, *whole);
      continue;
    }
    std::vector<Tensor> ids, rows;
    for (const IndexedSlices& part : std::get<Rows>(pending)) {
      ids.push_back(part.ids);
      rows.push_back(part.rows);
    }
    IndexedSlices joined;
    joined.num_rows = std::get<Rows>(pending)[0].num_rows;
    DIVVY_ASSIGN_OR_RETURN(joined.ids, Joined(ids));
    DIVVY_ASSIGN_OR_RETURN(joined.rows, Joined(rows));
    gradients.Set(variable, std::move(joined));
  }
  pending_.clear();
  return gradients;
}

StepScope::StepScope(WorkerContext& worker, ReplicaContext& replica, std::string name,
                     bool read_only)
    : worker_(worker),
      replica_(replica),
      name_(std::move(name)),
      read_only_(read_only),
      outer_(current_step) {
  current_step = this;
}

StepScope::~StepScope() { current_step = outer_; }

StepScope* StepScope::Current() { return current_step; }

void StepScope::Forget() { current_step = nullptr; }

}  // namespace divvy::python
