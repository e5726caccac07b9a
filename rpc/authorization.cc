#include "rpc/authorization.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "cluster/error.h"
#include "grpc/grpc_security_constants.h"

namespace divvy {
namespace {

struct Rule {
  absl::string_view role;
  absl::string_view method;   // one that ends in ".*" means the whole service
};

constexpr Rule kRules[] = {
    {"chief", "Worker.*"},
    {"chief", "ParameterServer.*"},
    {"chief", "ParameterServerData.*"},
    {"chief", "Admin.*"},
    {"worker", "Coordinator.Register"},
    {"worker", "ParameterServerData.*"},
    {"ps", "Coordinator.Register"},
    {"admin", "Admin.*"},
};

bool Covers(absl::string_view rule, absl::string_view method) {
  if (!absl::ConsumeSuffix(&rule, "*")) return rule == method;
  return absl::StartsWith(method, rule);
}

std::string Text(grpc::string_ref text) { return std::string(text.data(), text.size()); }

}  // namespace

std::optional<PeerRole> ParseRoleUri(absl::string_view uri) {
  if (!absl::ConsumePrefix(&uri, "spiffe://")) return std::nullopt;
  const std::vector<std::string> parts = absl::StrSplit(uri, '/');
  if (parts.size() != 3 || parts[0].empty() || parts[1].empty()) return std::nullopt;
  return PeerRole{parts[1], parts[2]};
}

bool MayCall(absl::string_view role, absl::string_view method) {
  for (const Rule& rule : kRules) {
    if (rule.role == role && Covers(rule.method, method)) return true;
  }
  return false;
}

absl::Status Authorize(const grpc::AuthContext& peer, absl::string_view method) {
  if (!peer.IsPeerAuthenticated()) return absl::OkStatus();
  const std::vector<grpc::string_ref> uris = peer.FindPropertyValues(GRPC_PEER_SPIFFE_ID_PROPERTY_NAME);
  const std::optional<PeerRole> role = uris.empty() ? std::nullopt : ParseRoleUri(Text(uris[0]));
  if (role && MayCall(role->role, method)) return absl::OkStatus();
  const std::string who = role ? absl::StrCat(role->role, " ", role->index) : "a certificate without a role (spiffe://JOB/ROLE/INDEX)";
  const absl::Status refusal = MakeError(Reason::kNotAuthorized, absl::StrCat(who, " may not call ", method, ": check which certificate the task was given"));
  DIVVY_LOG(WARNING) << refusal.message();
  return refusal;
}

}  // namespace divvy
