#include "cluster/prelude.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/config_json.h"

namespace divvy {
namespace {

constexpr size_t kShownContradictions = 20;  // of one message

absl::Status Refuse(Reason reason, const PreludeState& own, absl::string_view why) {
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

std::string EntryPath(absl::string_view job, int index) {
  return absl::StrCat("cluster.", EscapeText(job), "[", index, "]");
}

// "": the view does not name the task.
std::string AddressIn(const ClusterView& view, const std::string& job, int index) {
  const auto tasks = view.find(job);
  if (tasks == view.end()) return "";
  const auto found = tasks->second.find(index);
  return found == tasks->second.end() ? "" : found->second;
}

}  // namespace

absl::Status CheckProtocol(ProtocolRange theirs, const PreludeState& own) {
  if (theirs.Meets(kOwnProtocol)) return absl::OkStatus();
  return Refuse(Reason::kVersionMismatch, own,
                absl::StrCat("it speaks protocol version ", Text(kOwnProtocol),
                             ", and the other side version ", Text(theirs),
                             ". Run the same release of Divvy in every task"));
}

absl::Status CheckSameView(const ClusterView& own, const ClusterView& theirs,
                           absl::string_view who) {
  std::map<std::string, std::string> own_names;  // address -> path
  for (const auto& [job, tasks] : own) {
    for (const auto& [index, address] : tasks) own_names[address] = EntryPath(job, index);
  }
  std::vector<std::string> contradictions;
  for (const auto& [job, tasks] : theirs) {
    for (const auto& [index, address] : tasks) {
      const std::string path = EntryPath(job, index), known = AddressIn(own, job, index);
      const auto name = own_names.find(address);
      if (!known.empty() && known != address) {
        contradictions.push_back(
            absl::StrCat(path, " is ", ShowText(address), " there and ", ShowText(known), " here"));
      } else if (known.empty() && name != own_names.end()) {
        contradictions.push_back(
            absl::StrCat(ShowText(address), " is ", path, " there and ", name->second, " here"));
      }
    }
  }
  if (contradictions.empty()) return absl::OkStatus();
  if (contradictions.size() > kShownContradictions) contradictions.resize(kShownContradictions);
  return MakeError(Reason::kClusterMismatch, absl::StrCat(who, " knows another cluster: ",
                                                          absl::StrJoin(contradictions, "; "),
                                                          ". Give all tasks the same TF_CONFIG"));
}

absl::Status CheckPrelude(const Fence& fence, const PreludeState& own, CallKind call) {
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
                  "the request is for another life of this task; what that one held is gone");
  }
  if (fence.epoch < own.epoch) {
    return Refuse(Reason::kStaleEpoch, own,
                  absl::StrCat("the request is of epoch ", fence.epoch.value(), ", and epoch ",
                               own.epoch.value(), " has begun"));
  }
  if (!attach && (fence.epoch > own.epoch || own.epoch.value() == 0)) {
    return Refuse(Reason::kNotAttached, own,
                  absl::StrCat("not yet attached to epoch ", fence.epoch.value(), "; it is in ",
                               own.epoch.value()));
  }
  if (fence.epoch == own.epoch && own.epoch.value() != 0 && fence.coordinator != own.coordinator) {
    return Refuse(Reason::kSecondCoordinator, own,
                  absl::StrCat("another coordinator holds epoch ", own.epoch.value(),
                               ". Run one coordinator for a job"));
  }
  if (!attach && !own.ready)
    return Refuse(Reason::kNotReady, own, "its state does not allow this call yet");
  if (attach &&
      (fence.job.value() == 0 || fence.epoch.value() == 0 || fence.coordinator.value() == 0)) {
    return Refuse(
        Reason::kInvalid, own,
        "Attach must name a job, an epoch and the coordinator's incarnation, none of them 0");
  }
  return absl::OkStatus();
}

}  // namespace divvy
