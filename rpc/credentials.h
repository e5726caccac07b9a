// TLS: how a task proves its identity, and which peers it accepts.
#ifndef DIVVY_RPC_CREDENTIALS_H_
#define DIVVY_RPC_CREDENTIALS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "rpc/authorization.h"

namespace divvy {

// The PEM files of one task. They are read again every minute, so a certificate or the CA can be
// replaced without a restart. New connections use the new files; open connections continue. A plain
// value.
struct TlsFiles {
  // The task's certificate, with the role's URI (authorization.h). Intermediate certificates follow
  // it in the file.
  std::string cert;
  // The private key of `cert`, without a password.
  std::string key;
  // The CA certificates that sign the certificates of all tasks.
  std::string ca;
  // How often the files are read again, in seconds: at least 1. Tests set it, since they cannot
  // wait a minute.
  unsigned refresh_seconds = 60;
};

// FailedPrecondition with all problems of the files at once, each with the file and the fix: a file
// is missing or not PEM, the key belongs to another certificate, the certificate has expired or is
// not yet valid, `ca` has not signed it, or it names no role. Blocks on the disk. Call it at start,
// before credentials are made of the files.
absl::Status CheckTlsFiles(const TlsFiles& files);
// The same, and the certificate must be that of the task `owner`: every peer would refuse another
// one, again and again.
absl::Status CheckTlsFiles(const TlsFiles& files, const PeerRole& owner);

// When the first certificate of a PEM file ends. Nullopt: there is none that can be read. Blocks on
// the disk.
std::optional<absl::Time> EndOfCertificate(const std::string& cert_file);

// Credentials for mutual TLS. The server asks for the peer's certificate and checks it against
// `ca`. It refuses a peer that names no role, or that belongs to another job than `cert` (the trust
// domain of authorization.h), and logs that once a minute. Reads `cert` to learn the job, so it
// blocks on the disk. Warns about a key that every user of the machine can read or write. No files:
// plaintext. Thread-safe.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(
    const std::optional<TlsFiles>& files);
// Credentials for a channel. The server must present the certificate of `role`, of the same job as
// `cert`. Its host name is not checked, since tasks are known by role and move between hosts. An
// empty `role` accepts any role. No files: plaintext. Thread-safe.
std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(
    const std::optional<TlsFiles>& files, absl::string_view role);

// Makes the credentials of many channels. They share the thread that reads the files again.
// Thread-safe.
class ChannelIdentity {
 public:
  // Reads the certificate, so it blocks on the disk. nullopt: plaintext.
  explicit ChannelIdentity(const std::optional<TlsFiles>& files);
  // As MakeChannelCredentials. With `index`, the server must be that task of the role.
  std::shared_ptr<grpc::ChannelCredentials> For(absl::string_view role,
                                                std::optional<int> index = std::nullopt) const;

 private:
  std::shared_ptr<grpc::experimental::CertificateProviderInterface> provider_;  // null: plaintext
  std::string domain_;
};

// Whether "host:port" or "unix:PATH" stays on this machine: localhost, 127.0.0.0/8, ::1 or a Unix
// socket. Names are not resolved. Pure.
bool IsLoopback(absl::string_view address);
// For a cluster without certificates, where all addresses must stay on this machine.
// FailedPrecondition names the addresses that do not, and the flags for certificates. Empty
// addresses are ignored. Pure.
absl::Status CheckPlaintext(const std::vector<std::string>& addresses);

}  // namespace divvy

#endif  // DIVVY_RPC_CREDENTIALS_H_
