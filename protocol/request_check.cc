#include "protocol/request_check.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace divvy {
namespace {

absl::Status Refuse(Reason reason, const ReceiverState& own, absl::string_view why) {
  ErrorDetail detail;
  detail.reason = reason;
  detail.role = own.role;
  detail.index = own.index;
  detail.epoch = own.epoch;
  return MakeError(detail, absl::StrCat(RoleName(own.role), " ", own.index, ": ", why));
}

std::string Text(ProtocolRange range) {
  return range.oldest == range.newest ? absl::StrCat(range.newest)
                                      : absl::StrCat(range.oldest, " to ", range.newest);
}

}  // namespace

absl::Status CheckProtocol(ProtocolRange theirs, const ReceiverState& own) {
  if (theirs.Meets(kOwnProtocol)) return absl::OkStatus();
  return Refuse(Reason::kVersionMismatch, own,
                absl::StrCat("it speaks protocol version ", Text(kOwnProtocol),
                             ", and the other side version ", Text(theirs),
                             ". Run the same release of Divvy in every task"));
}

absl::Status CheckIndex(std::optional<int> index, const ReceiverState& own) {
  if (!index || *index == own.index) return absl::OkStatus();
  const absl::string_view role = RoleName(own.role);
  return Refuse(Reason::kWrongIncarnation, own,
                absl::StrCat("the coordinator took it for ", role, " ", *index,
                             ": two tasks have one address, or a name leads to another machine. "
                             "Look up the address of ",
                             role, " ", *index, " in TF_CONFIG"));
}

absl::Status CheckRequest(const Fence& fence, const ReceiverState& own, CallKind call) {
  const bool attach = call == CallKind::kAttach;
  if (own.job.value() != 0 && fence.job != own.job) {
    return Refuse(Reason::kWrongJob, own,
                  absl::StrCat("serves job ", absl::Hex(own.job.value()),
                               ", and the request is of job ", absl::Hex(fence.job.value()),
                               ". Two jobs share an address: give each its own"));
  }
  const bool unknown_target = fence.target.value() == 0 && attach;
  if (!unknown_target && fence.target != own.incarnation) {
    return Refuse(Reason::kWrongIncarnation, own,
                  absl::StrCat("the request is for incarnation ", absl::Hex(fence.target.value()),
                               ", but this is ", absl::Hex(own.incarnation.value()),
                               ": the task was restarted and has lost its memory"));
  }
  if (fence.epoch < own.epoch) {
    return Refuse(Reason::kStaleEpoch, own,
                  absl::StrCat("the request is of epoch ", fence.epoch.value(), ", and epoch ",
                               own.epoch.value(), " has begun"));
  }
  if (!attach && (fence.epoch > own.epoch || own.epoch.value() == 0)) {
    return Refuse(Reason::kNotAttached, own,
                  absl::StrCat("not attached to epoch ", fence.epoch.value(),
                               " yet: it is in epoch ", own.epoch.value()));
  }
  if (fence.epoch == own.epoch && own.epoch.value() != 0 && fence.coordinator != own.coordinator) {
    return Refuse(Reason::kSecondCoordinator, own,
                  absl::StrCat("another coordinator holds epoch ", own.epoch.value(),
                               ". Run one coordinator for a job"));
  }
  if (!attach && !own.ready)
    return Refuse(Reason::kNotReady, own, "its state does not allow this call now");
  if (attach &&
      (fence.job.value() == 0 || fence.epoch.value() == 0 || fence.coordinator.value() == 0)) {
    return Refuse(
        Reason::kInvalid, own,
        "Attach must name a job, an epoch and the coordinator's incarnation, none of them 0");
  }
  return absl::OkStatus();
}

}  // namespace divvy
