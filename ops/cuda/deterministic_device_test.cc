// Tests a device that was opened to give equal bits for equal inputs (--deterministic).
#include "gtest/gtest.h"
#include "ops/backends.h"
#include "ops/cuda/testing/backend_comparison.h"
#include "ops/testing/place.h"

namespace divvy::internal {
namespace {

class DeterministicTest : public ::testing::Test, protected BackendComparison {
 protected:
  DeterministicTest() : BackendComparison(*TestDevice(), **BackendFor(*TestDevice())) {
    RecordProperty("seed", static_cast<int>(kSeed));
  }

  Tensor Scattered(const Tensor& ids, const Tensor& rows, const Shape& shape) {
    return *Computed(
        {ids, rows}, rows.dtype(), shape,
        [](const Backend& b, const auto& in, Tensor& y) { b.ScatterAddRows(in[0], in[1], y); });
  }
};

// Added one by one in float32, the three rows sum to 0. In double they sum to 1.
TEST_F(DeterministicTest, AScatterSumsInDouble) {
  const Tensor sum = Scattered(Tensor::Vector<int64_t>({0, 0, 0}),
                               Tensor::Vector<float>({1, 1e8F, -1e8F}), Shape{1});
  EXPECT_EQ(sum.values<float>()->at(0), 1);
}

TEST_F(DeterministicTest, AScatterOfManyRowsToFewIsTheSameEachTime) {
  for (const DType dtype : kTypes) {
    const Tensor ids = Ids(4'000, 7), rows = Values(dtype, Shape{4'000, 33});
    const Tensor first = Scattered(ids, rows, Shape{7, 33});
    for (int i = 0; i < 3; ++i)
      ASSERT_TRUE(BitwiseEqual(Scattered(ids, rows, Shape{7, 33}), first)) << DTypeName(dtype);
  }
}

TEST_F(DeterministicTest, AProductIsTheSameEachTime) {
  for (const DType dtype : kTypes) {
    const Tensor a = Values(dtype, Shape{40, 300}), b = Values(dtype, Shape{300, 50});
    const auto product = [&] {
      return *Computed({a, b}, dtype, Shape{40, 50},
                       [](const Backend& backend, const auto& in, Tensor& y) {
                         backend.MatMul({false, false, 1, 40, 50, 300}, in[0], in[1], y);
                       });
    };
    const Tensor first = product();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(BitwiseEqual(product(), first)) << DTypeName(dtype);
  }
}

}  // namespace
}  // namespace divvy::internal
