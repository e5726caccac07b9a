#include "task/own_flags.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace divvy {
namespace {

// The columns of task/flags.inc.
constexpr uint8_t C = kUsedByChief, P = kUsedByPs, W = kUsedByWorker, V = kUsedByEvaluator,
                  E = kUsedByEmbedded;
constexpr absl::string_view kNoNetwork =
    "nothing is sent over a network where the whole cluster is in this process";
constexpr absl::string_view kOneLife =
    "where the whole cluster is in this process, no task outlives its coordinator";
constexpr absl::string_view kOfACluster = "it says that this process is one task of a cluster";

#define DIVVY_ROW(type, name, value, users, why_not_embedded, meaning) \
  {#name, users, std::string_view(#type) == "bool", why_not_embedded, meaning},
#define DIVVY_TASK_FLAG DIVVY_ROW
#define DIVVY_PROGRAM_FLAG DIVVY_ROW
#define DIVVY_PS_FLAG DIVVY_ROW
constexpr OwnFlag kFlags[] = {
#include "task/flags.inc"
};
#undef DIVVY_ROW

constexpr struct {
  uint8_t user;
  absl::string_view name;
} kUsers[] = {{C, "coordinator"}, {P, "ps"}, {W, "worker"}, {V, "evaluator"}, {E, "one process"}};

}  // namespace

absl::Span<const OwnFlag> OwnFlags() { return kFlags; }

const OwnFlag* FindOwnFlag(absl::string_view name) {
  for (const OwnFlag& flag : kFlags) {
    if (flag.name == name) return &flag;
  }
  if (!absl::ConsumePrefix(&name, "no")) return nullptr;
  const OwnFlag* const flag = FindOwnFlag(name);
  return flag != nullptr && flag->is_switch ? flag : nullptr;
}

std::string UsersText(uint8_t users) {
  std::vector<absl::string_view> names;
  for (const auto& [user, name] : kUsers) {
    if ((users & user) != 0) names.push_back(name);
  }
  return absl::StrJoin(names, ", ");
}

absl::Status CheckFlagsOf(absl::string_view binary, uint8_t users,
                          absl::Span<const std::string> given) {
  std::vector<std::string> problems;
  for (const std::string& name : given) {
    const OwnFlag* const flag = FindOwnFlag(name);
    if (flag == nullptr || (flag->users & users) != 0) continue;
    problems.push_back(absl::StrCat("--", flag->name, " (", UsersText(flag->users), ")"));
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(binary, " does not have ",
                                                 absl::StrJoin(problems, ", "),
                                                 ": give each flag to the tasks in its brackets"));
}

}  // namespace divvy
