#include "cluster/prelude.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace divvy {
namespace {

absl::Status Refuse(Reason reason, const PreludeState& own, absl::string_view why) {
  ErrorDetail detail;
  detail.reason = reason;
  detail.job = own.role;
  detail.index = own.index;
  detail.epoch = own.epoch;
  return MakeError(detail, absl::StrCat(JobNameText(own.role), " ", own.index, ": ", why));
}

}  // namespace

absl::Status CheckPrelude(const Fence& fence, const PreludeState& own, CallKind call) {
  const bool attach = call == CallKind::kAttach;
  if (own.job.value() != 0 && fence.job != own.job) {
    return Refuse(Reason::kWrongJob, own, absl::StrCat("serves job ", absl::Hex(own.job.value()), ", and the request is of job ", absl::Hex(fence.job.value()),
                                                       ". Two jobs share an address: give each its own"));
  }
  const bool unknown_target = fence.target.value() == 0 && attach;
  if (!unknown_target && fence.target != own.incarnation) {
    return Refuse(Reason::kWrongIncarnation, own, "the request is for another life of this task; what that one held is gone");
  }
  if (fence.epoch < own.epoch) {
    return Refuse(Reason::kStaleEpoch, own, absl::StrCat("the request is of epoch ", fence.epoch.value(), ", and epoch ", own.epoch.value(), " has begun"));
  }
  if (!attach && (fence.epoch > own.epoch || own.epoch.value() == 0)) {
    return Refuse(Reason::kNotAttached, own, absl::StrCat("not yet attached to epoch ", fence.epoch.value(), "; it is in ", own.epoch.value()));
  }
  if (fence.epoch == own.epoch && own.epoch.value() != 0 && fence.coordinator != own.coordinator) {
    return Refuse(Reason::kSecondCoordinator, own, absl::StrCat("another coordinator holds epoch ", own.epoch.value(), ". Run one coordinator for a job"));
  }
  if (!attach && !own.ready) return Refuse(Reason::kNotReady, own, "its state does not allow this call yet");
  if (attach && (fence.job.value() == 0 || fence.epoch.value() == 0 || fence.coordinator.value() == 0)) {
    return Refuse(Reason::kInvalid, own, "Attach must name a job, an epoch and the coordinator's incarnation, none of them 0");
  }
  return absl::OkStatus();
}

}  // namespace divvy
