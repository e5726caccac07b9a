// The size limit of messages that are not part of a data stream.
#ifndef DIVVY_RPC_MESSAGE_LIMIT_H_
#define DIVVY_RPC_MESSAGE_LIMIT_H_

#include <cstdint>

namespace divvy {

// In bytes, as encoded. Servers refuse larger messages. Clients check the size before they send,
// because a server's refusal does not say what to do (CheckSize in unary_call.h does).
constexpr int64_t kMaxControlMessageBytes = 16 << 20;

}  // namespace divvy

#endif  // DIVVY_RPC_MESSAGE_LIMIT_H_
