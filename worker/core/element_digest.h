// A digest of a dataset's element, by which the coordinator compares the data of workers.
#ifndef DIVVY_WORKER_CORE_ELEMENT_DIGEST_H_
#define DIVVY_WORKER_CORE_ELEMENT_DIGEST_H_

#include "protocol/messages.h"
#include "tensor/nest.h"

namespace divvy {

// Digest of an element. Equal elements have equal digests in every process; different elements have
// different digests with high probability. Of a floating-point tensor only the first 2^20 values
// count: finite values by their value, others only by their place. Of a tensor on a GPU only dtype
// and shape count. Pure.
ElementDigest DigestOf(const Nest& element);

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_ELEMENT_DIGEST_H_
