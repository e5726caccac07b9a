// Makes X.509 certificates of a development CA.
#ifndef DIVVY_RPC_CERTIFICATES_H_
#define DIVVY_RPC_CERTIFICATES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace divvy {

// A certificate and its private key (EC, P-256), both in PEM. Keep the key secret. A plain value.
struct CertifiedKey {
  std::string certificate;
  std::string key;
};

// The content of a task's certificate. The certificate is valid for servers and clients.
struct CertificateRequest {
  // The URI of the task, as ParseRoleUri (authorization.h) reads it. Empty: none.
  std::string uri;
  // DNS names and IP addresses, without ports.
  std::vector<std::string> hosts;
  // The certificate expires this long from now. It is valid from five minutes ago, in case clocks
  // differ. Negative: the certificate has already expired (for tests).
  absl::Duration lifetime = absl::Hours(24 * 365);
};

// Make a CA, and a certificate that it signs. Each call makes a new key with OpenSSL's source of
// randomness. Thread-safe. InvalidArgument: a name that a certificate cannot hold, or an authority
// that is not PEM. Internal: OpenSSL failed.
absl::StatusOr<CertifiedKey> MakeAuthority(absl::string_view name, absl::Duration lifetime);
absl::StatusOr<CertifiedKey> IssueCertificate(const CertifiedKey& authority,
                                              const CertificateRequest& request);

// The common name of a CA that was read from files. Thread-safe. InvalidArgument: the texts are not
// PEM, or the key does not belong to the certificate.
absl::StatusOr<std::string> NameOfAuthority(const CertifiedKey& authority);

}  // namespace divvy

#endif  // DIVVY_RPC_CERTIFICATES_H_
