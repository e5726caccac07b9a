// Which role may make which call.
#ifndef DIVVY_RPC_AUTHORIZATION_H_
#define DIVVY_RPC_AUTHORIZATION_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpcpp/security/auth_context.h"
#include "protocol/ids.h"
#include "protocol/messages.h"

namespace divvy {

// The task that a certificate names. `role` is chief, ps, worker, evaluator or admin. `index` is
// the task's number, or an admin's name. A plain value.
struct PeerRole {
  std::string role;
  std::string index;

  std::string text() const { return role + " " + index; }  // "worker 1"
};
inline bool operator==(const PeerRole& a, const PeerRole& b) {
  return a.role == b.role && a.index == b.index;
}

// The content of the one URI in a certificate's subject alternative names: spiffe://<trust
// domain>/<role>/<index>. The trust domain is the name of the job. Tasks of two jobs that share a
// CA cannot connect to each other: credentials.h checks that for each connection. A plain value.
struct PeerId {
  std::string domain;
  PeerRole task;
};
// Parses such a URI. nullopt: it is not one. Domain and role are 1 to 40 letters, digits, ".", "_"
// and "-". The index is a decimal number from 0 to 65534 without leading zeros; an admin's index is
// a name like the role. Pure.
std::optional<PeerId> ParseRoleUri(absl::string_view uri);

// Whether `role` may call `method`, named "Service.Method". Every call that is not listed is denied
// (docs/internals/protocol.md has the table). Pure.
bool MayCall(absl::string_view role, absl::string_view method);

// The same check for the peer of a call. NOT_AUTHORIZED (PermissionDenied) names role and call; the
// caller gets it, and the log here gets it at most once a minute. A connection without TLS comes
// from this machine (CheckPlaintext of credentials.h) and may make every call. Every service calls
// this before it reads a request. Thread-safe; does not block.
absl::Status Authorize(const grpc::AuthContext& peer, absl::string_view method);

// The task that the peer's certificate names, e.g. "worker 1". Empty: the peer has no certificate,
// so it is on this machine. Thread-safe.
std::string TaskOfPeer(const grpc::AuthContext& peer);

// The index in the peer's certificate if it is a worker's; otherwise nullopt. Thread-safe.
std::optional<int> WorkerOfPeer(const grpc::AuthContext& peer);

// Checks the session that a request's fence claims, in addition to Authorize. Session 0 is never
// fenced, so only the chief may use it. Every other session is OK here, because the fence itself
// checks its owner. Errors as Authorize. Thread-safe.
absl::Status AuthorizeSession(const grpc::AuthContext& peer, absl::string_view method,
                              SessionId session);

// Whether a peer that may make the call may also send this request. A task may register only
// itself: Register must name the role and the index of the certificate. Otherwise a stolen or
// misplaced certificate could replace another task's address. NOT_AUTHORIZED, as for Authorize.
// Other requests name no caller, so they always pass. Thread-safe.
absl::Status AuthorizeRequest(const grpc::AuthContext& peer, const RegisterRequest& request);
template <typename Request>
absl::Status AuthorizeRequest(const grpc::AuthContext&, const Request&) {
  return absl::OkStatus();
}

}  // namespace divvy

#endif  // DIVVY_RPC_AUTHORIZATION_H_
