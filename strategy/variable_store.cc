#include "strategy/variable_store.h"

#include <utility>

#include "base/status_macros.h"

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

}  // namespace

absl::Status BringToCpu(std::vector<StagedWrite>& writes) {
  std::vector<Tensor*> places;
  for (StagedWrite& write : writes) {
    places.push_back(&write.value);
    if (write.ids) places.push_back(&*write.ids);
  }
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
