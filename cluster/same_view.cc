#include "cluster/same_view.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/config_json.h"
#include "protocol/error.h"

namespace divvy {
namespace {

// the most contradictions in one message
constexpr size_t kShownContradictions = 20;

// "" if the view does not have the task.
std::string AddressIn(const ClusterView& view, const std::string& job, int index) {
  const auto tasks = view.find(job);
  if (tasks == view.end()) return "";
  const auto found = tasks->second.find(index);
  return found == tasks->second.end() ? "" : found->second;
}

}  // namespace

absl::Status CheckSameView(const ClusterView& own, const ClusterView& theirs,
                           absl::string_view who) {
  std::map<std::string, std::string> own_names;  // address -> path
  for (const auto& [job, tasks] : own) {
    for (const auto& [index, address] : tasks) own_names[address] = ConfigPath(job, index);
  }
  std::vector<std::string> contradictions;
  for (const auto& [job, tasks] : theirs) {
    for (const auto& [index, address] : tasks) {
      const std::string path = ConfigPath(job, index), known = AddressIn(own, job, index);
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

}  // namespace divvy
