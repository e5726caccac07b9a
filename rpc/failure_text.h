// Explains gRPC's error texts in our own words.
#ifndef DIVVY_RPC_FAILURE_TEXT_H_
#define DIVVY_RPC_FAILURE_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace divvy {

// Pure functions. Each finds the cause in an error text of gRPC, and returns a text that says what
// is wrong and what to do. An unknown text is returned unchanged. The results are for people only:
// code must not depend on them.

// Why a server cannot listen. An empty text gives "no reason given".
std::string ListenFailure(absl::string_view grpc_text);
// Why a client has no connection. Texts that are not about a failed connection or name lookup are
// returned unchanged.
std::string ConnectFailure(absl::string_view grpc_text);
// Why a TLS handshake failed, at either end. Returns an empty string if `grpc_text` is not about a
// handshake.
std::string HandshakeFailure(absl::string_view grpc_text);

}  // namespace divvy

#endif  // DIVVY_RPC_FAILURE_TEXT_H_
