#include "strategy/testing/map_variable_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/duplicates.h"
#include "kernels/elements.h"

namespace divvy {
namespace {

absl::Status Apply(const StagedWrite& write, Tensor& target) {
  if (!TakesElements(write.op, target.dtype())) {
    return absl::InvalidArgumentError(
        absl::StrCat(WriteOpName(write.op), ": there is no arithmetic for ", target.ToString()));
  }
  ASSIGN_OR_RETURN(Tensor updated, Tensor::Uninitialized(target.dtype(), target.shape()));
  if (target.size_bytes() > 0)
    std::memcpy(updated.fresh_data<char>(), target.data(), target.size_bytes());
  const int64_t width = write.ids ? target.shape().row_elements() : target.shape().num_elements();
  const int64_t rows = write.ids ? write.ids->shape().num_elements() : 1;
  const int64_t bytes = width * DTypeSize(target.dtype());
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t row = write.ids ? write.ids->data_as<int64_t>()[i] : 0;
    ApplyElements(write.op, target.dtype(), updated.fresh_data<char>() + row * bytes,
                  write.value.data_as<char>() + i * bytes, width);
  }
  target = std::move(updated);
  return absl::OkStatus();
}

VariableInfo InfoOf(const VariableLayout& variable) {
  return {variable.spec, variable.offsets, variable.ps};
}

}  // namespace

MapVariableStore::MapVariableStore(uint64_t job_seed) : job_seed_(job_seed) {}

absl::StatusOr<VariableInfo> MapVariableStore::Find(absl::string_view name) const {
  MutexLock lock(mu_);
  const VariableLayout* variable = layout_->Find(name);
  if (variable == nullptr) return layout_->UnknownVariable(name);
  return InfoOf(*variable);
}

std::optional<Colocation> MapVariableStore::ColocationOf(absl::string_view name) const {
  MutexLock lock(mu_);
  const auto found = colocations_.find(name);
  return found == colocations_.end() ? std::nullopt : std::optional<Colocation>(found->second);
}

absl::StatusOr<VariableInfo> MapVariableStore::Create(const VariableSpec& spec,
                                                      const std::optional<Colocation>& with) {
  RETURN_IF_ERROR(Validate(spec));
  const int64_t rows = spec.shape.rows();
  ASSIGN_OR_RETURN(Tensor value, InitialRows(spec.initializer, {job_seed_, spec.name, spec.shape},
                                             spec.dtype, 0, rows));
  MutexLock lock(mu_);
  if (layout_->Find(spec.name) != nullptr)
    return absl::AlreadyExistsError(
        absl::StrCat("there is a variable \"", spec.name, "\" already"));
  VariableLayout variable;
  variable.id = VariableId(static_cast<uint32_t>(values_.size() + 1));
  variable.spec = spec;
  variable.spec.initializer = Zeros();
  variable.spec.partitioner.reset();
  variable.offsets = {0, rows};
  variable.ps = {0};  // there is one, so `with` changes nothing
  layout_ = layout_->With(variable);
  values_.emplace(spec.name, std::move(value));
  if (with) colocations_.emplace(spec.name, *with);
  return InfoOf(variable);
}

absl::Status MapVariableStore::Read(absl::Span<ReadRequest> requests) {
  MutexLock lock(mu_);
  ++num_reads_;
  for (ReadRequest& request : requests) RETURN_IF_ERROR(ReadOne(request));
  return absl::OkStatus();
}

absl::Status MapVariableStore::ReadOne(ReadRequest& request) const {
  RETURN_IF_ERROR(CheckRead(*layout_, {request.name, request.ids}));
  if (graded_.count(request.name) > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("\"", request.name,
                     "\" has a gradient staged in this step; read it before ApplyGradients"));
  }
  const Tensor& value = values_.find(request.name)->second;
  request.num_rows = value.shape().rows();
  request.value = value;
  if (!request.ids) return absl::OkStatus();
  ASSIGN_OR_RETURN(Tensor ids, request.ids->Reshape({-1}));
  ASSIGN_OR_RETURN(request.value, Tensor::Uninitialized(
                                      value.dtype(), value.shape().WithRows(ids.shape().dim(0))));
  const int64_t row_bytes = value.shape().row_elements() * DTypeSize(value.dtype());
  for (int64_t i = 0; i < ids.shape().dim(0); ++i) {
    std::memcpy(request.value.fresh_data<char>() + i * row_bytes,
                value.data_as<char>() + ids.data_as<int64_t>()[i] * row_bytes, row_bytes);
  }
  return absl::OkStatus();
}

absl::Status MapVariableStore::CheckWrites(const std::vector<StagedWrite>& writes) const {
  std::set<std::string> graded = graded_;
  for (const StagedWrite& write : writes) {
    if (kind_ == Kind::kReadOnly)
      return absl::FailedPreconditionError(
          absl::StrCat(WriteOpName(write.op), " of \"", write.variable, "\" in a read-only step"));
    RETURN_IF_ERROR(CheckWrite(*layout_, write));
    if (write.op == WriteOp::kGradient && !graded.insert(write.variable).second) {
      return absl::FailedPreconditionError(
          absl::StrCat("\"", write.variable,
                       "\" has a gradient in this step already; apply all in one ApplyGradients"));
    }
  }
  return absl::OkStatus();
}

absl::Status MapVariableStore::Write(std::vector<StagedWrite> writes) {
  RETURN_IF_ERROR(CopyToCpu(writes));
  MutexLock lock(mu_);
  RETURN_IF_ERROR(CheckWrites(writes));
  for (const StagedWrite& write : writes) {
    Tensor& value = values_.find(write.variable)->second;
    if (write.op == WriteOp::kGradient) graded_.insert(write.variable);
    RETURN_IF_ERROR(write.op == WriteOp::kGradient ? ApplyGradient(write, value)
                                                   : Apply(write, value));
  }
  return absl::OkStatus();
}

std::vector<SlotView> MapVariableStore::SlotsFor(const std::string& variable,
                                                 const Optimizer& optimizer) {
  std::vector<SlotView> views;
  for (const SlotSpec& spec : SlotsOf(optimizer)) {
    const auto [found, made] =
        slots_.try_emplace(absl::StrCat(variable, "/", OptimizerName(optimizer), "/", spec.name));
    Slot& slot = found->second;
    const int64_t elements = spec.ShapeFor(layout_->Find(variable)->spec.shape).num_elements();
    if (made && spec.kind == SlotSpec::Kind::kRowCounts)
      slot.counts.assign(elements, 0);
    else if (made)
      slot.values.assign(elements, spec.initial_value);
    views.push_back({absl::MakeSpan(slot.values), absl::MakeSpan(slot.counts)});
  }
  return views;
}

absl::Status MapVariableStore::ApplyGradient(const StagedWrite& write, Tensor& value) {
  const Optimizer& optimizer = OptimizerOf(*layout_, write);
  ParameterBlock block;
  ASSIGN_OR_RETURN(block.values, value.mutable_values<float>());
  block.width = value.shape().row_elements();
  const std::vector<SlotView> slots = SlotsFor(write.variable, optimizer);
  std::copy(slots.begin(), slots.end(), block.slots.begin());
  ASSIGN_OR_RETURN(absl::Span<const float> gradient, write.value.values<float>());
  if (!write.ids) {
    ApplyDense(StepOf(optimizer, ordinal_), block, gradient);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(absl::Span<const int64_t> ids, write.ids->values<int64_t>());
  const RowGroups groups = GroupById(ids);
  std::vector<float> sums(groups.ids.size() * block.width);
  SumGroups(groups, gradient.data(), block.width, sums.data());
  ApplySparse(StepOf(optimizer, ordinal_), block, groups.ids, sums);
  return absl::OkStatus();
}

void MapVariableStore::BeginStep(int64_t ordinal, Kind kind) {
  MutexLock lock(mu_);
  ordinal_ = ordinal;
  kind_ = kind;
  graded_.clear();
}

int64_t MapVariableStore::num_reads() const {
  MutexLock lock(mu_);
  return num_reads_;
}

absl::StatusOr<Tensor> MapVariableStore::Value(absl::string_view name) const {
  MutexLock lock(mu_);
  const auto it = values_.find(name);
  if (it == values_.end()) return layout_->UnknownVariable(name);
  return it->second;
}

}  // namespace divvy
