// How a task proves who it is, and whom it believes.
#ifndef DIVVY_RPC_CREDENTIALS_H_
#define DIVVY_RPC_CREDENTIALS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "rpc/authorization.h"

namespace divvy {

// PEM files of one task. They are read again every minute, so that a certificate or the CA can be
// replaced without a restart: new connections use what is there then, and open ones go on.
struct TlsFiles {
  // Its certificate, with the role's URI (authorization.h).
  std::string cert;
  // Its private key.
  std::string key;
  // The certificates that sign those of all tasks.
  std::string ca;
  // How often the files are read again: at least 1; tests cannot wait a minute.
  unsigned refresh_seconds = 60;
};

// What is wrong with the files, all at once: missing, not PEM, a key of another certificate, a
// certificate that has expired or is not yet valid, or one that `ca` has not signed.
// FailedPrecondition, naming the file and the fix. Reads files; to be asked at start.
absl::Status CheckTlsFiles(const TlsFiles& files);
// The same for the task `owner`, whose certificate must be its own: another one would be refused by
// every peer, again and again.
absl::Status CheckTlsFiles(const TlsFiles& files, const PeerRole& owner);

// Mutual TLS: the peer's certificate is asked for and checked against `ca`; a peer that names no
// role, or one of another job than `cert`'s (the trust domain of authorization.h), is refused, with
// a line in the log once a minute. Reads `cert` for that, and warns of a key that every user of the
// machine can read. No files: plaintext.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(
    const std::optional<TlsFiles>& files);
// The server must present the certificate of `role`, of the same job as `cert`; its host name is
// not looked at, since tasks are known by role and move between hosts. "": of any role.
std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(
    const std::optional<TlsFiles>& files, absl::string_view role);

// The same for many channels, which share the thread that reads the files again. Thread-safe.
class ChannelIdentity {
 public:
  explicit ChannelIdentity(const std::optional<TlsFiles>& files);
  // `index`: the server must be that task of the role; none: any.
  std::shared_ptr<grpc::ChannelCredentials> For(absl::string_view role,
                                                std::optional<int> index = std::nullopt) const;

 private:
  std::shared_ptr<grpc::experimental::CertificateProviderInterface> provider_;  // null: plaintext
  std::string domain_;
};

// Whether "host:port" (or "unix:PATH") leads nowhere but to this machine: localhost, 127.0.0.0/8,
// ::1 or a Unix socket. Names are not resolved.
bool IsLoopback(absl::string_view address);
// Without certificates everything must stay on this machine. FailedPrecondition: names the
// addresses that do not, and the flags that give certificates.
absl::Status CheckPlaintext(const std::vector<std::string>& addresses);

}  // namespace divvy

#endif  // DIVVY_RPC_CREDENTIALS_H_
