#include "protocol/role.h"

#include "absl/strings/str_cat.h"

namespace divvy {

absl::string_view RoleName(Role role) {
  switch (role) {
    case Role::kChief: return "chief";
    case Role::kPs: return "ps";
    case Role::kWorker: return "worker";
    case Role::kEvaluator: return "evaluator";
  }
  return "";
}

std::optional<Role> ParseRole(absl::string_view name) {
  for (const Role role : kRoles) {
    if (RoleName(role) == name) return role;
  }
  return std::nullopt;
}

std::string TaskName(Role role, int index) {
  const bool is_alone = role == Role::kChief || role == Role::kEvaluator;
  return is_alone ? std::string(RoleName(role)) : absl::StrCat(RoleName(role), " ", index);
}

}  // namespace divvy
