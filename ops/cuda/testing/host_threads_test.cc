// Tests that HostThreads finds deliberate mistakes in kernels.
#include "ops/cuda/testing/host_threads.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy::cuda {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using Order = HostThreads::Order;

constexpr uint64_t kSeed = 20261124;

// A queue that runs everything at once, with the threads of blocks.
class Blocks : public HostStream {
 public:
  explicit Blocks(Order order, uint64_t seed = kSeed)
      : threads_(order, seed, [this](const char* wrong) { wrong_.push_back(wrong); }) {}
  void Add(std::function<void()> work) override { work(); }
  HostBlock* block() override { return &threads_; }
  const std::vector<std::string>& wrong() const { return wrong_; }

 private:
  std::vector<std::string> wrong_;
  HostThreads threads_;
};

// Each thread of a row's block reads the number that its neighbour has written.
std::vector<double> NeighboursOf(Blocks& blocks, bool with_barrier) {
  std::vector<double> found(kThreads);
  ForEachRow(&blocks, 1, kWideRow, [&](int64_t, const Lanes& lanes) {
    DIVVY_SHARED(shared, lanes.thread, "the test", kThreads);
    shared[lanes.index] = lanes.index;
    if (with_barrier) lanes.thread.Meet("the test's barrier");
    found[lanes.index] = shared[(lanes.index + 1) % lanes.count];
  });
  return found;
}

std::vector<double> Right() {
  std::vector<double> right(kThreads);
  for (int i = 0; i < kThreads; ++i) right[i] = (i + 1) % kThreads;
  return right;
}

class AllOrders : public ::testing::TestWithParam<Order> {};

TEST_P(AllOrders, SumsAndMaximaAreThoseOfAllLanes) {
  for (const int64_t width : {kNarrowRow, kWideRow}) {
    Blocks blocks(GetParam());
    constexpr int64_t kRows = 11;
    std::vector<double> sums(kRows), maxima(kRows), counts(kRows);
    ForEachRow(&blocks, kRows, width, [&](int64_t row, const Lanes& lanes) {
      const double sum = lanes.Sum(lanes.index + 1), max = lanes.Max(row - lanes.index),
                   count = lanes.Sum(1);
      if (lanes.index == lanes.count - 1) sums[row] = sum, maxima[row] = max, counts[row] = count;
    });
    const int lanes = width == kNarrowRow ? kWarp : kThreads;
    EXPECT_THAT(sums, Each(lanes * (lanes + 1) / 2));
    EXPECT_THAT(counts, Each(lanes));
    for (int64_t row = 0; row < kRows; ++row) EXPECT_EQ(maxima[row], row);
    EXPECT_THAT(blocks.wrong(), ::testing::IsEmpty());
  }
}

TEST_P(AllOrders, SumsOfTheLanesBeforeAreInTheOrderOfLanes) {
  Blocks blocks(GetParam());
  std::vector<double> before(kThreads);
  ForEachRow(&blocks, 1, kWideRow, [&](int64_t, const Lanes& lanes) {
    before[lanes.index] = lanes.SumBefore(lanes.index);
  });
  for (int i = 0; i < kThreads; ++i) EXPECT_EQ(before[i], i * (i - 1) / 2);
}

TEST_P(AllOrders, ABarrierLetsAThreadSeeWhatTheOthersWrote) {
  Blocks blocks(GetParam());
  EXPECT_EQ(NeighboursOf(blocks, true), Right());
}

TEST_P(AllOrders, AThreadThatEndsWhileOthersWaitIsAnErrorAndNoHang) {
  Blocks blocks(GetParam());
  ForEachRow(&blocks, 1, kWideRow, [&](int64_t, const Lanes& lanes) {
    if (lanes.index != 77) lanes.thread.Meet("the test's barrier");
  });
  ASSERT_EQ(blocks.wrong().size(), 1u);
  EXPECT_THAT(blocks.wrong()[0],
              AllOf(HasSubstr("uneven barrier"), HasSubstr("1 at its end (the first is thread 77)"),
                    HasSubstr("255 at the test's barrier (the first is thread 0)")));
}

TEST_P(AllOrders, ALaneThatLeavesARowThatItsWarpSumsIsAnError) {
  Blocks blocks(GetParam());
  ForEachRow(&blocks, 8, kNarrowRow, [&](int64_t row, const Lanes& lanes) {
    if (row != 3 || lanes.index != 5) lanes.Sum(1);
  });
  ASSERT_EQ(blocks.wrong().size(), 1u);
  EXPECT_THAT(blocks.wrong()[0],
              HasSubstr("31 at an exchange of a warp at distance 16 (the first is thread 96)"));
}

TEST_P(AllOrders, ThreadsAtDifferentBarriersDoNotMeet) {
  Blocks blocks(GetParam());
  ForEachRow(&blocks, 1, kWideRow, [&](int64_t, const Lanes& lanes) {
    lanes.thread.Meet(lanes.index < 32 ? "one barrier" : "another barrier");
  });
  ASSERT_EQ(blocks.wrong().size(), 1u);
  EXPECT_THAT(blocks.wrong()[0],
              AllOf(HasSubstr("32 at one barrier"),
                    HasSubstr("224 at another barrier (the first is thread 32)")));
}

INSTANTIATE_TEST_SUITE_P(HostThreads, AllOrders,
                         ::testing::Values(Order::kTogether, Order::kRising, Order::kFalling,
                                           Order::kAny));

TEST(HostThreadsTest, ARaceComesOutDifferentlyInAnotherOrder) {
  Blocks rising(Order::kRising), falling(Order::kFalling), any(Order::kAny);
  const std::vector<double> first = NeighboursOf(rising, false),
                            last = NeighboursOf(falling, false);
  EXPECT_TRUE(std::isnan(first[0])) << "the neighbour has not written yet";
  EXPECT_EQ(last[0], 1);
  EXPECT_TRUE(std::isnan(last[kThreads - 1]));
  EXPECT_NE(NeighboursOf(any, false), Right());
}

#ifdef __SANITIZE_THREAD__
TEST(HostThreadsDeathTest, ThreadSanitizerReportsARaceBetweenThreadsThatRunTogether) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        Blocks together(Order::kTogether);
        NeighboursOf(together, false);
      },
      "data race");
}
#endif

}  // namespace
}  // namespace divvy::cuda
