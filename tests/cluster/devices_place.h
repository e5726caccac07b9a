// The GPUs that devices_test.cc computes on. A test is linked with one implementation.
#ifndef DIVVY_TESTS_CLUSTER_DEVICES_PLACE_H_
#define DIVVY_TESTS_CLUSTER_DEVICES_PLACE_H_

#include <cstdint>

#include "absl/status/status.h"

namespace divvy {

constexpr int64_t kHostLimitBytes = 1 << 20;

struct DevicesPlace {
  // --gpu_memory_bytes of every cluster; 0: no limit.
  int64_t limit_bytes = 0;
  // Not OK if there is no GPU. The tests are then skipped with this message.
  absl::Status found;
};

// Called before the first cluster starts.
DevicesPlace PrepareDevices();

}  // namespace divvy

#endif  // DIVVY_TESTS_CLUSTER_DEVICES_PLACE_H_
