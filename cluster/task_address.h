// Addresses of tasks: "host:port", or a Unix socket of this machine.
#ifndef DIVVY_CLUSTER_TASK_ADDRESS_H_
#define DIVVY_CLUSTER_TASK_ADDRESS_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace divvy {

// Returns the one spelling of an address, so that equal addresses are equal texts. "grpc://" is
// removed, the host is in lower case, an IPv6 address has its short form and brackets, and the port
// has no leading zeros. "unix:/PATH" stays as it is. Names are not resolved.
//
// InvalidArgument, with what to write instead: no host or port, a port outside 1..65535, another
// scheme, an IPv6 address without brackets, a character that no host has, or a bad path. A path is
// bad if it is relative, has more than kMaxSocketPath bytes, or has a comma, a quote, a backslash,
// a space or an unprintable character.
absl::StatusOr<std::string> NormalizeAddress(absl::string_view address);

// the limit of Linux (unix(7))
inline constexpr size_t kMaxSocketPath = 107;

// The path of "unix:PATH"; nullopt for another kind of address.
std::optional<std::string> SocketPathOf(absl::string_view address);

}  // namespace divvy

#endif  // DIVVY_CLUSTER_TASK_ADDRESS_H_
