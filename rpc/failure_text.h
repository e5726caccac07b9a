// gRPC's words for what failed, in ours.
#ifndef DIVVY_RPC_FAILURE_TEXT_H_
#define DIVVY_RPC_FAILURE_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace divvy {

// Pure. Each finds the cause in a text of gRPC's, and says it with what to do; a text that it does
// not know is returned as it is. For people alone.

// Why a server cannot listen.
std::string ListenFailure(absl::string_view grpc_text);
// Why there is no connection, at its client.
std::string ConnectFailure(absl::string_view grpc_text);
// Why a connection was refused, at whichever end found the fault; empty: it is not about that.
std::string HandshakeFailure(absl::string_view grpc_text);

}  // namespace divvy

#endif  // DIVVY_RPC_FAILURE_TEXT_H_
