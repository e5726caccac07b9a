// Who may call what.
#ifndef DIVVY_RPC_AUTHORIZATION_H_
#define DIVVY_RPC_AUTHORIZATION_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "cluster/ids.h"
#include "cluster/messages.h"
#include "grpcpp/security/auth_context.h"

namespace divvy {

// The role that a certificate speaks for, one of chief, ps, worker, evaluator, admin. A plain
// value.
struct PeerRole {
  std::string role;
  std::string index;

  std::string text() const { return role + " " + index; }  // "worker 1"
};
inline bool operator==(const PeerRole& a, const PeerRole& b) {
  return a.role == b.role && a.index == b.index;
}

// What the one URI in a certificate's subject alternative names says: spiffe://<trust
// domain>/<role>/<index>. The trust domain is the job's name: tasks of two jobs that one CA serves
// do not speak to each other, which is seen to where connections are made (credentials.h). A plain
// value.
struct PeerId {
  std::string domain;
  PeerRole task;
};
// nullopt: not such a URI. Domain and role are 1 to 40 letters, digits, ".", "_" and "-"; the index
// is a decimal number, of an admin such a name.
std::optional<PeerId> ParseRoleUri(absl::string_view uri);

// Whether a role may make a call, named "Service.Method"; everything that is not listed is denied
// (docs/protocol.md has the table). Pure.
bool MayCall(absl::string_view role, absl::string_view method);

// The same for the peer of a call: NOT_AUTHORIZED (PermissionDenied), naming role and call, for the
// caller, and once a minute for the log here. A connection without TLS is on loopback
// (CheckPlaintext of credentials.h) and may call everything. Every service asks this before it
// looks at a request. Thread-safe.
absl::Status Authorize(const grpc::AuthContext& peer, absl::string_view method);

// The task that the peer's certificate names, "worker 1"; empty: it has none, on loopback.
// Thread-safe.
std::string TaskOfPeer(const grpc::AuthContext& peer);

// Its index, where the certificate is a worker's. Thread-safe.
std::optional<int> WorkerOfPeer(const grpc::AuthContext& peer);

// What a fence claims, beside that: session 0 is never fenced, so the chief alone may speak in it.
// OK for every other session; whose it is, the fence says. Errors as above. Thread-safe.
absl::Status AuthorizeSession(const grpc::AuthContext& peer, absl::string_view method,
                              SessionId session);

// Whether a peer that may make the call may make this request. A task speaks for itself alone:
// Register must name the role and the index of the certificate, else a stolen or mistaken one could
// put its address in the place of another task. NOT_AUTHORIZED, as above. What other requests name
// is not the caller.
absl::Status AuthorizeRequest(const grpc::AuthContext& peer, const RegisterRequest& request);
template <typename Request>
absl::Status AuthorizeRequest(const grpc::AuthContext&, const Request&) {
  return absl::OkStatus();
}

}  // namespace divvy

#endif  // DIVVY_RPC_AUTHORIZATION_H_
