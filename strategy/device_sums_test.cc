// Sums across replicas that share one GPU. The GPU is simulated by the host, or is a real one. For
// several GPUs see collectives_test.cc.
#include "strategy/device_sums.h"

#include <string>
#include <vector>

#include "base/random.h"
#include "gtest/gtest.h"
#include "ops/backends.h"
#include "ops/testing/place.h"

namespace divvy::internal {
namespace {

constexpr size_t kReplicas = 3;

// The values of a tensor on the CPU.
Tensor Cast(const Tensor& x, DType dtype) {
  Tensor y = *Tensor::Uninitialized(dtype, x.shape());
  (*BackendFor(Device{}))->Cast(x, y);
  return y;
}

// Small whole numbers: their sums are the same in any type and order.
std::vector<Tensor> OfEachReplica(Random& random, DType dtype, int64_t n,
                                  std::vector<double>& sum) {
  std::vector<Tensor> values;
  sum.assign(n, 0);
  for (size_t replica = 0; replica < kReplicas; ++replica) {
    std::vector<double> here(n);
    for (int64_t i = 0; i < n; ++i) sum[i] += here[i] = static_cast<double>(random.Below(40)) - 20;
    values.push_back(There(Cast(Tensor::Vector<double>(here), dtype)));
  }
  return values;
}

void ExpectValues(const Tensor& tensor, const std::vector<double>& expected) {
  const Tensor here = Cast(*tensor.To(Device{}), DType::kFloat64);
  const absl::Span<const double> values = *here.values<double>();
  ASSERT_EQ(std::vector<double>(values.begin(), values.end()), expected);
}

CommunicationOptions SmallPacks() {
  CommunicationOptions options;
  options.bytes_per_pack = 20'000;
  return options;
}

// Tensors of four types: many small tensors, and some that are larger than a pack.
struct Drawn {
  DeviceSums sums{ReduceOp::kSum, SmallPacks()};
  std::vector<std::vector<double>> expected;

  Drawn() {
    Random random(20261123);
    for (int i = 0; i < 60; ++i) {
      const DType dtype = std::vector<DType>{DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                             DType::kBFloat16}[i % 4];
      const int64_t n = i % 20 == 0 ? 50'000 : 1 + static_cast<int64_t>(random.Below(300));
      expected.emplace_back();
      EXPECT_EQ(sums.Add(OfEachReplica(random, dtype, n, expected.back())), expected.size() - 1);
    }
  }
};

TEST(DeviceSumsTest, SumsOfTensorsOfAllTypesAndSizesComeToTheCpu) {
  Drawn drawn;
  const absl::StatusOr<std::vector<Tensor>> sums = std::move(drawn.sums).OnCpu();
  ASSERT_TRUE(sums.ok()) << sums.status();
  for (size_t i = 0; i < sums->size(); ++i) {
    SCOPED_TRACE("number " + std::to_string(i));
    ExpectValues((*sums)[i], drawn.expected[i]);
  }
}

TEST(DeviceSumsTest, EachReplicaHasTheSumsWhereItsValuesLie) {
  Drawn drawn;
  const absl::StatusOr<std::vector<std::vector<Tensor>>> sums = std::move(drawn.sums).OnEachGpu();
  ASSERT_TRUE(sums.ok()) << sums.status();
  ASSERT_EQ(sums->size(), kReplicas);
  for (const std::vector<Tensor>& of_replica : *sums) {
    for (size_t i = 0; i < of_replica.size(); ++i) {
      SCOPED_TRACE("number " + std::to_string(i));
      EXPECT_EQ(of_replica[i].device(), *TestDevice());
      ExpectValues(of_replica[i], drawn.expected[i]);
    }
  }
}

TEST(DeviceSumsTest, AMeanIsTheSumThroughTheirNumber) {
  DeviceSums means(ReduceOp::kMean);
  means.Add({There(Tensor::Vector<float>({3, 6})), There(Tensor::Vector<float>({0, 0})),
             There(Tensor::Vector<float>({3, -3}))});
  ExpectValues((*std::move(means).OnCpu())[0], {2, 1});
}

}  // namespace
}  // namespace divvy::internal
