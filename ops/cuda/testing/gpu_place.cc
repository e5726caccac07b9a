// The first device of the library that DIVVY_CUDA_LIBRARY names. DIVVY_REQUIRE_GPU says what it
// must be: "1" is a GPU; "host" is an emulated one, as in a rehearsal of tools/gpu_suite. If it is
// unset there may be no device, and the tests are then skipped.
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/cuda/gpus.h"
#include "ops/testing/place.h"

namespace divvy {
namespace {

absl::StatusOr<Device> Open() {
  GpuOptions options;
  options.choice.kind = GpuChoice::Kind::kAll;
#ifdef DIVVY_DETERMINISTIC
  options.math.deterministic = true;
#endif
  const absl::StatusOr<Gpus> gpus = OpenGpus(options);
  if (!gpus.ok()) return gpus.status();
  return gpus->devices[0];
}

// Without a device only this case runs, and it reports the reason. If the environment skipped the
// cases instead, all others would count as passed.
TEST(GpuTest, IsThere) {
  const char* const required = std::getenv("DIVVY_REQUIRE_GPU");
  const absl::Status found = TestDevice().status();
  if (required == nullptr && !found.ok()) GTEST_SKIP() << found.message();
  ASSERT_TRUE(found.ok()) << "DIVVY_REQUIRE_GPU=" << required
                          << ", and there is none: " << found.message();
  const std::string name = Describe(*TestDevice()).name;
  RecordProperty("device", name);
  if (required == nullptr) return;
  EXPECT_EQ(absl::StartsWith(name, "host device"), std::string(required) == "host")
      << "DIVVY_REQUIRE_GPU=" << required
      << ", but the library in DIVVY_CUDA_LIBRARY computes on \"" << name
      << "\": name the other library there";
}

}  // namespace

absl::StatusOr<Device> TestDevice() {
  static const auto& device = *new absl::StatusOr<Device>(Open());
  return device;
}

}  // namespace divvy
