// What an element of a dataset looks like.
#ifndef DIVVY_WORKER_CORE_ELEMENT_DIGEST_H_
#define DIVVY_WORKER_CORE_ELEMENT_DIGEST_H_

#include "protocol/messages.h"
#include "tensor/nest.h"

namespace divvy {

// Equal elements have equal digests in every process; elements that differ have digests that
// differ, but for bad luck. Of a floating tensor the first million values count, finite ones by
// their value and others by their place. Of a tensor that does not lie on the CPU, dtype and shape.
ElementDigest DigestOf(const Nest& element);

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_ELEMENT_DIGEST_H_
