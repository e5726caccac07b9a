// The roles that a task of a cluster may play.
#ifndef DIVVY_PROTOCOL_ROLE_H_
#define DIVVY_PROTOCOL_ROLE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace divvy {

// The chief is the coordinator; TF_CONFIG and certificates call it "chief". An evaluator is no part
// of the cluster: it sends no message and receives none.
enum class Role : uint8_t { kChief, kPs, kWorker, kEvaluator };
constexpr Role kRoles[] = {Role::kChief, Role::kPs, Role::kWorker, Role::kEvaluator};

// Pure. The name is the one that TF_CONFIG has for it: "chief", "ps", "worker" or "evaluator".
absl::string_view RoleName(Role role);
// nullopt: no role has this name.
std::optional<Role> ParseRole(absl::string_view name);

// "worker 1". A role with at most one task has no number: "chief", "evaluator". Pure.
std::string TaskName(Role role, int index);

}  // namespace divvy

#endif  // DIVVY_PROTOCOL_ROLE_H_
