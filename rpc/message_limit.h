// How large a message may be that is not part of a data stream.
#ifndef DIVVY_RPC_MESSAGE_LIMIT_H_
#define DIVVY_RPC_MESSAGE_LIMIT_H_

#include <cstdint>

namespace divvy {

// In bytes, as encoded. Servers refuse larger ones, and clients do not send them: a server's
// refusal does not say what to do.
constexpr int64_t kMaxControlMessageBytes = 16 << 20;

}  // namespace divvy

#endif  // DIVVY_RPC_MESSAGE_LIMIT_H_
