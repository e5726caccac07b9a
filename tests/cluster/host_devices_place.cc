// Four GPUs that the host emulates for the process: two for each of two workers.
#include <cstdlib>

#include "tests/cluster/devices_place.h"

namespace divvy {

DevicesPlace PrepareDevices() {
  setenv("DIVVY_CUDA_LIBRARY", "ops/cuda/testing/libdivvy_host_devices.so", 1);
  setenv("DIVVY_HOST_DEVICES", "4", 1);
  return {kHostLimitBytes, absl::OkStatus()};
}

}  // namespace divvy
