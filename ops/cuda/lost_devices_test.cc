#include "ops/cuda/lost_devices.h"

#include "gtest/gtest.h"

namespace divvy::cuda {
namespace {

TEST(LostDevicesTest, ErrorsThatCorruptTheContextLoseTheDevice) {
  for (const int error : {46, 100, 214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999})
    EXPECT_TRUE(LosesDevice(error)) << error;
}

TEST(LostDevicesTest, ErrorsOfOneCallDoNot) {
  // Success, invalid value, out of memory, not ready, launch out of resources, peer access, pinned
  // twice, launches that are too large, not supported.
  for (const int error : {0, 1, 2, 600, 701, 704, 705, 708, 711, 712, 713, 720, 801})
    EXPECT_FALSE(LosesDevice(error)) << error;
}

}  // namespace
}  // namespace divvy::cuda
