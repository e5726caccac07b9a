// Which GPUs devices_test.cc computes on: what a test of its cases is linked with says it.
#ifndef DIVVY_TESTS_CLUSTER_DEVICES_PLACE_H_
#define DIVVY_TESTS_CLUSTER_DEVICES_PLACE_H_

#include <cstdint>

#include "absl/status/status.h"

namespace divvy {

constexpr int64_t kHostLimitBytes = 1 << 20;

struct DevicesPlace {
  // --gpu_memory_bytes of every cluster; 0: none
  int64_t limit_bytes = 0;
  // Not OK: there is no GPU, and the cases are skipped with these words.
  absl::Status found;
};

// Called before the first cluster starts.
DevicesPlace PrepareDevices();

}  // namespace divvy

#endif  // DIVVY_TESTS_CLUSTER_DEVICES_PLACE_H_
