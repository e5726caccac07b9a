// X.509 certificates of a development CA.
#ifndef DIVVY_RPC_CERTIFICATES_H_
#define DIVVY_RPC_CERTIFICATES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace divvy {

// A certificate and its private key (EC, P-256), both PEM.
struct CertifiedKey {
  std::string certificate;
  std::string key;
};

// What a certificate is to say of a task. Good for servers and clients.
struct CertificateRequest {
  // RoleUri of authorization.h; empty: none
  std::string uri;
  // DNS names and IP addresses
  std::vector<std::string> hosts;
  // From now; it begins five minutes ago, for clocks that differ. Negative: has expired.
  absl::Duration lifetime = absl::Hours(24 * 365);
};

// New keys at each call, from OpenSSL's own source of randomness. Thread-safe. InvalidArgument: a
// name that a certificate cannot hold; Internal: OpenSSL failed.
absl::StatusOr<CertifiedKey> MakeAuthority(absl::string_view name, absl::Duration lifetime);
absl::StatusOr<CertifiedKey> IssueCertificate(const CertifiedKey& authority,
                                              const CertificateRequest& request);

// The common name of a CA that was read from files. InvalidArgument: they are not PEM, or the key
// is not that of the certificate.
absl::StatusOr<std::string> NameOfAuthority(const CertifiedKey& authority);

}  // namespace divvy

#endif  // DIVVY_RPC_CERTIFICATES_H_
