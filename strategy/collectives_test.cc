// Reductions and collectives across 1, 2 and 4 replicas, on real threads. Built twice: for replicas
// on the CPU, and for replicas on GPUs that the host simulates.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "base/mutex.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/ops.h"
#include "strategy/reduce.h"
#include "strategy/replica_context.h"
#include "strategy/testing/test_strategy.h"

#ifdef DIVVY_REPLICAS_ON_GPUS
#include "ops/backends.h"
#include "ops/collectives.h"
#include "ops/cuda/gpu_backend.h"
#include "ops/cuda/testing/host_math.h"
#endif

namespace divvy {
namespace {

#ifdef DIVVY_REPLICAS_ON_GPUS
constexpr Device::Kind kKind = Device::Kind::kGpu;

// Shared by all tests; lives as long as the process.
class HostDevices : public ::testing::Environment {
 public:
  static cuda::HostMath& Math() {
    static auto* const math = new cuda::HostMath(4);
    return *math;
  }
  void SetUp() override {
    Math().keep_log = false;
    auto* const backend = new internal::GpuBackend(Math());
    SetGpuMemory(backend);
    internal::SetGpuBackend(backend);
    internal::SetGpuCollectives(backend);
  }
};
const ::testing::Environment* const host_devices =
    ::testing::AddGlobalTestEnvironment(new HostDevices());
#else
constexpr Device::Kind kKind = Device::Kind::kCpu;
#endif

class ReplicaStrategy : public TestStrategy {
 public:
  explicit ReplicaStrategy(int replicas, uint64_t job = 1) : TestStrategy(replicas, job, kKind) {}
};

// An action of one replica.
class Done {
 public:
  void Set() {
    MutexLock lock(mu_);
    done_ = true;
    changed_.NotifyAll();
  }
  void Await() {
    MutexLock lock(mu_);
    changed_.Wait(mu_, [this] { return done_; });
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool done_ = false;
};

// A replica's value, on the replica's device.
template <typename T>
T Of(int replica, const T& value) {
  if (kKind == Device::Kind::kCpu || std::is_arithmetic_v<T>) return value;
  return *NestCodec<T>::Decode(*internal::MoveTo(NestCodec<T>::Encode(value), {kKind, replica}));
}
template <typename T>
PerReplica<T> OfEach(std::vector<T> values) {
  for (size_t i = 0; i < values.size(); ++i) values[i] = Of<T>(static_cast<int>(i), values[i]);
  return PerReplica<T>(std::move(values));
}

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Tensor Floats(Shape shape, std::vector<float> values) {
  return *Tensor::Copy<float>(shape, values);
}
Tensor Floats(std::vector<float> values) { return Tensor::Vector<float>(values); }

std::vector<float> Values(const absl::StatusOr<Tensor>& tensor) {
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  const Tensor here = *tensor->To(Device{});
  const auto values = here.values<float>();
  return std::vector<float>(values->begin(), values->end());
}

IndexedSlices Slices(std::vector<int64_t> ids, std::vector<float> rows, int64_t num_rows) {
  const int64_t n = static_cast<int64_t>(ids.size());
  return {Tensor::Vector<int64_t>(ids), Floats({n, 1}, rows), num_rows};
}

absl::StatusOr<Tensor> ReduceTwo(ReduceOp op, const Tensor& a, const Tensor& b, const Axes& axes) {
  ReplicaStrategy strategy(2);
  return strategy->Reduce(op, OfEach<Tensor>({a, b}), axes);
}

// ---- Reduce -------------------------------------------------------------------------------------

struct Worked {
  Tensor r0, r1;
  Axes axes;
  std::vector<float> sum, mean;
  Shape shape;
};

TEST(ReduceTest, FollowsTensorFlowsWorkedExamples) {
  const Tensor matrix = Floats({2, 2}, {1, 2, 3, 4});
  const std::vector<Worked> cases = {
      {Floats({0, 1, 2, 3}), Floats({4, 5, 6, 7}), kNoAxis, {4, 6, 8, 10}, {2, 3, 4, 5}, {4}},
      {Floats({0, 1, 2, 3}), Floats({4, 5, 6, 7}), 0, {28}, {3.5}, {}},
      {Floats({0, 1, 2, 3}), Floats({4, 5}), 0, {15}, {2.5}, {}},  // a mean of means would be 3
      {matrix, Floats({1, 2}, {5, 6}), {0, 1}, {21}, {3.5}, {}},
      {matrix, Floats({2, 2}, {5, 6, 7, 8}), -1, {14, 22}, {3.5, 5.5}, {2}},
      {Floats({0}, {}), Floats({1, 3}), 0, {4}, {2}, {}},
  };
  for (const Worked& worked : cases) {
    SCOPED_TRACE(worked.r0.ToString() + " and " + worked.r1.ToString());
    const auto sum = ReduceTwo(ReduceOp::kSum, worked.r0, worked.r1, worked.axes);
    EXPECT_EQ(Values(sum), worked.sum);
    EXPECT_EQ(sum->shape(), worked.shape);
    EXPECT_EQ(Values(ReduceTwo(ReduceOp::kMean, worked.r0, worked.r1, worked.axes)), worked.mean);
  }
}

TEST(ReduceTest, NothingAtAllSumsToZeroAndHasNoMean) {
  const Tensor nothing = Floats({0}, {});
  EXPECT_EQ(Values(ReduceTwo(ReduceOp::kSum, nothing, nothing, 0))[0], 0);
  EXPECT_TRUE(std::isnan(Values(ReduceTwo(ReduceOp::kMean, nothing, nothing, 0))[0]));
}

TEST(ReduceTest, RefusesWhatDoesNotFitAndNamesBothReplicas) {
  const absl::Status shapes =
      ReduceTwo(ReduceOp::kSum, Floats({0, 1, 2, 3}), Floats({4, 5}), kNoAxis).status();
  EXPECT_EQ(shapes.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(shapes.message(), HasSubstr("replica 0 has float32 [4], replica 1 has float32 [2]"));
  EXPECT_EQ(
      ReduceTwo(ReduceOp::kSum, Floats({1}), Tensor::Vector<double>({1}), kNoAxis).status().code(),
      absl::StatusCode::kInvalidArgument);
  for (int axis : {1, -2}) {
    const absl::Status outside = ReduceTwo(ReduceOp::kSum, Floats({1}), Floats({1}), axis).status();
    EXPECT_THAT(outside.message(), HasSubstr("is outside a tensor of shape [1]"));
  }
  EXPECT_THAT(ReduceTwo(ReduceOp::kSum, Floats({1}), Floats({1}), {0, -1}).status().message(),
              HasSubstr("twice"));
  EXPECT_THAT(
      ReduceTwo(ReduceOp::kSum, Tensor::Vector<bool>({true}), Tensor::Vector<bool>({true}), kNoAxis)
          .status()
          .message(),
      HasSubstr("bool"));
}

TEST(ReduceTest, TheMeanOfIntegersAsksForACastAndTheirSumWrapsAround) {
  const Tensor ints = Tensor::Vector<int32_t>({1, 2147483647});
  EXPECT_THAT(ReduceTwo(ReduceOp::kMean, ints, ints, kNoAxis).status().message(),
              HasSubstr("cast to float32"));
  const auto sum = ReduceTwo(ReduceOp::kSum, ints, ints, kNoAxis);
  EXPECT_THAT(*sum->values<int32_t>(), ElementsAre(2, -2));
}

TEST(ReduceTest, HalvesAreAddedAsFloats) {
  const Tensor halves = Tensor::Vector<Half>({Half::FromFloat(1.5f)});
  const auto mean =
      ReduceTwo(ReduceOp::kMean, halves, Tensor::Vector<Half>({Half::FromFloat(2.5f)}), 0);
  EXPECT_EQ(mean->scalar<Half>()->ToFloat(), 2.0f);
}

TEST(ReduceTest, IndexedSlicesAreConcatenatedAndTheirMeanDividesTheRows) {
  ReplicaStrategy strategy(2);
  const PerReplica<IndexedSlices> value({Slices({0, 2}, {1, 2}, 4), Slices({2}, {5}, 4)});
  const auto sum = strategy->Reduce(ReduceOp::kSum, value, kNoAxis);
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_THAT(*sum->ids.values<int64_t>(), ElementsAre(0, 2, 2));
  EXPECT_EQ(Values(sum->rows), (std::vector<float>{1, 2, 5}));
  EXPECT_EQ(Values(internal::ToDense(*sum)), (std::vector<float>{1, 0, 7, 0}));
  EXPECT_EQ(Values(strategy->Reduce(ReduceOp::kMean, value, kNoAxis)->rows),
            (std::vector<float>{0.5, 1, 2.5}));
}

TEST(ReduceTest, AMixtureOfDenseAndSparseIsDense) {
  ReplicaStrategy strategy(2);
  const PerReplica<Nest> value(
      {Nest(Slices({3, 3}, {1, 2}, 4)), Nest(Floats({4, 1}, {1, 1, 1, 1}))});
  EXPECT_EQ(Values(strategy->Reduce(ReduceOp::kSum, value, kNoAxis)->tensor()),
            (std::vector<float>{1, 1, 1, 4}));
}

TEST(ReduceTest, WorksLeafByLeafAndNamesThePathOfADisagreement) {
  ReplicaStrategy strategy(2);
  const Nest r0{{"a", 1.0f}, {"b", Floats({40, 1})}}, r1{{"a", 3.0f}, {"b", Floats({2, 98})}};
  const auto mean = strategy->Reduce(ReduceOp::kMean, PerReplica<Nest>({r0, r1}), kNoAxis);
  EXPECT_EQ(*(*mean)["a"].tensor()->scalar<float>(), 2);
  EXPECT_EQ(Values((*mean)["b"].tensor()), (std::vector<float>{21, 49.5}));
  const Nest bad{{"a", 3.0f}, {"b", Floats({2, 98, 1})}},
      other_keys{{"a", 3.0f}, {"c", Floats({2, 98})}};
  EXPECT_THAT(
      strategy->Reduce(ReduceOp::kSum, PerReplica<Nest>({r0, bad}), kNoAxis).status().message(),
      HasSubstr("at [\"b\"]"));
  EXPECT_THAT(strategy->Reduce(ReduceOp::kSum, PerReplica<Nest>({r0, other_keys}), kNoAxis)
                  .status()
                  .message(),
              HasSubstr("structures must agree"));
}

TEST(ReduceTest, APlainValueIsReturnedAsItIsButCountsOncePerReplicaWithAnAxis) {
  ReplicaStrategy strategy(2);
  const Nest value(Floats({1, 2}));
  EXPECT_EQ(Values(strategy->Reduce(ReduceOp::kSum, value, kNoAxis)->tensor()),
            (std::vector<float>{1, 2}));
  EXPECT_EQ(Values(strategy->Reduce(ReduceOp::kSum, value, 0)->tensor()), std::vector<float>{6});
  EXPECT_EQ(Values(strategy->Reduce(ReduceOp::kMean, value, 0)->tensor()), std::vector<float>{1.5});
}

TEST(ReduceTest, WithAnAxisANestIsReducedLeafByLeaf) {
  ReplicaStrategy strategy(2);
  const Nest r0{{"a", Floats({1, 2})}, {"b", Floats({4})}},
      r1{{"a", Floats({3})}, {"b", Floats({5, 6})}};
  const auto mean = strategy->Reduce(ReduceOp::kMean, PerReplica<Nest>({r0, r1}), 0);
  EXPECT_TRUE(BitwiseEqual(*mean, Nest{{"a", 2.0f}, {"b", 5.0f}})) << mean.status();
}

// The reference implementation: adds every element of every replica to its place in the result.
struct Model {
  std::map<std::vector<int64_t>, double> sums;
  int64_t count = 0;  // of elements in one sum
};
Model SumByHand(const std::vector<Tensor>& values, const std::set<int>& reduced) {
  Model model;
  for (const Tensor& value : values) {
    const Shape& shape = value.shape();
    int64_t in_one = 1;
    for (int axis : reduced) in_one *= shape.dim(axis);
    model.count += in_one;
    const absl::Span<const double> elements = *value.values<double>();
    for (int64_t i = 0; i < shape.num_elements(); ++i) {
      std::vector<int64_t> kept;
      int64_t rest = i;
      for (int axis = shape.rank() - 1; axis >= 0; rest /= shape.dim(axis--)) {
        if (reduced.count(axis) == 0) kept.insert(kept.begin(), rest % shape.dim(axis));
      }
      model.sums[kept] += elements[i];
    }
  }
  return model;
}

Tensor RandomDoubles(Random& random, const Shape& shape) {
  std::vector<double> values(shape.num_elements());
  for (double& value : values) value = static_cast<double>(random.Below(2000)) / 8 - 100;
  return *Tensor::Copy<double>(shape, values);
}

TEST(ReduceTest, AgreesWithSumsByHandOverAnyAxes) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const int rank = 1 + static_cast<int>(random.Below(4)),
              replicas = 1 + static_cast<int>(random.Below(4));
    std::set<int> reduced;
    std::vector<int64_t> dims;
    std::vector<int> axes;
    for (int axis = 0; axis < rank; ++axis) {
      dims.push_back(1 + random.Below(4));
      if (random.Chance(0.5) && reduced.insert(axis).second)
        axes.push_back(random.Chance(0.5) ? axis : axis - rank);
    }
    std::vector<Tensor> values;
    for (int replica = 0; replica < replicas; ++replica) {
      for (int axis : reduced) dims[axis] = 1 + random.Below(4);  // reduced axes may differ
      values.push_back(RandomDoubles(random, Shape(dims)));
    }
    ReplicaStrategy strategy(replicas);
    const auto sum = strategy->Reduce(ReduceOp::kSum, PerReplica<Tensor>(values), Axes(axes));
    const auto mean = strategy->Reduce(ReduceOp::kMean, PerReplica<Tensor>(values), Axes(axes));
    ASSERT_TRUE(sum.ok() && mean.ok()) << sum.status() << mean.status();
    const Model model = SumByHand(values, reduced);
    int64_t i = 0;
    for (const auto& [where, by_hand] : model.sums) {
      EXPECT_DOUBLE_EQ((*sum->values<double>())[i], by_hand);
      EXPECT_DOUBLE_EQ((*mean->values<double>())[i++], by_hand / static_cast<double>(model.count));
    }
    EXPECT_EQ(sum->shape().num_elements(), i);
  }
}

TEST(ReduceTest, AddsEveryNumericTypeAsItself) {
  const auto sum = [](auto a, auto b) {
    using T = decltype(a);
    const auto reduced =
        ReduceTwo(ReduceOp::kSum, Tensor::Vector<T>({a, a}), Tensor::Vector<T>({b, b}), 0);
    return *reduced->template scalar<T>();
  };
  EXPECT_EQ(sum(int8_t{60}, int8_t{10}), int8_t{-116});  // wraps around, as TensorFlow's does
  EXPECT_EQ(sum(uint8_t{120}, uint8_t{10}), uint8_t{4});
  EXPECT_EQ(sum(int32_t{-5}, int32_t{7}), 4);
  EXPECT_EQ(sum(int64_t{1} << 40, int64_t{1}), (int64_t{1} << 41) + 2);
  EXPECT_EQ(sum(0.5, 0.25), 1.5);
  EXPECT_EQ(sum(BFloat16::FromFloat(1.5f), BFloat16::FromFloat(2.0f)).ToFloat(), 7.0f);
}

TEST(ReduceTest, TakesCppTypesAndRefusesAValueOfOtherReplicas) {
  ReplicaStrategy strategy(2);
  EXPECT_EQ(*strategy->Reduce(ReduceOp::kSum, PerReplica<double>({1.5, 2}), kNoAxis), 3.5);
  const auto map = strategy->Reduce(
      ReduceOp::kSum, PerReplica<std::map<std::string, int>>({{{"x", 1}}, {{"x", 5}}}), kNoAxis);
  EXPECT_EQ(map->at("x"), 6);
  EXPECT_EQ(
      strategy->Reduce(ReduceOp::kSum, PerReplica<double>({1, 2, 3}), kNoAxis).status().code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(*strategy->extended().ReduceTo(ReduceOp::kMean, PerReplica<float>({1, 2}), Device{}),
            1.5f);
  const auto batch = strategy->extended().BatchReduceTo<float>(
      ReduceOp::kSum,
      {{PerReplica<float>({1, 2}), Device{}}, {PerReplica<float>({3, 4}), Device{}}});
  EXPECT_THAT(*batch, ElementsAre(3.0f, 7.0f));
}

TEST(ReduceOpTest, IsParsedInAnyCaseAndNothingElseIs) {
  EXPECT_EQ(*ParseReduceOp("SUM"), ReduceOp::kSum);
  EXPECT_EQ(*ParseReduceOp("mean"), ReduceOp::kMean);
  EXPECT_EQ(ParseReduceOp("MAX").status().code(), absl::StatusCode::kInvalidArgument);
}

// ---- Gather, local results, values from a function ----------------------------------------------

TEST(GatherTest, ConcatenatesAlongAnyAxis) {
  ReplicaStrategy strategy(4);
  std::vector<Tensor> values;
  for (int r = 0; r < 4; ++r)
    values.push_back(Floats({1, 2, 3}, {0.f + r, 1.f + r, 2.f + r, 3.f + r, 4.f + r, 5.f + r}));
  const PerReplica<Tensor> value(values);
  EXPECT_EQ(strategy->Gather(value, 0)->shape(), Shape({4, 2, 3}));
  EXPECT_EQ(strategy->Gather(value, 1)->shape(), Shape({1, 8, 3}));
  const auto last = strategy->Gather(value, -1);
  EXPECT_EQ(last->shape(), Shape({1, 2, 12}));
  EXPECT_EQ(Values(last), (std::vector<float>{0, 1, 2, 1, 2, 3, 2, 3, 4, 3, 4, 5,
                                              3, 4, 5, 4, 5, 6, 5, 6, 7, 6, 7, 8}));
  EXPECT_EQ(strategy->Gather(value, 3).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(GatherTest, OnlyTheAxisGatheredMayDiffer) {
  ReplicaStrategy strategy(2);
  const PerReplica<Tensor> value(
      {Floats({1, 2, 3}, std::vector<float>(6)), Floats({1, 3, 3}, std::vector<float>(9))});
  EXPECT_EQ(strategy->Gather(value, 1)->shape(), Shape({1, 5, 3}));
  EXPECT_THAT(strategy->Gather(value, 0).status().message(),
              HasSubstr("may differ along axis 0 only"));
  EXPECT_EQ(strategy->Gather(PerReplica<Tensor>({Tensor::Scalar(1.f), Tensor::Scalar(1.f)}), 0)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      strategy->Gather(PerReplica<Tensor>({Floats({1}), Floats({1, 1}, {1})}), 0).status().code(),
      absl::StatusCode::kInvalidArgument);
  // A value that is not distributed is returned unchanged.
  EXPECT_EQ(Values(strategy->Gather(Floats({1, 2}), 5)), (std::vector<float>{1, 2}));
}

TEST(LocalResultsTest, AreInReplicaOrderAndAPlainValueIsAlone) {
  ReplicaStrategy strategy(2);
  EXPECT_THAT(strategy->LocalResults(PerReplica<int>({4, 5})), ElementsAre(4, 5));
  EXPECT_THAT(strategy->LocalResults(6), ElementsAre(6));
  const auto values = strategy->DistributeValuesFromFunction(
      [](ValueContext c) { return c.replica_id_in_sync_group * 10 + c.num_replicas_in_sync; });
  EXPECT_THAT(values->values(), ElementsAre(2, 12));
}

TEST(LocalResultsTest, OfAVariableAreTheVariableAlone) {
  ReplicaStrategy strategy(2);
  const Variable variable = *strategy->CreateVariable({"v", {1}});
  const std::vector<Variable> results = strategy->LocalResults(variable);
  ASSERT_EQ(results.size(), 1);
  EXPECT_EQ(results[0].spec().name, "v");
}

TEST(ValueContextTest, IsAPlainRecordThatChecksNothing) {
  EXPECT_EQ(ValueContext().replica_id_in_sync_group, 0);
  EXPECT_EQ(ValueContext().num_replicas_in_sync, 1);
  const ValueContext nonsense{7, -4};
  EXPECT_EQ(nonsense.replica_id_in_sync_group, 7);
  EXPECT_EQ(nonsense.num_replicas_in_sync, -4);
}

TEST(DistributeValuesTest, WrapsAnyTypeAlsoForOneReplicaAndWithoutAStrategy) {
  ReplicaStrategy strategy(1);
  const auto text = [](ValueContext c) { return std::string(c.num_replicas_in_sync, 'x'); };
  EXPECT_THAT(strategy->DistributeValuesFromFunction(text)->values(), ElementsAre("x"));
  EXPECT_THAT(Strategy::Current().DistributeValuesFromFunction(text)->values(), ElementsAre("x"));
}

// ---- Run ----------------------------------------------------------------------------------------

class RunTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, RunTest, ::testing::Values(1, 2, 4));

TEST_P(RunTest, GivesEachReplicaItsComponentAndPlainArgumentsToAll) {
  ReplicaStrategy strategy(GetParam());
  std::vector<int> own(GetParam());
  for (int i = 0; i < GetParam(); ++i) own[i] = 10 * i;
  const auto result = strategy->Run(
      [](ReplicaContext& replica, int mine, int all) -> absl::StatusOr<int> {
        return mine + all + replica.replica_id_in_sync_group();
      },
      PerReplica<int>(own), 1000);
  ASSERT_TRUE(result.ok()) << result.status();
  for (int i = 0; i < GetParam(); ++i) EXPECT_EQ((*result)[i], 1000 + 11 * i);
}

TEST_P(RunTest, TheNthCollectiveMeetsTheNth) {
  const int n = GetParam();
  ReplicaStrategy strategy(n);
  const auto result = strategy->Run([&](ReplicaContext& replica) -> absl::StatusOr<float> {
    float total = 0;
    for (int round = 0; round < 200; ++round) {
      ASSIGN_OR_RETURN(
          float sum,
          replica.AllReduce(ReduceOp::kSum,
                            static_cast<float>(round + replica.replica_id_in_sync_group())));
      EXPECT_EQ(sum, n * round + n * (n - 1) / 2);
      ASSIGN_OR_RETURN(int last, replica.MergeCall([&](Strategy&, const PerReplica<int>& v)
                                                       -> absl::StatusOr<int> { return v[n - 1]; },
                                                   replica.replica_id_in_sync_group()));
      EXPECT_EQ(last, n - 1);
      total += sum;
    }
    return total;
  });
  ASSERT_TRUE(result.ok()) << result.status();
}

TEST_P(RunTest, AllGatherConcatenatesInReplicaOrder) {
  ReplicaStrategy strategy(GetParam());
  const auto result = strategy->Run([](ReplicaContext& replica) {  // replica i: i + 1 times i
    const int id = replica.replica_id_in_sync_group();
    return replica.AllGather(Floats(std::vector<float>(id + 1, id)), 0);
  });
  ASSERT_TRUE(result.ok()) << result.status();
  const std::vector<float> all = {0, 1, 1, 2, 2, 2, 3, 3, 3, 3};
  const std::vector<float> expected(all.begin(), all.begin() + GetParam() * (GetParam() + 1) / 2);
  for (int i = 0; i < GetParam(); ++i) EXPECT_EQ(Values((*result)[i]), expected);
}

TEST_P(RunTest, MergeCallRunsOnceInCrossReplicaContextAndUnpacksAPerReplicaResult) {
  ReplicaStrategy strategy(GetParam());
  std::atomic<int> calls{0};
  const auto result = strategy->Run([&](ReplicaContext& replica) -> absl::StatusOr<int> {
    return replica.MergeCall(
        [&](Strategy& merged, const PerReplica<int>& ids,
            const PerReplica<std::string>& texts) -> absl::StatusOr<PerReplica<int>> {
          ++calls;
          EXPECT_TRUE(InCrossReplicaContext());
          EXPECT_EQ(&merged, &*strategy);
          EXPECT_EQ(texts[0], "x");
          std::vector<int> squares;
          for (int id : ids.values()) squares.push_back(id * id);
          return PerReplica<int>(squares);
        },
        replica.replica_id_in_sync_group(), std::string("x"));
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(calls, 1);
  for (int i = 0; i < GetParam(); ++i) EXPECT_EQ((*result)[i], i * i);
}

TEST_P(RunTest, AMergeFunctionThatFailsOrThrowsFailsAllReplicas) {
  ReplicaStrategy strategy(GetParam());
  const auto failing = [](Strategy&) { return absl::DataLossError("no"); };
  EXPECT_EQ(
      strategy->Run([&](ReplicaContext& replica) { return replica.MergeCall(failing).status(); })
          .status(),
      absl::DataLossError("no"));
  const auto throwing = [](Strategy&) -> absl::Status { throw std::runtime_error("boom"); };
  const absl::Status thrown =
      strategy->Run([&](ReplicaContext& replica) { return replica.MergeCall(throwing).status(); })
          .status();
  EXPECT_EQ(thrown.code(), absl::StatusCode::kUnknown);
  EXPECT_THAT(thrown.message(), HasSubstr("boom"));
}

TEST_P(RunTest, AReplicaThatThrowsIsUnknownWithItsWords) {
  ReplicaStrategy strategy(GetParam());
  const absl::Status status =
      strategy
          ->Run([](ReplicaContext& replica) -> absl::Status {
            if (replica.replica_id_in_sync_group() == replica.num_replicas_in_sync() - 1)
              throw std::runtime_error("boom");
            return replica.AllReduce(ReduceOp::kSum, 1.0f).status();
          })
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
  EXPECT_THAT(status.message(), HasSubstr(" threw: boom"));
}

TEST_P(RunTest, InAMergeFunctionRunsTheReplicasAgain) {
  ReplicaStrategy strategy(GetParam());
  const auto inner = [](ReplicaContext& replica) { return replica.AllReduce(ReduceOp::kSum, 1); };
  const auto result = strategy->Run([&](ReplicaContext& replica) -> absl::StatusOr<int> {
    return replica.MergeCall([&](Strategy& merged) -> absl::StatusOr<int> {
      ASSIGN_OR_RETURN(PerReplica<int> counts, merged.Run(inner));
      return counts[0];
    });
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)[0], GetParam());
}

TEST_P(RunTest, GivesAPerReplicaWhateverTheFunctionReturns) {
  const int n = GetParam();
  ReplicaStrategy strategy(n);
  const auto nothing = strategy->Run([](ReplicaContext&) { return absl::OkStatus(); });
  static_assert(
      std::is_same_v<decltype(nothing), const absl::StatusOr<PerReplica<std::monostate>>>);
  EXPECT_EQ(nothing->size(), n);
  const auto shared = std::make_shared<int>(5);
  const auto same = strategy->Run([](ReplicaContext&, const std::shared_ptr<int>& object)
                                      -> absl::StatusOr<std::shared_ptr<int>> { return object; },
                                  shared);
  EXPECT_EQ(same->values(), std::vector<std::shared_ptr<int>>(n, shared));
  const auto nests = strategy->Run([](ReplicaContext& replica) -> absl::StatusOr<Nest> {
    return Nest::List(replica.replica_id_in_sync_group());
  });
  EXPECT_EQ((*nests)[n - 1].size(), n - 1);  // each has its own structure: nothing is regrouped
}

template <typename F>
using RunResult = decltype(std::declval<Strategy&>().Run(std::declval<F>()));
template <typename F, typename = void>
constexpr bool kCanRun = false;
template <typename F>
constexpr bool kCanRun<F, std::void_t<RunResult<F>>> = true;

TEST(RunOnceTest, AFunctionThatCannotFailOrTakesSomethingElseDoesNotCompile) {
  static_assert(kCanRun<absl::StatusOr<int> (*)(ReplicaContext&)>);
  static_assert(kCanRun<absl::Status (*)(ReplicaContext&)>);
  static_assert(!kCanRun<int (*)(ReplicaContext&)>);
  static_assert(!kCanRun<absl::Status (*)(int)>);
  static_assert(!kCanRun<absl::Status (*)(ReplicaContext&, int)>);
  // Gather takes no IndexedSlices either.
  static_assert(!std::is_constructible_v<PerReplica<Tensor>, IndexedSlices> &&
                !std::is_constructible_v<Tensor, IndexedSlices>);
}

TEST(RunOnceTest, AMergeFunctionTakesADictForKeywordArgumentsAndGivesEachItsOwn) {
  ReplicaStrategy strategy(2);
  const auto merge = [](Strategy&,
                        const PerReplica<Nest>& kwargs) -> absl::StatusOr<PerReplica<Nest>> {
    return PerReplica<Nest>({kwargs[1]["x"], kwargs[0]["x"]});
  };
  const auto swapped = strategy->Run([&](ReplicaContext& replica) {
    return replica.MergeCall(merge, Nest{{"x", Nest(replica.replica_id_in_sync_group())}});
  });
  ASSERT_TRUE(swapped.ok()) << swapped.status();
  EXPECT_EQ(*(*swapped)[0].tensor()->scalar<int>(), 1);
  EXPECT_EQ(*(*swapped)[1].tensor()->scalar<int>(), 0);
}

TEST(RunOnceTest, AMergeFunctionThatGivesAnotherNumberOfComponentsFailsAll) {
  ReplicaStrategy strategy(2);
  const auto three = [](Strategy&) -> absl::StatusOr<PerReplica<int>> {
    return PerReplica<int>({1, 2, 3});
  };
  const absl::Status status =
      strategy->Run([&](ReplicaContext& replica) { return replica.MergeCall(three); }).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("returned 3 components for 2 replicas"));
}

TEST(RunOnceTest, TheMergeFunctionIsThatOfReplicaZero) {
  ReplicaStrategy strategy(4);
  const auto result = strategy->Run([](ReplicaContext& replica) {
    const std::function<absl::StatusOr<int>(Strategy&)> mine =
        [id = replica.replica_id_in_sync_group()](Strategy&) -> absl::StatusOr<int> { return id; };
    return replica.MergeCall(mine);
  });
  EXPECT_THAT(result->values(), ElementsAre(0, 0, 0, 0));
}

TEST(RunOnceTest, RefusesAnArgumentOfOtherReplicas) {
  ReplicaStrategy strategy(2);
  const absl::Status status =
      strategy
          ->Run([](ReplicaContext&, int) { return absl::OkStatus(); }, PerReplica<int>({1, 2, 3}))
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("3 components"));
}

TEST(RunOnceTest, AnExecutorThatHasStoppedEndsItWithAnError) {
  ThreadPoolExecutor executor(1);
  executor.Stop();
  StrategyParts parts;
  parts.executor = &executor;
  parts.replica_devices.resize(3);
  Strategy strategy(std::move(parts));
  const absl::Status status = strategy
                                  .Run([](ReplicaContext& replica) {
                                    return replica.AllReduce(ReduceOp::kSum, 1).status();
                                  })
                                  .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
}

// ---- replicas that disagree or leave ------------------------------------------------------------

// The results of two replicas, and of Run.
struct Outcome {
  std::vector<absl::Status> replicas{2};
  absl::Status run;
};

using Move = std::function<absl::Status(ReplicaContext&)>;
Outcome RunTwo(const Move& r0, const Move& r1) {
  ReplicaStrategy strategy(2);
  Outcome outcome;
  outcome.run = strategy
                    ->Run([&](ReplicaContext& replica) {
                      const int id = replica.replica_id_in_sync_group();
                      outcome.replicas[id] = id == 0 ? r0(replica) : r1(replica);
                      return outcome.replicas[id];
                    })
                    .status();
  return outcome;
}

Move Reduces(ReduceOp op, Nest value) {
  return [=](ReplicaContext& replica) { return replica.AllReduce(op, value).status(); };
}
Move Gathers(int axis, Tensor value) {
  return [=](ReplicaContext& replica) { return replica.AllGather(value, axis).status(); };
}
Move Applies(std::string name, GradientValue gradient) {
  return [=](ReplicaContext& replica) {
    Gradients gradients;
    gradients.Set(name, gradient);
    return replica.ApplyGradients(gradients);
  };
}
absl::Status Merges(ReplicaContext& replica) {
  return replica.MergeCall([](Strategy&) { return absl::OkStatus(); }).status();
}
absl::Status MergesAnother(ReplicaContext& replica) {
  return replica.MergeCall([](Strategy&) -> absl::StatusOr<int> { return 1; }).status();
}

TEST(DisagreementTest, IsInvalidArgumentForAllAndNamesBothReplicas) {
  const Nest one(1.0f);
  const Nest dict{{"a", 1.0f}};
  const Nest sparse(Slices({0}, {1}, 2)), dense(Floats({2, 1}, {1, 1}));
  const std::vector<std::pair<Move, Move>> cases = {
      // kind
      {Reduces(ReduceOp::kSum, one), Gathers(0, Floats({1}))},
      // kind
      {Reduces(ReduceOp::kSum, one), Merges},
      // op
      {Reduces(ReduceOp::kSum, one), Reduces(ReduceOp::kMean, one)},
      // axis
      {Gathers(0, Floats({1}, {1})), Gathers(-1, Floats({1}, {1}))},
      // structure
      {Reduces(ReduceOp::kSum, one), Reduces(ReduceOp::kSum, dict)},
      // dtype
      {Reduces(ReduceOp::kSum, one), Reduces(ReduceOp::kSum, Nest(1.0))},
      // shape
      {Reduces(ReduceOp::kSum, one), Reduces(ReduceOp::kSum, Nest(Floats({1, 2})))},
      // dense against sparse
      {Reduces(ReduceOp::kSum, sparse), Reduces(ReduceOp::kSum, dense)},
      // num_rows
      {Reduces(ReduceOp::kSum, sparse), Reduces(ReduceOp::kSum, Nest(Slices({0}, {1}, 3)))},
      {Merges, MergesAnother},
      {Applies("w", Floats({1})), Applies("v", Floats({1}))},
      {Applies("w", Floats({2, 1}, {1, 1})), Applies("w", Slices({0}, {1}, 2))},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    const Outcome outcome = RunTwo(cases[i].first, cases[i].second);
    EXPECT_EQ(outcome.run.code(), absl::StatusCode::kInvalidArgument) << outcome.run;
    EXPECT_EQ(outcome.replicas[0], outcome.run);
    EXPECT_EQ(outcome.replicas[1], outcome.run);
    EXPECT_THAT(outcome.run.message(), HasSubstr("replica 0"));
    EXPECT_THAT(outcome.run.message(), HasSubstr("replica 1"));
  }
}

TEST(DisagreementTest, ReplicasMayGoOnTogetherAfterIt) {
  const auto twice = [](Nest value) {
    return [=](ReplicaContext& replica) -> absl::Status {
      EXPECT_FALSE(replica.AllReduce(ReduceOp::kSum, value).ok());
      return replica.AllReduce(ReduceOp::kSum, 1.0f).status();
    };
  };
  EXPECT_TRUE(RunTwo(twice(Nest(1.0f)), twice(Nest(1.0))).run.ok());
}

TEST(LeavingTest, AReplicaThatReturnsFailsThoseThatWaitForIt) {
  const Outcome outcome =
      RunTwo(Reduces(ReduceOp::kSum, Nest(1.0f)), [](ReplicaContext&) { return absl::OkStatus(); });
  EXPECT_EQ(outcome.run.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(outcome.replicas[0], outcome.run);
  EXPECT_THAT(outcome.run.message(),
              HasSubstr("replica 0 waits in AllReduce SUM, but replica 1 has returned without it"));
}

TEST(LeavingTest, AReplicaThatFailsGivesItsErrorToThoseThatWait) {
  for (int failing : {0, 1}) {
    const Move fails = [](ReplicaContext&) { return absl::OutOfRangeError("mine"); };
    const Move waits = Merges;
    const Outcome outcome = failing == 0 ? RunTwo(fails, waits) : RunTwo(waits, fails);
    EXPECT_EQ(outcome.run, absl::OutOfRangeError("mine"));
    EXPECT_EQ(outcome.replicas[1 - failing], absl::OutOfRangeError("mine"));
  }
}

TEST(LeavingTest, WhoWaitedInVainMayComeAgainAndGetsTheSameAnswer) {
  const Outcome outcome = RunTwo(
      [](ReplicaContext& replica) {
        const absl::Status first = replica.AllReduce(ReduceOp::kSum, 1.0f).status();
        EXPECT_EQ(first.code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_EQ(Merges(replica).code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_EQ(replica.AllReduce(ReduceOp::kSum, 1.0f).status(), first);
        return absl::OkStatus();
      },
      [](ReplicaContext&) { return absl::OkStatus(); });
  EXPECT_EQ(outcome.run, absl::OkStatus());
}

// A replica whose value is an error takes part nevertheless. Otherwise its next call would meet the
// other replicas' current call.
TEST(LeavingTest, AnErrorThatOneReplicaBringsIsEverybodysAndTheNextCallsMeetAgain) {
  const absl::Status reason = absl::DataLossError("no batch");
  CommunicationOptions nonsense;
  nonsense.bytes_per_pack = -1;
  const std::vector<std::pair<Move, Move>> cases = {
      {Reduces(ReduceOp::kSum, Nest(Nest::Dict())["there is none"]),
       Reduces(ReduceOp::kSum, Nest(1.0f))},
      {[&](ReplicaContext& replica) {
         return replica.AllReduce(ReduceOp::kSum, 1.0f, nonsense).status();
       },
       Reduces(ReduceOp::kSum, Nest(1.0f))},
      {[](ReplicaContext& replica) {
         return replica.AllReduce(ReduceOp::kSum, Var(Nest("text"))).status();
       },
       [](ReplicaContext& replica) {
         return replica.AllReduce(ReduceOp::kSum, Var(1.0f)).status();
       }},
      {[](ReplicaContext& replica) { return replica.AllGather(Var(Nest("text")), 0).status(); },
       [](ReplicaContext& replica) { return replica.AllGather(Var(Floats({1})), 0).status(); }},
      {[&](ReplicaContext& replica) { return replica.ApplyGradients(reason); },
       [](ReplicaContext& replica) { return replica.ApplyGradients(Gradients()); }},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    std::vector<absl::Status> errors(2);
    const auto then_goes_on = [&errors](const Move& move) {
      return [&errors, &move](ReplicaContext& replica) -> absl::Status {
        errors[replica.replica_id_in_sync_group()] = move(replica);
        ASSIGN_OR_RETURN(const int replicas, replica.AllReduce(ReduceOp::kSum, 1));
        EXPECT_EQ(replicas, 2);
        return absl::OkStatus();
      };
    };
    EXPECT_EQ(RunTwo(then_goes_on(cases[i].first), then_goes_on(cases[i].second)).run,
              absl::OkStatus());
    EXPECT_FALSE(errors[0].ok());
    EXPECT_EQ(errors[0], errors[1]);
  }
}

TEST(LeavingTest, OneOfFourThatLeavesLaterFailsTheOthersThen) {
  ReplicaStrategy strategy(4);
  std::atomic<int> rounds{0};
  const absl::Status status =
      strategy
          ->Run([&](ReplicaContext& replica) -> absl::Status {
            for (int round = 0; round < 5; ++round) {
              if (round == 3 && replica.replica_id_in_sync_group() == 2)
                return absl::AbortedError("enough");
              RETURN_IF_ERROR(replica.AllReduce(ReduceOp::kSum, 1).status());
              ++rounds;
            }
            return absl::OkStatus();
          })
          .status();
  EXPECT_EQ(status, absl::AbortedError("enough"));
  EXPECT_EQ(rounds, 12);
}

// Replicas run scripts of moves, which are mostly equal, and continue after errors. The scripts
// alone determine each replica's results.
enum class Play { kSum, kMean, kGather, kMerge, kBringError };
struct Script {
  std::vector<Play> plays;
  absl::Status end;
};

std::vector<Script> RandomScripts(Random& random) {
  Script common;
  for (uint64_t n = random.Below(6); n > 0; --n)
    common.plays.push_back(static_cast<Play>(random.Below(4)));
  std::vector<Script> scripts(2 + random.Below(3), common);
  for (Script& script : scripts) {
    if (random.Chance(0.2)) script.plays.resize(random.Below(script.plays.size() + 1));
    if (!script.plays.empty() && random.Chance(0.2))
      script.plays[random.Below(script.plays.size())] = static_cast<Play>(random.Below(5));
    if (random.Chance(0.2)) script.end = absl::DataLossError("mine");
  }
  return scripts;
}

absl::Status PlayOne(Play play, ReplicaContext& replica) {
  switch (play) {
    case Play::kSum: return replica.AllReduce(ReduceOp::kSum, 1.0f).status();
    case Play::kMean: return replica.AllReduce(ReduceOp::kMean, 1.0f).status();
    case Play::kGather: return replica.AllGather(Floats({1}), 0).status();
    case Play::kMerge: return Merges(replica);
    case Play::kBringError:
      return replica.AllReduce(ReduceOp::kSum, Nest(Nest::Dict())["none"]).status();
  }
  return absl::OkStatus();
}

// The codes that a replica may get at its move `n`. There are several only if the result depends on
// which replica ends first, because the first one ends the meeting for all.
std::set<absl::StatusCode> Told(const std::vector<Script>& scripts, size_t n) {
  for (const Script& script : scripts) n = std::min(n, script.plays.size());
  std::set<absl::StatusCode> of_leavers;
  std::set<Play> plays;
  bool error = false;
  for (const Script& script : scripts) {
    if (n >= script.plays.size()) {
      of_leavers.insert(script.end.ok() ? absl::StatusCode::kFailedPrecondition
                                        : script.end.code());
    } else {
      error = error || script.plays[n] == Play::kBringError;
      plays.insert(script.plays[n]);
    }
  }
  if (!of_leavers.empty()) return of_leavers;
  return {error || plays.size() > 1 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kOk};
}

TEST(ScriptTest, WhateverReplicasDoEachIsToldAndNobodyHangs) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const std::vector<Script> scripts = RandomScripts(random);
    ReplicaStrategy strategy(static_cast<int>(scripts.size()));
    std::vector<std::vector<absl::StatusCode>> told(scripts.size());
    const auto play = [&](ReplicaContext& replica) {
      const int id = replica.replica_id_in_sync_group();
      for (Play move : scripts[id].plays) told[id].push_back(PlayOne(move, replica).code());
      return scripts[id].end;
    };
    const absl::Status run = strategy->Run(play).status();
    const bool all_end_well = std::all_of(scripts.begin(), scripts.end(),
                                          [](const Script& script) { return script.end.ok(); });
    EXPECT_EQ(run, all_end_well ? absl::OkStatus() : absl::DataLossError("mine"));
    for (size_t id = 0; id < scripts.size(); ++id) {
      for (size_t n = 0; n < told[id].size(); ++n)
        EXPECT_THAT(Told(scripts, n), Contains(told[id][n])) << "replica " << id << ", move " << n;
    }
  }
}

// ---- AllReduce and AllGather of every kind of value ---------------------------------------------

// Replica 0's result of `call`. Every replica makes the call, and all must get the same result.
template <typename T>
absl::StatusOr<Nest> OnEach(
    const std::vector<T>& values,
    const std::function<absl::StatusOr<T>(ReplicaContext&, const T&)>& call) {
  ReplicaStrategy strategy(static_cast<int>(values.size()));
  ASSIGN_OR_RETURN(const PerReplica<T> results, strategy->Run(call, OfEach<T>(values)));
  std::vector<Nest> here;
  for (const T& result : results.values())
    here.push_back(*internal::MoveTo(NestCodec<T>::Encode(result), Device{}));
  for (const Nest& result : here) EXPECT_TRUE(BitwiseEqual(here[0], result));
  return here[0];
}
template <typename T>
absl::StatusOr<Nest> Reduced(absl::string_view op, const std::vector<T>& values) {
  ASSIGN_OR_RETURN(const ReduceOp parsed, ParseReduceOp(op));
  return OnEach<T>(values, [parsed](ReplicaContext& replica, const T& mine) {
    return replica.AllReduce(parsed, mine);
  });
}
template <typename T>
absl::StatusOr<Nest> GatheredAll(int axis, const std::vector<T>& values) {
  return OnEach<T>(values, [axis](ReplicaContext& replica, const T& mine) {
    return replica.AllGather(mine, axis);
  });
}

TEST(AllReduceTest, TakesAnyNestAndGivesItsStructureBack) {
  const Nest r0{{"a", 1.0f}, {"b", Nest::List{Floats({40, 1}), "same"}}},
      r1{{"a", 3.0f}, {"b", Nest::List{Floats({2, 98}), "same"}}};
  const absl::StatusOr<Nest> sum = Reduced<Nest>("sum", {r0, r1}),
                             mean = Reduced<Nest>("MEAN", {r0, r1});
  ASSERT_TRUE(sum.ok() && mean.ok()) << sum.status() << mean.status();
  EXPECT_TRUE(BitwiseEqual(*sum, Nest{{"a", 4.0f}, {"b", Nest::List{Floats({42, 99}), "same"}}}));
  EXPECT_TRUE(
      BitwiseEqual(*mean, Nest{{"a", 2.0f}, {"b", Nest::List{Floats({21, 49.5}), "same"}}}));
}

TEST(AllReduceTest, TakesAListOfValues) {
  const std::vector<Tensor> r0 = {Floats({1, 2}), Tensor::Vector<double>({3})},
                            r1 = {Floats({10, 20}), Tensor::Vector<double>({30})};
  const absl::StatusOr<Nest> sum = Reduced<std::vector<Tensor>>("Sum", {r0, r1});
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_TRUE(BitwiseEqual(*sum, Nest(Nest::List{Floats({11, 22}), Tensor::Vector<double>({33})})));
  const absl::StatusOr<Nest> longer = Reduced<std::vector<Tensor>>("SUM", {r0, {Floats({10, 20})}});
  EXPECT_EQ(longer.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(AllReduceTest, IndexedSlicesAreConcatenatedInReplicaOrderAndTheirMeanDividesTheRows) {
  const std::vector<Nest> values = {Nest(Slices({0, 2}, {1, 2}, 4)), Nest(Slices({2}, {5}, 4))};
  const auto sum = Reduced<Nest>("SUM", values)->indexed_slices(),
             mean = Reduced<Nest>("MEAN", values)->indexed_slices();
  ASSERT_TRUE(sum.ok() && mean.ok());
  EXPECT_THAT(*sum->ids.values<int64_t>(), ElementsAre(0, 2, 2));
  EXPECT_EQ(Values(sum->rows), (std::vector<float>{1, 2, 5}));
  EXPECT_EQ(sum->num_rows, 4);
  EXPECT_EQ(Values(mean->rows), (std::vector<float>{0.5, 1, 2.5}));
}

TEST(AllReduceTest, TakesGradients) {
  Gradients r0, r1;
  r0.Set("w", Floats({1, 2}));
  r0.Set("table", Slices({0}, {1}, 4));
  r1.Set("w", Floats({10, 20}));
  r1.Set("table", Slices({3}, {5}, 4));
  const absl::StatusOr<Nest> sum = Reduced<Gradients>("SUM", {r0, r1});
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(Values((*sum)["w"].tensor()), (std::vector<float>{11, 22}));
  EXPECT_EQ(Values((*sum)["table"].indexed_slices()->rows), (std::vector<float>{1, 5}));
  r1.Set("w", Slices({0}, {1}, 2));
  EXPECT_THAT(Reduced<Gradients>("SUM", {r0, r1}).status().message(), HasSubstr("at [\"w\"]"));
}

TEST(AllReduceTest, RefusesBoolTheMeanOfIntegersAndTextsThatDiffer) {
  EXPECT_THAT(Reduced<bool>("SUM", {true, true}).status().message(),
              HasSubstr("bool cannot be reduced"));
  EXPECT_THAT(Reduced<int>("MEAN", {1, 3}).status().message(), HasSubstr("cast to float32"));
  EXPECT_THAT(Reduced<std::string>("SUM", {"a", "b"}).status().message(),
              HasSubstr("texts must agree"));
}

TEST(AllReduceTest, OfOneReplicaIsTheValueItself) {
  EXPECT_TRUE(BitwiseEqual(*Reduced<Nest>("MEAN", {Nest(true)}), Nest(true)));
  EXPECT_TRUE(BitwiseEqual(*Reduced<int>("MEAN", {7}), Nest(7)));
}

TEST(AllGatherTest, TakesAnyNestLeafByLeaf) {
  const Nest r0{{"a", Floats({1, 2})}, {"b", Floats({1, 1}, {3})}},
      r1{{"a", Floats({4})}, {"b", Floats({2, 1}, {5, 6})}};
  const absl::StatusOr<Nest> all = GatheredAll<Nest>(0, {r0, r1});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_TRUE(BitwiseEqual(*all, Nest{{"a", Floats({1, 2, 4})}, {"b", Floats({3, 1}, {3, 5, 6})}}));
  EXPECT_THAT(GatheredAll<Nest>(1, {r0, r0}).status().message(),
              HasSubstr("at [\"a\"]: axis 1 is outside"));
  EXPECT_THAT(GatheredAll<Nest>(0, {r0, r0["a"]}).status().message(),
              HasSubstr("structures must agree"));
}

TEST(AllGatherTest, RefusesScalarsTextsAndIndexedSlices) {
  EXPECT_THAT(GatheredAll<float>(0, {1, 2}).status().message(), HasSubstr("rank 0"));
  EXPECT_EQ(GatheredAll<std::string>(0, {"a", "a"}).status().code(),
            absl::StatusCode::kInvalidArgument);
  const IndexedSlices slices = Slices({0}, {1}, 2);
  EXPECT_EQ(GatheredAll<IndexedSlices>(0, {slices, slices}).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(CommunicationOptionsTest, ImplementationsAreParsedInAnyCaseAndNothingElseIs) {
  using Implementation = CommunicationOptions::Implementation;
  EXPECT_EQ(*ParseCommunicationImplementation("auto"), Implementation::kAuto);
  EXPECT_EQ(*ParseCommunicationImplementation("Ring"), Implementation::kRing);
  EXPECT_EQ(*ParseCommunicationImplementation("NCCL"), Implementation::kNccl);
  EXPECT_EQ(ParseCommunicationImplementation("mpi").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(CommunicationOptionsTest, OfTwoTheLaterOverridesWhereItIsNotTheDefault) {
  const CommunicationOptions earlier{100, absl::Seconds(5),
                                     CommunicationOptions::Implementation::kRing};
  const CommunicationOptions kept = MergeOptions(earlier, CommunicationOptions());
  EXPECT_EQ(kept.bytes_per_pack, 100);
  EXPECT_EQ(kept.timeout, absl::Seconds(5));
  EXPECT_EQ(kept.implementation, CommunicationOptions::Implementation::kRing);
  const CommunicationOptions changed = MergeOptions(
      earlier, {7, absl::InfiniteDuration(), CommunicationOptions::Implementation::kNccl});
  EXPECT_EQ(changed.bytes_per_pack, 7);
  EXPECT_EQ(changed.timeout, absl::Seconds(5));
  EXPECT_EQ(changed.implementation, CommunicationOptions::Implementation::kNccl);
}

// The strategy's replicas with these options, as a program gives them to its strategy.
Strategy With(const CommunicationOptions& communication, TestStrategy& strategy) {
  StrategyParts parts = strategy->parts();
  parts.communication = communication;
  return Strategy(std::move(parts));
}

TEST(CommunicationOptionsTest, OfTheStrategyHoldForEveryCollectiveThatSaysNothingElse) {
  using Call = std::function<absl::Status(ReplicaContext&)>;
  const std::vector<Call> calls = {
      [](ReplicaContext& replica) { return replica.AllReduce(ReduceOp::kSum, 1).status(); },
      [](ReplicaContext& replica) { return replica.AllGather(Floats({1}), 0).status(); },
      [](ReplicaContext& replica) { return replica.ApplyGradients(Gradients()); },
  };
  for (const Call& call : calls) {
    ReplicaStrategy replicas(2);
    Strategy strategy = With({0, absl::Milliseconds(1)}, replicas);
    Done told;
    EXPECT_EQ(strategy
                  .Run([&](ReplicaContext& replica) -> absl::Status {
                    const int id = replica.replica_id_in_sync_group();
                    if (id == 1) told.Await();
                    const absl::Status status = call(replica);
                    if (id == 0) told.Set();
                    return status;
                  })
                  .status()
                  .code(),
              absl::StatusCode::kDeadlineExceeded);
  }
  ReplicaStrategy replicas(2);
  EXPECT_THAT(With({-1}, replicas)
                  .Run([](ReplicaContext& replica) { return replica.AllReduce(ReduceOp::kSum, 1); })
                  .status()
                  .message(),
              HasSubstr("bytes_per_pack"));
}

TEST(CommunicationOptionsTest, OfACallOverrideTheStrategys) {
  ReplicaStrategy replicas(2);
  Strategy strategy = With({-1, absl::ZeroDuration()}, replicas);
  const auto reduce = [](ReplicaContext& replica) {
    return replica.AllReduce(ReduceOp::kSum, 1, {/*bytes_per_pack=*/7, absl::Hours(1)});
  };
  EXPECT_THAT(strategy.Run(reduce)->values(), ElementsAre(2, 2));
}

TEST(CommunicationOptionsTest, NeedNotAgreeAndChangeNoResult) {
  ReplicaStrategy strategy(2);
  const auto reduce = [](ReplicaContext& replica) {
    return replica.AllReduce(ReduceOp::kSum, 1,
                             {replica.replica_id_in_sync_group(), absl::InfiniteDuration(),
                              CommunicationOptions::Implementation::kNccl});
  };
  EXPECT_THAT(strategy->Run(reduce)->values(), ElementsAre(2, 2));
}

TEST(CommunicationOptionsTest, WhoHasWaitedForItsTimeoutIsToldWhoHasNotCome) {
  ReplicaStrategy strategy(3);
  Done told;
  std::vector<absl::Status> statuses(3);
  const auto reduce = [&](ReplicaContext& replica) -> absl::Status {
    const int id = replica.replica_id_in_sync_group();
    if (id == 1) {
      statuses[id] = replica.AllReduce(ReduceOp::kSum, 1, {0, absl::Milliseconds(1)}).status();
      told.Set();
      return absl::OkStatus();
    }
    told.Await();
    return statuses[id] = replica.AllReduce(ReduceOp::kSum, 1).status();
  };
  EXPECT_FALSE(strategy->Run(reduce).ok());
  EXPECT_EQ(statuses[1],
            absl::DeadlineExceededError("replica 1 has waited 1ms in AllReduce SUM (collective "
                                        "call 1 of this Run) for replica 0, 2, so the call fails "
                                        "on all replicas; raise the timeout if they are only slow"));
  EXPECT_EQ(statuses[0], statuses[1]);
  EXPECT_EQ(statuses[2], statuses[1]);
}

// Otherwise the late replica's first value would be added to the other's second.
TEST(CommunicationOptionsTest, WhoComesLateIsToldSoAndTheNextCallsMeet) {
  ReplicaStrategy strategy(2);
  Done told;
  const auto reduce = [&](ReplicaContext& replica) -> absl::StatusOr<int> {
    const int id = replica.replica_id_in_sync_group();
    if (id == 1) told.Await();
    const absl::Status first =
        replica
            .AllReduce(ReduceOp::kSum, 5,
                       {0, id == 0 ? absl::ZeroDuration() : absl::InfiniteDuration()})
            .status();
    EXPECT_EQ(first.code(), absl::StatusCode::kDeadlineExceeded) << first;
    EXPECT_THAT(first.message(), HasSubstr("replica 0 has waited 0 in AllReduce SUM (collective "
                                           "call 1 of this Run) for replica 1"));
    if (id == 0) told.Set();
    return replica.AllReduce(ReduceOp::kSum, 1);
  };
  EXPECT_THAT(strategy->Run(reduce)->values(), ElementsAre(2, 2));
}

#ifdef DIVVY_REPLICAS_ON_GPUS
// Sums on GPUs have the same bits as on the CPU, however tensors are packed. Each replica's result
// is on its own GPU.
TEST(DeviceSumsTest, AgreeWithTheCpuInEveryBit) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const int replicas = 2 + static_cast<int>(random.Below(3));
    const auto op = random.Chance(0.5) ? ReduceOp::kSum : ReduceOp::kMean;
    std::vector<Nest> there, here;
    const size_t n = 1 + random.Below(6);
    std::vector<std::pair<DType, int64_t>> leaves;
    for (size_t i = 0; i < n; ++i)
      leaves.emplace_back(random.Chance(0.7)   ? DType::kFloat32
                          : random.Chance(0.5) ? DType::kFloat64
                                               : DType::kFloat16,
                          random.Below(40));
    for (int replica = 0; replica < replicas; ++replica) {
      Nest::List values;
      for (const auto& [dtype, elements] : leaves) {
        Tensor wide = *Tensor::Uninitialized(DType::kFloat64, {elements});
        for (int64_t i = 0; i < elements; ++i)
          wide.fresh_data<double>()[i] = random.Uniform() - 0.5;
        Tensor value = *Tensor::Uninitialized(dtype, {elements});
        (*internal::BackendFor(Device{}))->Cast(wide, value);
        values.push_back(Nest(value));
      }
      here.push_back(Nest(values));
      there.push_back(Of(replica, here.back()));
    }
    const auto expected = internal::ReduceNests(op, here, kNoAxis);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_TRUE(BitwiseEqual(*internal::ReduceNests(op, there, kNoAxis), *expected));
    const auto reduced =
        internal::AllReduceNests(op, there, {static_cast<int64_t>(random.Below(3) * 100)});
    ASSERT_TRUE(reduced.ok()) << reduced.status();
    for (int replica = 0; replica < replicas; ++replica) {
      EXPECT_TRUE(BitwiseEqual(*internal::MoveTo((*reduced)[replica], Device{}), *expected));
      const std::vector<Tensor> mine = *(*reduced)[replica].Flatten();
      for (const Tensor& leaf : mine) EXPECT_EQ(leaf.device(), (Device{kKind, replica}));
    }
  }
}

TEST(DeviceSumsTest, ALibraryForItIsAskedFirstUnlessTheOrderMatters) {
  cuda::HostMath& math = HostDevices::Math();
  for (const auto implementation :
       {CommunicationOptions::Implementation::kAuto, CommunicationOptions::Implementation::kRing}) {
    math.all_reduces = math.keep_log = true;
    const std::vector<Nest> values = {Of(0, Nest(Floats({1, 2}))), Of(1, Nest(Floats({3, 5}))),
                                      Of(2, Nest(Floats({5, 11})))};
    const auto reduced = internal::AllReduceNests(ReduceOp::kMean, values,
                                                  {0, absl::InfiniteDuration(), implementation});
    ASSERT_TRUE(reduced.ok()) << reduced.status();
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ((*reduced)[i].tensor()->device(), (Device{kKind, i}));
      EXPECT_EQ(Values((*reduced)[i].tensor()), (std::vector<float>{3, 6}));
    }
    const bool asked = std::count(math.log.begin(), math.log.end(), "2 compute: all-reduce 2") > 0;
    EXPECT_EQ(asked, implementation == CommunicationOptions::Implementation::kAuto);
    math.all_reduces = math.keep_log = false;
    math.log.clear();
  }
}

// The commands that `call` sends to the devices.
std::vector<std::string> LogOf(const std::function<absl::Status()>& call) {
  cuda::HostMath& math = HostDevices::Math();
  math.keep_log = true;
  EXPECT_EQ(call(), absl::OkStatus());
  math.keep_log = false;
  return std::exchange(math.log, {});
}
// Three small tensors of two replicas.
std::vector<std::string> LogOfThreeSums(ReduceOp op, bool with_library) {
  const Nest::List mine = {Floats({1, 2}), Floats({3}), Floats({4, 5, 6})};
  const std::vector<Nest> values = {Of(0, Nest(mine)), Of(1, Nest(mine))};
  HostDevices::Math().all_reduces = with_library;
  const auto log = LogOf([&] { return internal::AllReduceNests(op, values).status(); });
  HostDevices::Math().all_reduces = false;
  return log;
}
int64_t CountEnding(const std::vector<std::string>& log, absl::string_view end) {
  return std::count_if(log.begin(), log.end(),
                       [=](const std::string& line) { return absl::EndsWith(line, end); });
}

TEST(DeviceSumsTest, WhatIsPackedIsPackedOnceWithAndWithoutALibraryThatSumsIt) {
  const auto alone = LogOfThreeSums(ReduceOp::kSum, false),
             by_library = LogOfThreeSums(ReduceOp::kSum, true);
  // copies to the packs, one addition
  EXPECT_EQ(CountEnding(alone, "kernels"), 2 * 3 + 1);
  // The memory of the two packs, of a copy of one pack on the other's GPU, of the sum, and of the
  // sum's copy.
  EXPECT_EQ(CountEnding(alone, "allocate 24"), 2 + 1 + 1 + 1);
  EXPECT_EQ(CountEnding(alone, "all-reduce 6"), 0);
  EXPECT_EQ(CountEnding(by_library, "kernels"), 2 * 3);
  EXPECT_EQ(CountEnding(by_library, "allocate 24"), 2 + 2);
  EXPECT_EQ(CountEnding(by_library, "all-reduce 6"), 2);
}

// Two replicas' tensors of one dtype. A replica's second tensor is on the GPU of the other
// replica's first tensor.
TEST(DeviceSumsTest, EachSumLiesWhereItsOwnTermLay) {
  std::vector<Nest> values;
  for (int i = 0; i < 2; ++i)
    values.push_back(Nest(Nest::List{Of(i, Floats({1.0f + i})), Of(1 - i, Floats({3.0f + i}))}));
  const auto sums = internal::AllReduceNests(ReduceOp::kSum, values);
  ASSERT_TRUE(sums.ok()) << sums.status();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ((*sums)[i][0].tensor()->device(), (Device{kKind, i}));
    EXPECT_EQ((*sums)[i][1].tensor()->device(), (Device{kKind, 1 - i}));
    EXPECT_EQ(Values((*sums)[i][0].tensor()), std::vector<float>{3});
    EXPECT_EQ(Values((*sums)[i][1].tensor()), std::vector<float>{7});
  }
}

TEST(DeviceSumsTest, IdsOnAGpuAreReadFromThere) {
  std::vector<Nest> there;
  for (int i = 0; i < 2; ++i) {
    IndexedSlices slices = Of(i, Slices({i, 3}, {1, 2}, 4));
    slices.ids = *slices.ids.To({kKind, i});
    there.push_back(Nest(slices));
  }
  const auto sums = internal::AllReduceNests(ReduceOp::kSum, there);
  ASSERT_TRUE(sums.ok()) << sums.status();
  const IndexedSlices mine = *(*sums)[1].indexed_slices();
  EXPECT_THAT(*mine.ids.values<int64_t>(), ElementsAre(0, 3, 1, 3));
  EXPECT_EQ(mine.rows.device(), (Device{kKind, 1}));
  EXPECT_EQ(Values(mine.rows), (std::vector<float>{1, 2, 1, 2}));
  EXPECT_EQ(Values(internal::ToDense(*there[1].indexed_slices())),
            (std::vector<float>{0, 1, 0, 2}));
}

// The gradients of two tables from each of three replicas. The bits of their rows show the order of
// additions and divisions.
std::vector<Nest> RowsOfTwoTables() {
  std::vector<Nest> values;
  for (int i = 0; i < 3; ++i) {
    values.push_back(Nest{{"items", Nest(Slices({2, i, 2}, {0.1f + i, 0.3f, 0.7f * i}, 4))},
                          {"users", Nest(Slices({i, 0}, {1.1f, 0.9f * i}, 5))}});
  }
  return values;
}
std::vector<Nest> OnTheirGpus(std::vector<Nest> values) {
  for (size_t i = 0; i < values.size(); ++i) values[i] = Of(static_cast<int>(i), values[i]);
  return values;
}
constexpr char kOut[] = " out";  // on any queue

TEST(RowsOnGpusTest, AreJoinedForEachReplicaWithoutADetourByTheCpu) {
  const std::vector<Nest> here = RowsOfTwoTables(), there = OnTheirGpus(here);
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean}) {
    std::vector<Nest> joined;
    const auto log = LogOf([&]() -> absl::Status {
      ASSIGN_OR_RETURN(joined, internal::AllReduceNests(op, there));
      return absl::OkStatus();
    });
    EXPECT_THAT(log, Not(Contains(HasSubstr(kOut))));
    const Nest expected = *internal::ReduceNests(op, here, kNoAxis);
    ASSERT_EQ(joined.size(), 3);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(joined[i]["items"].indexed_slices()->rows.device(), (Device{kKind, i}));
      EXPECT_TRUE(BitwiseEqual(*internal::MoveTo(joined[i], Device{}), expected));
    }
  }
}

TEST(RowsOnGpusTest, OfOneResultComeInOneWait) {
  const std::vector<Nest> here = RowsOfTwoTables(), there = OnTheirGpus(here);
  Nest joined;
  const auto log = LogOf([&]() -> absl::Status {
    ASSIGN_OR_RETURN(joined, internal::ReduceNests(ReduceOp::kMean, there, kNoAxis));
    return absl::OkStatus();
  });
  EXPECT_EQ(CountEnding(log, "out: record"), 3);  // one for each device
  EXPECT_TRUE(BitwiseEqual(joined, *internal::ReduceNests(ReduceOp::kMean, here, kNoAxis)));
}

TEST(RowsOnGpusTest, OfAGradientMeetOnAGpuOfWhichEachTableHasAnother) {
  const std::vector<Nest> here = RowsOfTwoTables();
  const Nest joined = *internal::ReduceNests(ReduceOp::kSum, OnTheirGpus(here), kNoAxis,
                                             internal::Mixed::kRefuse, internal::RowsMeet::kOnGpus);
  const Device items = joined["items"].indexed_slices()->rows.device(),
               users = joined["users"].indexed_slices()->rows.device();
  EXPECT_EQ(items.kind, kKind);
  EXPECT_EQ(users.kind, kKind);
  EXPECT_NE(items, users);
  EXPECT_TRUE(BitwiseEqual(*internal::MoveTo(joined, Device{}),
                           *internal::ReduceNests(ReduceOp::kSum, here, kNoAxis)));
}

TEST(RowsOnGpusTest, OfReplicasThatHaveNoneOrLieElsewhereAreJoinedAllTheSame) {
  std::vector<Nest> here = {Nest(Slices({}, {}, 4)), Nest(Slices({1, 2}, {1, 2}, 4)),
                            Nest(Slices({3}, {5}, 4))};
  const Nest expected = *internal::ReduceNests(ReduceOp::kMean, here, kNoAxis);
  std::vector<Nest> there = OnTheirGpus(here);
  EXPECT_TRUE(BitwiseEqual(
      *internal::MoveTo((*internal::AllReduceNests(ReduceOp::kMean, there))[1], Device{}),
      expected));
  there[2] = here[2];
  EXPECT_TRUE(BitwiseEqual(
      *internal::MoveTo((*internal::AllReduceNests(ReduceOp::kMean, there))[1], Device{}),
      expected));
  EXPECT_TRUE(BitwiseEqual(*internal::ReduceNests(ReduceOp::kMean, there, kNoAxis), expected));
}

// Rows with the same id are summed before they leave a GPU. Three rows of 4 bytes leave the GPU,
// although the replicas have six rows.
TEST(RowsOnGpusTest, OfSeveralReplicasAreSummedByIdBeforeTheyAreStaged) {
  ReplicaStrategy strategy(2);
  ASSERT_TRUE(strategy->CreateVariable({"table", {4, 1}, Zeros(), Sgd{1.0}}).ok());
  const auto apply = [](ReplicaContext& replica) {
    const int id = replica.replica_id_in_sync_group();
    Gradients gradients;
    gradients.Set("table", Of(id, Slices({3, id, 3}, {1, 2, 3.0f + id}, 4)));
    return replica.ApplyGradients(gradients, ReduceOp::kSum);
  };
  const auto log = LogOf([&] { return strategy->Run(apply).status(); });
  EXPECT_EQ(CountEnding(log, "out: copy 12"), 1);
  EXPECT_EQ(CountEnding(log, "out: copy 24"), 0);
  EXPECT_EQ(Values(strategy.store().Value("table")), (std::vector<float>{-2, -2, 0, -9}));
}

TEST(ReduceOnGpusTest, WhatTheCpuReducesComesInOneWaitForAllLeaves) {
  const Nest ints{{"a", Tensor::Vector<int32_t>({1, 2})},
                  {"b", Tensor::Vector<int64_t>({3})},
                  {"c", Tensor::Vector<uint8_t>({4})}};
  const Nest floats{{"a", Floats({1, 2})}, {"b", Floats({3})}, {"c", Floats({4})}};
  for (const auto& [value, axes] :
       std::vector<std::pair<Nest, Axes>>{{ints, kNoAxis}, {ints, 0}, {floats, 0}}) {
    Nest sum;
    const std::vector<Nest> there = OnTheirGpus({value, value});
    const auto log = LogOf([&, &axes = axes]() -> absl::Status {
      ASSIGN_OR_RETURN(sum, internal::ReduceNests(ReduceOp::kSum, there, axes));
      return absl::OkStatus();
    });
    EXPECT_EQ(CountEnding(log, "out: record"), 2);  // one for each device
    EXPECT_TRUE(BitwiseEqual(sum, *internal::ReduceNests(ReduceOp::kSum, {value, value}, axes)));
  }
}

TEST(ReduceOnGpusTest, AGatheredTensorComesInOneWait) {
  const std::vector<Tensor> parts = {Of(0, Floats({1, 2})), Of(1, Floats({3})), Of(2, Floats({4}))};
  Tensor whole;
  const auto log = LogOf([&]() -> absl::Status {
    ASSIGN_OR_RETURN(whole, internal::GatherTensors(parts, 0));
    return absl::OkStatus();
  });
  EXPECT_EQ(CountEnding(log, "out: record"), 3);  // one for each device
  EXPECT_EQ(Values(whole), (std::vector<float>{1, 2, 3, 4}));
}

TEST(ReduceOnGpusTest, WhatReplicasGatherAndItsGradientTakeNoDetourByTheCpu) {
  ReplicaStrategy strategy(2);
  const PerReplica<Tensor> parts = OfEach<Tensor>({Floats({1}), Floats({2, 3})});
  const PerReplica<Tensor> weights = OfEach<Tensor>({Floats({10, 20, 30}), Floats({10, 20, 30})});
  const auto gather = [](ReplicaContext& replica, const Tensor& mine,
                         const Tensor& weights) -> absl::StatusOr<Tensor> {
    GradientTape tape(replica);
    ASSIGN_OR_RETURN(
        const Gradients gradients,
        tape.Gradient(ReduceSum(replica.AllGather(tape.Watch("x", mine), 0) * Var(weights))));
    return std::get<Tensor>(gradients.entries().at("x"));
  };
  std::optional<PerReplica<Tensor>> gradients;
  const auto log = LogOf([&]() -> absl::Status {
    ASSIGN_OR_RETURN(gradients, strategy->Run(gather, parts, weights));
    return absl::OkStatus();
  });
  EXPECT_THAT(log, Not(Contains(HasSubstr(kOut))));
  EXPECT_EQ((*gradients)[1].device(), (Device{kKind, 1}));
  EXPECT_EQ(Values((*gradients)[0]), std::vector<float>{20});
  EXPECT_EQ(Values((*gradients)[1]), (std::vector<float>{40, 60}));
}

TEST(DeviceSumsTest, WhatReplicasGatherLiesWithEach) {
  ReplicaStrategy strategy(3);
  const auto gather = [](ReplicaContext& replica) -> absl::StatusOr<Tensor> {
    const int id = replica.replica_id_in_sync_group();
    return replica.AllGather(Of(id, Floats({2, 1}, {1.0f * id, 2.0f * id})), 1);
  };
  const auto gathered = strategy->Run(gather);
  ASSERT_TRUE(gathered.ok()) << gathered.status();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ((*gathered)[i].device(), (Device{kKind, i}));
    EXPECT_EQ(Values((*gathered)[i]), (std::vector<float>{0, 1, 2, 0, 2, 4}));
  }
}
#endif

TEST(CommunicationOptionsTest, AreAcceptedButNotNonsense) {
  ReplicaStrategy strategy(1);
  CommunicationOptions nonsense;
  nonsense.bytes_per_pack = -1;
  const auto reduce = [&](ReplicaContext& replica) {
    return replica.AllReduce(ReduceOp::kSum, 1, nonsense).status();
  };
  EXPECT_EQ(strategy->Run(reduce).status().code(), absl::StatusCode::kInvalidArgument);
}

// ---- derivatives of collectives -----------------------------------------------------------------

TEST(GradientOfCollectivesTest, OfAllReduceIsTheAllReduceOfTheGradient) {
  for (const auto& [op, expected] :
       std::vector<std::pair<ReduceOp, float>>{{ReduceOp::kSum, 12}, {ReduceOp::kMean, 3}}) {
    ReplicaStrategy strategy(2);
    const auto gradients =
        strategy->Run([op = op](ReplicaContext& replica) -> absl::StatusOr<Tensor> {
          GradientTape tape(replica);
          // 1 and 2
          Var x = tape.Watch(
              "x",
              *Tensor::Scalar<float>(1 + replica.replica_id_in_sync_group()).To(replica.device()));
          // 3, or 1.5
          Var total = replica.AllReduce(op, x);
          // d/dtotal = 6 on each, or 3
          ASSIGN_OR_RETURN(Gradients gradients, tape.Gradient(Square(total)));
          return std::get<Tensor>(gradients.entries().at("x"));
        });
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    for (int i : {0, 1}) EXPECT_EQ(Values((*gradients)[i]), std::vector<float>{expected});
  }
}

TEST(GradientOfCollectivesTest, OfAllGatherIsTheReplicasSliceOfTheSum) {
  ReplicaStrategy strategy(2);
  const auto gradients = strategy->Run([](ReplicaContext& replica) -> absl::StatusOr<Tensor> {
    const int id = replica.replica_id_in_sync_group();
    GradientTape tape(replica);
    Var x = tape.Watch("x", Of(id, id == 0 ? Floats({1}) : Floats({2, 3})));
    Var weights(Of(id, Floats({10, 20, 30})));
    ASSIGN_OR_RETURN(Gradients gradients,
                     tape.Gradient(ReduceSum(replica.AllGather(x, 0) * weights)));
    return std::get<Tensor>(gradients.entries().at("x"));
  });
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_EQ(Values((*gradients)[0]), (std::vector<float>{20}));
  EXPECT_EQ(Values((*gradients)[1]), (std::vector<float>{40, 60}));
}

// Compares the gradient of replica j's tape, d (sum over the replicas of loss_i) / d x_j, with
// central differences. loss_i = sum(w_i * f(x)_i^2) for a collective f.
using Collective = std::function<Var(ReplicaContext&, const Var&)>;
struct Losses {
  double total = 0;
  std::vector<std::vector<double>> gradients;
};

Losses LossesOf(const Collective& collective, const std::vector<Tensor>& inputs,
                const std::vector<double>& weights) {
  ReplicaStrategy strategy(static_cast<int>(inputs.size()));
  Losses losses;
  losses.gradients.resize(inputs.size());
  const auto loss = [&](ReplicaContext& replica, const Tensor& mine) -> absl::StatusOr<double> {
    GradientTape tape(replica);
    const Var joined = collective(replica, tape.Watch("x", mine));
    const Var weight(
        *Tensor::Scalar<double>(weights[replica.replica_id_in_sync_group()]).To(replica.device()));
    const Var target = ReduceSum(Square(joined) * weight);
    ASSIGN_OR_RETURN(Gradients gradients, tape.Gradient(target));
    ASSIGN_OR_RETURN(const Tensor gradient,
                     std::get<Tensor>(gradients.entries().at("x")).To(Device{}));
    ASSIGN_OR_RETURN(const absl::Span<const double> values, gradient.values<double>());
    losses.gradients[replica.replica_id_in_sync_group()].assign(values.begin(), values.end());
    ASSIGN_OR_RETURN(Tensor value, target.Value());
    ASSIGN_OR_RETURN(value, value.To(Device{}));
    return value.scalar<double>();
  };
  const auto values = strategy->Run(loss, OfEach<Tensor>(inputs));
  EXPECT_TRUE(values.ok()) << values.status();
  for (double value : values->values()) losses.total += value;
  return losses;
}

Tensor WithElement(const Tensor& tensor, int64_t at, double change) {
  Tensor changed = tensor;
  (*changed.mutable_values<double>())[at] += change;
  return changed;
}

void ExpectCentralDifferences(const Collective& collective, const std::vector<Tensor>& inputs,
                              const std::vector<double>& weights) {
  constexpr double kStep = 1e-4;
  const Losses here = LossesOf(collective, inputs, weights);
  for (size_t replica = 0; replica < inputs.size(); ++replica) {
    for (int64_t i = 0; i < inputs[replica].shape().num_elements(); ++i) {
      std::vector<Tensor> above = inputs, below = inputs;
      above[replica] = WithElement(inputs[replica], i, kStep);
      below[replica] = WithElement(inputs[replica], i, -kStep);
      const double slope = (LossesOf(collective, above, weights).total -
                            LossesOf(collective, below, weights).total) /
                           (2 * kStep);
      EXPECT_NEAR(here.gradients[replica][i], slope, 1e-6)
          << "replica " << replica << ", element " << i;
    }
  }
}

TEST(GradientOfCollectivesTest, AgreesWithCentralDifferences) {
  for (int replicas : {1, 2, 4}) {
    SCOPED_TRACE(replicas);
    std::vector<Tensor> even, ragged;  // [2, 2]; of replica i: [2, i]
    std::vector<double> weights;
    for (int i = 0; i < replicas; ++i) {
      even.push_back(*Tensor::Copy<double>({2, 2}, {0.5 + i, -1.25, 2.0 * i, 0.75}));
      std::vector<double> values(2 * i);
      for (size_t k = 0; k < values.size(); ++k) values[k] = 0.25 * k - i;
      ragged.push_back(*Tensor::Copy<double>({2, i}, values));
      weights.push_back(1.0 + 0.5 * i);
    }
    ExpectCentralDifferences(
        [](ReplicaContext& replica, const Var& x) { return replica.AllReduce(ReduceOp::kSum, x); },
        even, weights);
    ExpectCentralDifferences(
        [](ReplicaContext& replica, const Var& x) { return replica.AllReduce(ReduceOp::kMean, x); },
        even, weights);
    ExpectCentralDifferences(
        [](ReplicaContext& replica, const Var& x) { return replica.AllGather(x, 0); }, even,
        weights);
    ExpectCentralDifferences(
        [](ReplicaContext& replica, const Var& x) { return replica.AllGather(x, 1); }, ragged,
        weights);
    ExpectCentralDifferences(
        [](ReplicaContext& replica, const Var& x) { return replica.AllGather(x, -1) * 0.5f; },
        ragged, weights);
  }
}

// A typical use of lists of Vars: the mean and variance of a batch that is spread over the
// replicas.
TEST(GradientOfCollectivesTest, OfAListOfVarsIsThatOfEach) {
  ReplicaStrategy strategy(2);
  const auto gradients = strategy->Run([](ReplicaContext& replica) -> absl::StatusOr<Tensor> {
    GradientTape tape(replica);
    const Var x =
        tape.Watch("x", replica.replica_id_in_sync_group() == 0 ? Floats({1, 2}) : Floats({3, 6}));
    const std::vector<Var> moments = replica.AllReduce(
        ReduceOp::kSum, {ReduceSum(x), ReduceSum(Square(x)), Var(Tensor::Scalar(2.0f))});
    const Var mean = moments[0] / moments[2], variance = moments[1] / moments[2] - Square(mean);
    EXPECT_EQ(Values(mean.Value()), std::vector<float>{3});
    EXPECT_EQ(Values(variance.Value()), std::vector<float>{3.5f});
    ASSIGN_OR_RETURN(Gradients gradients, tape.Gradient(variance));
    return std::get<Tensor>(gradients.entries().at("x"));
  });
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  // 2 (x - mean) / 4, from each of the two replicas' losses
  EXPECT_EQ(Values((*gradients)[0]), (std::vector<float>{-2, -1}));
  EXPECT_EQ(Values((*gradients)[1]), (std::vector<float>{0, 3}));
}

TEST(GradientOfCollectivesTest, OneFailedVarOfAListFailsAll) {
  ReplicaStrategy strategy(1);
  const auto fails = [](ReplicaContext& replica) {
    const std::vector<Var> reduced =
        replica.AllReduce(ReduceOp::kSum, {Var(1.0f), Var(Nest("text"))});
    EXPECT_EQ(reduced.size(), 2);
    return reduced[0].status();
  };
  EXPECT_EQ(strategy->Run(fails).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(GradientOfCollectivesTest, ReplicasThatDifferentiateOtherCollectivesAreToldSo) {
  ReplicaStrategy strategy(2);
  const absl::Status status =
      strategy
          ->Run([](ReplicaContext& replica) {
            GradientTape tape(replica);
            const Var x = tape.Watch("x", Tensor::Scalar<float>(1));
            const Var first = replica.AllReduce(ReduceOp::kSum, x),
                      second = replica.AllReduce(ReduceOp::kSum, x);
            return tape.Gradient(replica.replica_id_in_sync_group() == 0 ? first : second).status();
          })
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      status.message(),
      HasSubstr("replica 0 calls the gradient of AllReduce SUM (differentiable collective 1)"));
  EXPECT_THAT(
      status.message(),
      HasSubstr("replica 1 calls the gradient of AllReduce SUM (differentiable collective 2)"));
}

TEST(GradientOfCollectivesTest, AFailedVarStaysFailed) {
  ReplicaStrategy strategy(1);
  const auto fails = [](ReplicaContext& replica) {
    return replica.AllReduce(ReduceOp::kSum, Var(Nest("text"))).status();
  };
  EXPECT_EQ(strategy->Run(fails).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace divvy
