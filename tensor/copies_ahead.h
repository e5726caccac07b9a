// Prefetched copies: values that are copied to a GPU before a computation asks for them there.
#ifndef DIVVY_TENSOR_COPIES_AHEAD_H_
#define DIVVY_TENSOR_COPIES_AHEAD_H_

#include <functional>
#include <optional>
#include <vector>

#include "tensor/tensor.h"

namespace divvy {

// A value on the CPU, and the GPUs on which a copy of it will be needed.
struct CopyWanted {
  Tensor value;
  std::vector<Device> devices;
};

// Registers the copies, and returns the task that makes them. The task may block; run it once or
// never. A copy that cannot be made is not an error: FindCopyAhead then does not find it.
//
// Copies take only free memory. If there is none for a copy, the task makes no more copies on that
// GPU, and keeps those that it has made. The copies live as long as the values: destroying the last
// handle of the values frees the copies on the GPUs. After a cancel this may be late: an idle
// worker holds the values of one step, and their copies on each GPU, until its next step.
//
// Integers and values without bytes are skipped. REQUIRES: the values are on the CPU, and nobody
// writes to them.
std::function<void()> PromiseCopies(const std::vector<CopyWanted>& wanted);

// The copy of `value` on `device`, or nullopt if there is none. Blocks while that copy is being
// made. A copy that is registered but not yet begun is cancelled, since the caller can make it just
// as fast. Thread-safe.
std::optional<Tensor> FindCopyAhead(const Tensor& value, Device device);

// Drops all copies on `device`, including copies in progress, because the device has run out of
// memory or has failed. FindCopyAhead no longer finds them. Copies that a step has already found
// remain with the step. Blocks while another thread is making a copy, so that no copy holds memory
// of the device when this returns. Returns whether any copy held memory. Copies that are registered
// later are not affected. Thread-safe.
bool DropCopiesAhead(Device device);

}  // namespace divvy

#endif  // DIVVY_TENSOR_COPIES_AHEAD_H_
