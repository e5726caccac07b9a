// If there is no GPU, only the case that reports this runs.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/testing/place.h"

// Replaces gmock_main, because the filter can only be set after googletest has made its flags.
int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  if (!divvy::TestDevice().ok()) GTEST_FLAG_SET(filter, "GpuTest.*");
  return RUN_ALL_TESTS();
}
