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

class Place : public ::testing::Environment {
  void SetUp() override {
    if (!TestDevice().ok()) GTEST_SKIP() << TestDevice().status().message();
  }
};

const ::testing::Environment* const place = ::testing::AddGlobalTestEnvironment(new Place);

}  // namespace

absl::StatusOr<Device> TestDevice() {
  static const auto& device = *new absl::StatusOr<Device>(Open());
  return device;
}

}  // namespace divvy
