// Where there is no GPU, only the case that says so runs.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/testing/place.h"

// In place of gmock_main's: the filter can only be set once googletest has made its flags.
int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  if (!divvy::TestDevice().ok()) GTEST_FLAG_SET(filter, "GpuTest.*");
  return RUN_ALL_TESTS();
}
