#include "strategy/variable_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/gradients.h"

namespace divvy {
namespace {

// Copies all in one call, so that a GPU copies the first ones while it computes the last.
absl::Status CopyToCpu(const std::vector<Tensor*>& places) {
  std::vector<Tensor> tensors;
  for (const Tensor* place : places) tensors.push_back(*place);
  ASSIGN_OR_RETURN(tensors, ToHost(tensors));
  for (size_t i = 0; i < places.size(); ++i) *places[i] = std::move(tensors[i]);
  return absl::OkStatus();
}

// Sums a gradient's rows with the same id before they leave a GPU. On the CPU, the sender sums
// them.
absl::Status SumRows(StagedWrite& write) {
  const bool is_on_gpu = write.value.device().kind == Device::Kind::kGpu;
  if (write.op != WriteOp::kGradient || !write.ids || !is_on_gpu ||
      !IsFloating(write.value.dtype()))
    return absl::OkStatus();
  ASSIGN_OR_RETURN(IndexedSlices summed, SumDuplicates(IndexedSlices{*write.ids, write.value, 0}));
  *write.ids = std::move(summed.ids);
  write.value = std::move(summed.rows);
  return absl::OkStatus();
}

}  // namespace

absl::Status VariableStore::ReadOn(Device device, absl::Span<ReadRequest> requests) {
  RETURN_IF_ERROR(Read(requests));
  return BringTo(device, requests);
}

absl::StatusOr<std::vector<Tensor>> VariableStore::ReadTable(std::vector<VariableRead> reads) {
  return absl::UnimplementedError(
      absl::StrCat("dynamic table \"", reads.empty() ? "" : reads[0].variable,
                   "\": this store of variables holds no tables; ask in a job, which may be one of "
                   "the embedded cluster"));
}

absl::Status BringTo(Device device, absl::Span<ReadRequest> requests) {
  std::vector<Tensor> values;
  for (const ReadRequest& request : requests) values.push_back(request.value);
  ASSIGN_OR_RETURN(values, ToDevice(values, device));
  for (size_t i = 0; i < requests.size(); ++i) requests[i].value = std::move(values[i]);
  return absl::OkStatus();
}

// The sums are started first, so that dense values are copied while the GPU computes them.
absl::Status CopyToCpu(std::vector<StagedWrite>& writes) {
  std::vector<Tensor*> places;
  for (StagedWrite& write : writes) {
    places.push_back(&write.value);
    if (write.ids) places.push_back(&*write.ids);
  }
  for (StagedWrite& write : writes) RETURN_IF_ERROR(SumRows(write));
  return CopyToCpu(places);
}

absl::Status CopyToCpu(std::vector<VariableRead>& reads) {
  std::vector<Tensor*> places;
  for (VariableRead& read : reads) {
    if (read.ids) places.push_back(&*read.ids);
  }
  return CopyToCpu(places);
}

}  // namespace divvy
