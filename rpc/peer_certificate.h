// Who a certificate belongs to.
#ifndef DIVVY_RPC_PEER_CERTIFICATE_H_
#define DIVVY_RPC_PEER_CERTIFICATE_H_

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "rpc/authorization.h"
#include "rpc/openssl.h"

namespace divvy {

// The task and the job in the only URI of the certificate. nullopt: it has none, or several, or one
// that names no task (authorization.h). Thread-safe.
std::optional<PeerId> IdOf(const X509* certificate);

// The job of the certificate in a PEM file. Empty: it cannot be read, or names no role. Blocks on
// the disk.
std::string DomainOf(const std::string& file);

// When the first certificate of a PEM file ends. Nullopt: there is none that can be read. Blocks on
// the disk.
std::optional<absl::Time> EndOfCertificate(const std::string& cert_file);

}  // namespace divvy

#endif  // DIVVY_RPC_PEER_CERTIFICATE_H_
