// Descriptors that forked processes must not keep.
#ifndef DIVVY_RPC_CLOSED_IN_FORKS_H_
#define DIVVY_RPC_CLOSED_IN_FORKS_H_

#include "base/descriptor.h"

namespace divvy {

// Returns `fd`, which a process that fork() makes from now on closes at its beginning. Otherwise
// that process, if it outlives this one, would hold the port or the lock that the successor wants,
// and its peers would not see that the connection has ended. The descriptor may be closed like any
// other. Descriptors from 65,536 on are left as they are. Thread-safe.
//
// A process that exec() starts needs none of this: O_CLOEXEC closes the descriptor there.
Descriptor ClosedInForks(Descriptor fd);

}  // namespace divvy

#endif  // DIVVY_RPC_CLOSED_IN_FORKS_H_
