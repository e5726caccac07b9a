// The GPUs of the library that the process finds. ops/cuda/testing/gpu_place.cc has opened them,
// without a memory limit.
#include "ops/testing/place.h"
#include "tests/cluster/devices_place.h"

namespace divvy {

DevicesPlace PrepareDevices() { return {/*limit_bytes=*/0, TestDevice().status()}; }

}  // namespace divvy
