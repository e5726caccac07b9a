#include "strategy/variable_store.h"

#include <utility>

#include "base/status_macros.h"
#include "ops/gradients.h"

namespace divvy {
namespace {

// All at once, so that the first are copied from a GPU while it computes the last.
absl::Status BringToCpu(const std::vector<Tensor*>& places) {
  std::vector<Tensor> tensors;
  for (const Tensor* place : places) tensors.push_back(*place);
  ASSIGN_OR_RETURN(tensors, ToHost(tensors));
  for (size_t i = 0; i < places.size(); ++i) *places[i] = std::move(tensors[i]);
  return absl::OkStatus();
}

// Rows of a gradient with one id are summed before they leave a GPU; on the CPU they are summed
// where they are sent.
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

absl::Status BringTo(Device device, absl::Span<ReadRequest> requests) {
  std::vector<Tensor> values;
  for (const ReadRequest& request : requests) values.push_back(request.value);
  ASSIGN_OR_RETURN(values, ToDevice(values, device));
  for (size_t i = 0; i < requests.size(); ++i) requests[i].value = std::move(values[i]);
  return absl::OkStatus();
}

// What is whole is copied while the GPU sums the rows.
absl::Status BringToCpu(std::vector<StagedWrite>& writes) {
  std::vector<Tensor*> places;
  for (StagedWrite& write : writes) {
    places.push_back(&write.value);
    if (write.ids) places.push_back(&*write.ids);
  }
  for (StagedWrite& write : writes) RETURN_IF_ERROR(SumRows(write));
  return BringToCpu(places);
}

absl::Status BringToCpu(std::vector<VariableRead>& reads) {
  std::vector<Tensor*> places;
  for (VariableRead& read : reads) {
    if (read.ids) places.push_back(&*read.ids);
  }
  return BringToCpu(places);
}

}  // namespace divvy
