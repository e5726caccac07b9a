#include <algorithm>
#include <string>
#include <tuple>

#include "base/random.h"
#include "gtest/gtest.h"
#include "partitioners/div.h"
#include "partitioners/partitioner.h"
#include "partitioners/placement.h"

namespace divvy {
namespace {

using Counts = std::vector<int64_t>;

constexpr int64_t kKi = 1024, kMi = kKi * kKi;

TEST(MinSizeTest, CutsJustAboveTheMinimumInTwo) {
  const MinSizePartitioner partitioner{256 * kKi, 4};
  EXPECT_EQ(*partitioner({65536}, DType::kFloat32), Counts({1}));
  EXPECT_EQ(*partitioner({65537}, DType::kFloat32), Counts({2}));
}

// Worked examples of TensorFlow's rule, one in each row.
struct MinSizeCase {
  Shape shape;
  DType dtype;
  int64_t min_shard_bytes, max_shards;
  Counts counts;
  Counts sizes;  // rows of the first shards
};

TEST(MinSizeTest, AnswersAsTensorFlowDoes) {
  const MinSizeCase cases[] = {
      {{6, 1}, DType::kFloat32, 4, 2, {2, 1}, {3, 3}},
      {{6, 1}, DType::kFloat32, 4, 10, {6, 1}, {1, 1, 1, 1, 1, 1}},
      {{1024, 1024}, DType::kFloat32, 256 * kKi, 16, {16, 1}, {64}},
      {{1024, 1024}, DType::kFloat32, 256 * kKi, 8, {8, 1}, {128}},
      {{1024, 1024}, DType::kFloat32, 256 * kKi, 64, {16, 1}, {64}},
      {{1024, 1024}, DType::kFloat32, 256 * kKi, 2, {2, 1}, {512, 512}},
      {{1024, 1024}, DType::kFloat32, 256 * kKi, 1, {1, 1}, {1024}},
      {{1025, 256}, DType::kFloat32, 256 * kKi, 8, {5, 1}, {205, 205, 205, 205, 205}},
      {{65536}, DType::kFloat32, 256 * kKi, 4, {1}, {65536}},
      {{65537}, DType::kFloat32, 256 * kKi, 4, {2}, {32769, 32768}},
      {{10}, DType::kFloat64, 64 * kMi, 2, {1}, {10}},
      {{3, 1048576}, DType::kFloat32, 256 * kKi, 8, {3, 1}, {1, 1, 1}},
      {{1, 10'000'000}, DType::kFloat32, 256 * kKi, 8, {1, 1}, {1}},
      {{0, 16}, DType::kFloat32, 256 * kKi, 4, {1, 1}, {0}},
      {{16, 0}, DType::kFloat32, 256 * kKi, 4, {1, 1}, {16}},
      {{100}, DType::kString, 256, 3, {3}, {34, 33, 33}},
      {{100}, DType::kString, 256, 100, {7}, {15, 15, 14, 14, 14, 14, 14}},
      {{1'000'000, 64}, DType::kFloat32, 256 * kKi, 4, {4, 1}, {250000, 250000, 250000, 250000}},
      {{1'000'000, 64}, DType::kFloat16, 256 * kKi, 1000, {489, 1}, {2045}},
      {{1'000'000, 64}, DType::kFloat32, 64 * kMi, 8, {4, 1}, {250000}},
      {{5}, DType::kBool, 4, 5, {2}, {3, 2}},
      {{7}, DType::kFloat32, 1, 7, {7}, {1, 1, 1, 1, 1, 1, 1}},
      {{131072}, DType::kBFloat16, 256 * kKi, 2, {1}, {131072}},
      {{131073}, DType::kBFloat16, 256 * kKi, 2, {2}, {65537, 65536}},
      {{50000, 128}, DType::kFloat32, kMi, 30, {25, 1}, {2000}},
      {{17, 3}, DType::kInt64, 100, 10, {5, 1}, {4, 4, 3, 3, 3}},
  };
  for (const MinSizeCase& c : cases) {
    SCOPED_TRACE(c.shape.ToString());
    const MinSizePartitioner partitioner{c.min_shard_bytes, c.max_shards};
    EXPECT_EQ(*partitioner(c.shape, c.dtype), c.counts);
    const Counts sizes =
        DivSplit::Create(c.shape.dim(0), *NumShards(partitioner, c.shape, c.dtype))->sizes();
    ASSERT_GE(sizes.size(), c.sizes.size());
    EXPECT_TRUE(std::equal(c.sizes.begin(), c.sizes.end(), sizes.begin()));
  }
}

TEST(MinSizeTest, CutsNothingByDefault) {
  EXPECT_EQ(*MinSizePartitioner{}({1'000'000, 64}, DType::kFloat32), Counts({1, 1}));
}

TEST(MinSizeTest, CountsBytesPastSixtyFourBits) {
  // 2^62 elements of 16 bytes.
  EXPECT_EQ(
      *(MinSizePartitioner{1, 1000})({int64_t{1} << 31, int64_t{1} << 31}, DType::kComplex128),
      Counts({1000, 1}));
}

TEST(MaxSizeTest, AnswersAsTensorFlowDoes) {
  const std::tuple<Shape, DType, int64_t, int64_t, Counts> cases[] = {
      {{6, 1}, DType::kFloat32, 4, 0, {6, 1}},
      {{6, 1}, DType::kFloat32, 4, 2, {2, 1}},
      {{6, 1}, DType::kFloat32, 1024, 0, {1, 1}},
      {{10, 3}, DType::kFloat32, 30, 0, {5, 1}},
      {{10, 3}, DType::kFloat32, 24, 0, {5, 1}},
      {{10, 3}, DType::kFloat32, 11, 0, {10, 1}},
      {{1000, 64}, DType::kFloat32, 100000, 0, {3, 1}},
      {{1000, 64}, DType::kFloat32, 100000, 2, {2, 1}},
      {{7}, DType::kInt64, 24, 0, {3}},
      {{100}, DType::kString, 100, 0, {17}},
      {{0}, DType::kFloat32, 4, 0, {1}},
      {{4, 0}, DType::kFloat32, 4, 0, {1, 1}},
  };
  for (const auto& [shape, dtype, max_bytes, cap, counts] : cases) {
    EXPECT_EQ(*(MaxSizePartitioner{max_bytes, cap})(shape, dtype), counts)
        << shape.ToString() << " max " << max_bytes << " cap " << cap;
  }
}

TEST(FixedShardsTest, AnswersAsTensorFlowDoes) {
  const std::tuple<Shape, int64_t, Counts> cases[] = {
      {{10, 3}, 2, {2, 1}}, {{3}, 4, {3}},        {{7}, 7, {7}},
      {{1, 5}, 4, {1, 1}},  {{13, 8}, 5, {5, 1}}, {{4, 0}, 3, {3, 1}},
  };
  for (const auto& [shape, shards, counts] : cases)
    EXPECT_EQ(*(FixedShardsPartitioner{shards})(shape, DType::kFloat32), counts)
        << shape.ToString();
}

TEST(FixedShardsTest, LeavesAVariableWithoutRowsInOnePiece) {
  EXPECT_EQ(*(FixedShardsPartitioner{3})({0, 4}, DType::kFloat32), Counts({1, 1}));
}

TEST(PartitionerTest, CutsTheAxisItIsAskedFor) {
  EXPECT_EQ(*(MinSizePartitioner{1, 100})({2, 5, 3}, DType::kFloat32, 1), Counts({1, 5, 1}));
  // A slice of axis 1 has 2 * 3 * 4 bytes, so two fit in a shard.
  EXPECT_EQ(*(MaxSizePartitioner{48})({2, 5, 3}, DType::kFloat32, 1), Counts({1, 3, 1}));
  EXPECT_EQ(*(FixedShardsPartitioner{9})({2, 5, 3}, DType::kFloat32, 2), Counts({1, 1, 3}));
}

TEST(PartitionerTest, RefusesOptionsOutOfRangeAndNamesThem) {
  const std::tuple<Partitioner, std::string> cases[] = {
      {MinSizePartitioner{0}, "min_shard_bytes is 0"},
      {MinSizePartitioner{-5}, "min_shard_bytes is -5"},
      {MinSizePartitioner{4, 0}, "max_shards is 0"},
      {MinSizePartitioner{4, 1, 0}, "bytes_per_string is 0"},
      {MaxSizePartitioner{0}, "max_shard_bytes is 0"},
      {MaxSizePartitioner{4, -1}, "max_shards is -1"},
      {MaxSizePartitioner{4, 1, 0}, "bytes_per_string is 0"},
      {FixedShardsPartitioner{0}, "num_shards is 0"},
      {FixedShardsPartitioner{-1}, "num_shards is -1"},
  };
  for (const auto& [partitioner, problem] : cases) {
    const absl::Status status = partitioner({6, 1}, DType::kFloat32).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find(problem), std::string::npos) << status;
    EXPECT_NE(std::string(status.message()).find("; give at least"), std::string::npos) << status;
  }
}

TEST(PartitionerTest, RefusesShapesThatAreNotKnown) {
  for (const Partitioner& partitioner :
       {Partitioner(MinSizePartitioner{}), Partitioner(MaxSizePartitioner{4}),
        Partitioner(FixedShardsPartitioner{2})}) {
    EXPECT_EQ(partitioner({-1, 4}, DType::kFloat32).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(partitioner({-2}, DType::kFloat32).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(PartitionerTest, RefusesRankZeroAndAxesThatAreNotThere) {
  EXPECT_EQ(MinSizePartitioner{}({}, DType::kFloat32).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((MaxSizePartitioner{4})({}, DType::kFloat32).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ((FixedShardsPartitioner{4})({}, DType::kFloat32).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ((FixedShardsPartitioner{4})({3}, DType::kFloat32, 1).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ((FixedShardsPartitioner{4})({3}, DType::kFloat32, -1).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST(NumShardsTest, AsksNobodyAboutAScalar) {
  const Partitioner never = [](const Shape&, DType) -> absl::StatusOr<Counts> {
    return absl::InternalError("was asked");
  };
  EXPECT_EQ(*NumShards(never, {}, DType::kFloat32), 1);
  EXPECT_EQ(*NumShards(nullptr, {4, 4}, DType::kFloat32), 1);
}

TEST(NumShardsTest, IsNeverMoreThanTheRows) {
  const Partitioner many = [](const Shape&, DType) -> absl::StatusOr<Counts> {
    return Counts{100, 1};
  };
  EXPECT_EQ(*NumShards(many, {7, 2}, DType::kFloat32), 7);
  EXPECT_EQ(*NumShards(many, {0, 2}, DType::kFloat32), 1);
}

TEST(NumShardsTest, RefusesAnswersThatAreNoCut) {
  for (const Counts& answer : {Counts{}, Counts{2}, Counts{0, 1}, Counts{-1, 1}, Counts{2, 2},
                               Counts{1, 0}, Counts{2, 1, 1}}) {
    const Partitioner partitioner = [&answer](const Shape&, DType) -> absl::StatusOr<Counts> {
      return answer;
    };
    const absl::Status status = NumShards(partitioner, {4, 4}, DType::kFloat32).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find("for shape [4, 4]"), std::string::npos) << status;
  }
}

TEST(NumShardsTest, PassesOnAPartitionersOwnError) {
  const Partitioner failing = [](const Shape&, DType) -> absl::StatusOr<Counts> {
    return absl::ResourceExhaustedError("none left");
  };
  EXPECT_EQ(NumShards(failing, {4}, DType::kFloat32).status(),
            absl::ResourceExhaustedError("none left"));
}

TEST(DivSplitTest, GivesTheFirstShardsOneRowMore) {
  const std::tuple<int64_t, int64_t, Counts, Counts> cases[] = {
      {13, 5, {3, 3, 3, 2, 2}, {0, 3, 6, 9, 11, 13}},
      {10, 3, {4, 3, 3}, {0, 4, 7, 10}},
      {10, 4, {3, 3, 2, 2}, {0, 3, 6, 8, 10}},
      {7, 7, {1, 1, 1, 1, 1, 1, 1}, {0, 1, 2, 3, 4, 5, 6, 7}},
      {3, 5, {1, 1, 1}, {0, 1, 2, 3}},
      {1, 4, {1}, {0, 1}},
      {5, 2, {3, 2}, {0, 3, 5}},
      {6, 4, {2, 2, 1, 1}, {0, 2, 4, 5, 6}},
      {8, 4, {2, 2, 2, 2}, {0, 2, 4, 6, 8}},
      {9, 4, {3, 2, 2, 2}, {0, 3, 5, 7, 9}},
      {11, 4, {3, 3, 3, 2}, {0, 3, 6, 9, 11}},
      {32, 3, {11, 11, 10}, {0, 11, 22, 32}},
      {100, 8, {13, 13, 13, 13, 12, 12, 12, 12}, {0, 13, 26, 39, 52, 64, 76, 88, 100}},
      {1000, 3, {334, 333, 333}, {0, 334, 667, 1000}},
      {2147483649, 2, {1073741825, 1073741824}, {0, 1073741825, 2147483649}},
      {0, 2, {0}, {0, 0}},
  };
  for (const auto& [rows, shards, sizes, offsets] : cases) {
    const DivSplit split = *DivSplit::Create(rows, shards);
    EXPECT_EQ(split.sizes(), sizes) << rows << " / " << shards;
    EXPECT_EQ(split.offsets(), offsets) << rows << " / " << shards;
  }
}

TEST(DivSplitTest, FindsTheShardAndLocalRowOfAnId) {
  const std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t> cases[] = {
      // rows, shards, id, shard, local row
      {13, 5, 0, 0, 0},   {13, 5, 2, 0, 2},   {13, 5, 3, 1, 0},  {13, 5, 8, 2, 2},
      {13, 5, 9, 3, 0},   {13, 5, 10, 3, 1},  {13, 5, 11, 4, 0}, {13, 5, 12, 4, 1},
      {10, 3, 3, 0, 3},   {10, 3, 4, 1, 0},   {10, 3, 7, 2, 0},  {10, 3, 9, 2, 2},
      {32, 3, 10, 0, 10}, {32, 3, 21, 1, 10}, {32, 3, 22, 2, 0}, {32, 3, 31, 2, 9},
  };
  for (const auto& [rows, shards, id, shard, local] : cases) {
    const DivSplit::Place place = *DivSplit::Create(rows, shards)->Find(id);
    EXPECT_EQ(place.shard, shard) << id << " of " << rows << " / " << shards;
    EXPECT_EQ(place.local_row, local) << id << " of " << rows << " / " << shards;
  }
}

TEST(DivSplitTest, RefusesIdsOutsideTheRows) {
  const DivSplit split = *DivSplit::Create(13, 5);
  for (const int64_t id : {-1, 13, 20, 100})
    EXPECT_EQ(split.Find(id).status().code(), absl::StatusCode::kInvalidArgument) << id;
  EXPECT_EQ(split.Find(13).status().message(), "id 13 is outside [0, 13)");
  EXPECT_FALSE(DivSplit::Create(0, 1)->Find(0).ok());
}

TEST(DivSplitTest, RefusesCutsThatAreNone) {
  EXPECT_EQ(DivSplit::Create(5, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DivSplit::Create(-1, 2).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(DivSplitTest, SplitsAndFindsAgreeWithAWalkOverTheRows) {
  const uint64_t seed = 20240611;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t rows = static_cast<int64_t>(random.Below(60)),
                  shards = static_cast<int64_t>(random.Below(20)) + 1;
    const DivSplit split = *DivSplit::Create(rows, shards);
    int64_t id = 0;
    for (int64_t shard = 0; shard < split.num_shards(); ++shard) {
      EXPECT_EQ(split.offset(shard), id);
      for (int64_t local = 0; local < split.size(shard); ++local, ++id) {
        EXPECT_EQ(split.Find(id)->shard, shard);
        EXPECT_EQ(split.Find(id)->local_row, local);
      }
    }
    EXPECT_EQ(id, rows);
    const Counts sizes = split.sizes();
    EXPECT_LE(sizes.front() - sizes.back(), 1);
  }
}

TEST(DivSplitTest, ShardsAreNamedByPart) {
  EXPECT_EQ(ShardName("tower/kernel", 3, 4), "tower/kernel/part_3");
  EXPECT_EQ(ShardName("bias", 0, 1), "bias");
}

TEST(PlacementTest, GoesRoundThePsInOrderOfCreation) {
  EXPECT_EQ(PlaceRoundRobin(0, 1, 3), std::vector<int>({0}));     // a scalar
  EXPECT_EQ(PlaceRoundRobin(1, 2, 3), std::vector<int>({1, 2}));  // then two shards
  EXPECT_EQ(PlaceRoundRobin(3, 1, 3), std::vector<int>({0}));     // then one more
  EXPECT_EQ(PlaceRoundRobin(0, 4, 2), std::vector<int>({0, 1, 0, 1}));
  EXPECT_EQ(PlaceRoundRobin(int64_t{1} << 40, 2, 3), std::vector<int>({1, 2}));
}

TEST(PlacementTest, BalancedPutsEachShardOnTheLightestPs) {
  EXPECT_EQ(PlaceBalanced({0, 0, 0}, {10, 4, 4, 4, 4}), std::vector<int>({0, 1, 2, 1, 2}));
  EXPECT_EQ(PlaceBalanced({5, 1}, {3, 3, 3}), std::vector<int>({1, 1, 0}));
  EXPECT_EQ(PlaceBalanced({7}, {1, 1}), std::vector<int>({0, 0}));
}

}  // namespace
}  // namespace divvy
