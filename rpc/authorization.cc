#include "rpc/authorization.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "grpc/grpc_security_constants.h"
#include "protocol/error.h"

namespace divvy {
namespace {

// Appended to the name of a call in session 0. The rules have this name for no worker.
constexpr absl::string_view kInSession0 = " in session 0";
// gRPC's name for the transport of a connection without TLS.
constexpr absl::string_view kPlaintext = "insecure";

struct Rule {
  absl::string_view role;
  // A name that ends in ".*" means the whole service.
  absl::string_view method;
};

constexpr Rule kRules[] = {
    {"chief", "Worker.*"},
    {"chief", "ParameterServer.*"},
    {"chief", "ParameterServerData.*"},
    {"chief", "Admin.GetStatus"},
    {"worker", "Coordinator.Register"},
    {"worker", "ParameterServerData.Pull"},
    {"worker", "ParameterServerData.Commit"},
    {"ps", "Coordinator.Register"},
    {"admin", "Admin.GetStatus"},
    {"admin", "Admin.RequestCheckpoint"},
    {"admin", "Admin.Drain"},
    {"admin", "Admin.Resize"},
    {"admin", "Admin.Rebalance"},
    {"admin", "Admin.GetTableRows"},
    {"admin", "Admin.GetTraces"},
    {"admin", "Admin.GetLogs"},
};

bool Covers(absl::string_view rule, absl::string_view method) {
  if (!absl::ConsumeSuffix(&rule, "*")) return rule == method;
  return absl::StartsWith(method, rule);
}

// The only value of a property of the connection. Empty: there is none, or there are several.
std::string Property(const grpc::AuthContext& peer, const char* name) {
  const std::vector<grpc::string_ref> values = peer.FindPropertyValues(name);
  return values.size() == 1 ? std::string(values[0].data(), values[0].size()) : "";
}

LogLimit& AuthorizationLogLimit() {
  static LogLimit* const limit = new LogLimit;
  return *limit;
}

bool IsPlaintext(const grpc::AuthContext& peer) {
  return Property(peer, GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME) == kPlaintext;
}

std::optional<PeerRole> RoleOfPeer(const grpc::AuthContext& peer) {
  const std::optional<PeerId> id = ParseRoleUri(Property(peer, GRPC_PEER_SPIFFE_ID_PROPERTY_NAME));
  return id ? std::make_optional(id->task) : std::nullopt;
}

absl::Status Refuse(const std::optional<PeerRole>& peer, absl::string_view what) {
  const std::string who =
      peer ? peer->text() : "a certificate without a role (one URI spiffe://DOMAIN/ROLE/INDEX)";
  const absl::Status refusal = MakeError(
      Reason::kNotAuthorized,
      absl::StrCat(who, " may not ", what, ": check which certificate the task was given"));
  if (AuthorizationLogLimit().Admit(std::string(refusal.message())))
    DIVVY_LOG(WARNING) << refusal.message();
  return refusal;
}

}  // namespace

namespace {

// The role of an operator; the index may be a name.
constexpr absl::string_view kAdmin = "admin";
// A certificate's common name is a role with its index, and has at most 64 characters.
constexpr size_t kLongestName = 40;

bool IsName(absl::string_view text) {
  const auto plain = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  };
  return !text.empty() && text.size() <= kLongestName &&
         std::all_of(text.begin(), text.end(), plain);
}

// Accepts only the usual spelling of a number: "0?x=1" and "00" name no task.
bool IsIndex(absl::string_view text) {
  // the greatest index of a task
  constexpr uint32_t kGreatest = 65'534;
  uint32_t number = 0;
  return absl::SimpleAtoi(text, &number) && number <= kGreatest && absl::StrCat(number) == text;
}

}  // namespace

std::optional<PeerId> ParseRoleUri(absl::string_view uri) {
  if (!absl::ConsumePrefix(&uri, "spiffe://")) return std::nullopt;
  const std::vector<std::string> parts = absl::StrSplit(uri, '/');
  if (parts.size() != 3 || !IsName(parts[0]) || !IsName(parts[1])) return std::nullopt;
  if (parts[1] == kAdmin ? !IsName(parts[2]) : !IsIndex(parts[2])) return std::nullopt;
  return PeerId{parts[0], PeerRole{parts[1], parts[2]}};
}

bool MayCall(absl::string_view role, absl::string_view method) {
  for (const Rule& rule : kRules) {
    if (rule.role == role && Covers(rule.method, method)) return true;
  }
  return false;
}

absl::Status Authorize(const grpc::AuthContext& peer, absl::string_view method) {
  if (IsPlaintext(peer)) return absl::OkStatus();
  const std::optional<PeerRole> role = RoleOfPeer(peer);
  if (role && MayCall(role->role, method)) return absl::OkStatus();
  return Refuse(role, absl::StrCat("call ", method));
}

absl::Status AuthorizeRequest(const grpc::AuthContext& peer, const RegisterRequest& request) {
  if (IsPlaintext(peer)) return absl::OkStatus();
  const PeerRole claimed{std::string(RoleName(request.role)), absl::StrCat(request.index)};
  const std::optional<PeerRole> role = RoleOfPeer(peer);
  if (role && *role == claimed) return absl::OkStatus();
  return Refuse(role, absl::StrCat("register as ", claimed.text()));
}

std::string TaskOfPeer(const grpc::AuthContext& peer) {
  const std::optional<PeerRole> role = RoleOfPeer(peer);
  return role ? role->text() : "";
}

std::optional<int> WorkerOfPeer(const grpc::AuthContext& peer) {
  const std::optional<PeerRole> role = RoleOfPeer(peer);
  int index = 0;
  return role && role->role == "worker" && absl::SimpleAtoi(role->index, &index)
             ? std::make_optional(index)
             : std::nullopt;
}

absl::Status AuthorizeSession(const grpc::AuthContext& peer, absl::string_view method,
                              SessionId session) {
  if (session != kCoordinatorSession) return absl::OkStatus();
  return Authorize(peer, absl::StrCat(method, kInSession0));
}

}  // namespace divvy
