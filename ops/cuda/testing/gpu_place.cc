#include <cstdlib>

#include "gtest/gtest.h"
#include "ops/cuda/gpus.h"
#include "ops/testing/place.h"

namespace divvy {
namespace {

absl::StatusOr<Device> Open() {
  GpuOptions options;
  options.choice.kind = GpuChoice::Kind::kAll;
  const absl::StatusOr<Gpus> gpus = OpenGpus(options);
  if (!gpus.ok()) return gpus.status();
  return gpus->devices[0];
}

// Where there is none this alone runs, and says why: an environment that skips would count all others as passed.
TEST(GpuTest, IsThere) {
  if (!TestDevice().ok()) GTEST_SKIP() << TestDevice().status().message();
}

// By both ways that googletest takes a filter: which of its variables and this one is made first, nobody says.
[[maybe_unused]] const bool filtered = [] {
  if (TestDevice().ok()) return false;
  setenv("GTEST_FILTER", "GpuTest.*", /*overwrite=*/1);
  ::testing::GTEST_FLAG(filter) = "GpuTest.*";
  return true;
}();

}  // namespace

absl::StatusOr<Device> TestDevice() {
  static const auto& device = *new absl::StatusOr<Device>(Open());
  return device;
}

}  // namespace divvy
