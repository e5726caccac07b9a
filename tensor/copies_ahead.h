// Values that are copied to a GPU before anybody asks for them there.
#ifndef DIVVY_TENSOR_COPIES_AHEAD_H_
#define DIVVY_TENSOR_COPIES_AHEAD_H_

#include <functional>
#include <optional>
#include <vector>

#include "tensor/tensor.h"

namespace divvy {

// A value of the CPU, and the GPUs on which a copy of it will be wanted.
struct CopyWanted {
  Tensor value;
  std::vector<Device> devices;
};

// Promises the copies, and returns the task that makes them. The task may block, and runs once or
// never. A copy that cannot be made is no error: nobody finds it then. Copies take only memory that
// is free. Where there is none for one of them, the task makes no more on that GPU, and those that
// it has made stay. The copies live as long as the values: whoever lets go of the last handle of
// the values frees the copies on the GPUs. After a cancel that may be late: a worker without a step
// holds the values of one step, and their copies on each GPU, until its next step. Integers and
// values without bytes are left out. REQUIRES: the values lie on the CPU, and nobody writes to
// them.
std::function<void()> PromiseCopies(const std::vector<CopyWanted>& wanted);

// The copy of `value` on `device`. Waits for a copy that is being made; one that is only promised
// is not made any more, since its caller is as quick. nullopt: there is none. Thread-safe.
std::optional<Tensor> FindCopyAhead(const Tensor& value, Device device);

// Lets go of all copies on `device`, and of those that are on their way there: the device has no
// memory left, or has failed. Nobody finds them any more. Those that a step has found stay the
// step's. Waits for the one copy that another thread may be making: when it returns, none of the
// memory is theirs. Returns whether there were any that held memory. Copies that are promised later
// are not its concern. Thread-safe.
bool DropCopiesAhead(Device device);

}  // namespace divvy

#endif  // DIVVY_TENSOR_COPIES_AHEAD_H_
