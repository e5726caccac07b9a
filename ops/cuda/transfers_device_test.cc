// Tests copies to, between and from devices concurrent with computations: on a GPU that is emulated
// on the host, and on one of this machine.
#include <string>

#include "base/testing/on_threads.h"
#include "gtest/gtest.h"
#include "ops/backends.h"
#include "ops/cuda/testing/tensor_program.h"
#include "ops/testing/place.h"

namespace divvy::internal {
namespace {

const Backend& There() { return **BackendFor(*TestDevice()); }

TEST(TransfersOnADeviceTest, ValuesAreRightInAnyOrderOfCopiesAndSums) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    TensorProgram(There(), 1, seed).Run(150);
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
}

TEST(TransfersOnADeviceTest, ValuesAreRightWhereSeveralThreadsCopyAndComputeAtOnce) {
  OnThreads(3, [](int thread) {
    SCOPED_TRACE("seed " + std::to_string(101 + thread));
    TensorProgram(There(), 1, 101 + thread).Run(300);
  });
}

}  // namespace
}  // namespace divvy::internal
