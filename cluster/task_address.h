// Where a task is: "host:port", or a Unix socket of this machine.
#ifndef DIVVY_CLUSTER_TASK_ADDRESS_H_
#define DIVVY_CLUSTER_TASK_ADDRESS_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace divvy {

// The one spelling of an address that others dial: "grpc://" is dropped, the host is in lower case,
// an IPv6 address is in its short form and in brackets, the port has no leading zeros; so equal
// addresses are equal texts. "unix:/PATH" is itself. Names are not resolved. InvalidArgument,
// saying what to write instead: no host or port, a port outside 1..65535, another scheme, an IPv6
// address without brackets, a character that no host has, a path that is relative, has more than
// kMaxSocketPath bytes, or a comma, a quote, a backslash, a space or what cannot be printed.
absl::StatusOr<std::string> NormalizeAddress(absl::string_view address);

inline constexpr size_t kMaxSocketPath = 107;  // of Linux (unix(7))

// The path of "unix:PATH"; none: it is another kind of address.
std::optional<std::string> SocketPathOf(absl::string_view address);

}  // namespace divvy

#endif  // DIVVY_CLUSTER_TASK_ADDRESS_H_
