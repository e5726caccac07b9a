// Datasets for several replicas and workers: batches cut for replicas, and data dealt out to workers.
#include <algorithm>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/random.h"
#include "data/dataset.h"
#include "data/rebatch.h"
#include "data/testing/seek_suite.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Ints = std::vector<int64_t>;

Tensor Range(int64_t first, int64_t end) {
  Ints values;
  for (int64_t i = first; i < end; ++i) values.push_back(i);
  return Tensor::Vector<int64_t>(values);
}

Dataset Count(int64_t n) { return Dataset::FromTensors(Nest(Range(0, n))); }

// The examples 0, 1, ... in batches of these sizes, which the recipe does not show.
Dataset BatchesOf(Ints sizes) {
  return Dataset::Generator(
      [sizes](int64_t index) -> absl::StatusOr<std::optional<Nest>> {
        int64_t first = 0;
        for (int64_t i = 0; i < index; ++i) first += sizes[static_cast<size_t>(i)];
        return Nest(Range(first, first + sizes[static_cast<size_t>(index)]));
      },
      static_cast<int64_t>(sizes.size()));
}

std::string Shown(const Nest& element) {
  const Tensor tensor = *element.tensor();
  return absl::StrJoin(*tensor.values<int64_t>(), " ");
}

std::vector<std::string> Shown(const Dataset& dataset, const DataEnvironment& environment = {}) {
  std::vector<std::string> shown;
  for (const Nest& element : PlainPass(dataset, environment)) shown.push_back(Shown(element));
  return shown;
}

absl::Status FirstError(const Dataset& dataset) { return dataset.Iterate()->Next().status(); }

// ---- cutting for replicas

TEST(BatchSizesForWorkerTest, TheFirstAreLargerAndEachWorkerBeginsAtItsOwnPlace) {
  EXPECT_EQ(*BatchSizesForWorker(7, 2, 2, 0), (Ints{2, 2, 2, 1}));
  EXPECT_EQ(*BatchSizesForWorker(7, 2, 2, 1), (Ints{2, 1, 2, 2}));
  EXPECT_EQ(*BatchSizesForWorker(10, 3, 1, 2), (Ints{3, 4, 3}));
  EXPECT_EQ(*BatchSizesForWorker(2, 1, 4, 0), (Ints{1, 1, 0, 0}));
}

TEST(BatchSizesForWorkerTest, RefusesWhatCannotBe) {
  for (const auto& sizes : {BatchSizesForWorker(7, 0, 2, 0), BatchSizesForWorker(7, 2, 0, 0), BatchSizesForWorker(7, 2, 2, 2), BatchSizesForWorker(7, 2, 2, -1),
                            BatchSizesForWorker(-1, 2, 2, 0), BatchSizesForWorker(7, int64_t{1} << 62, 4, 0)}) {
    EXPECT_EQ(sizes.status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(RebatchTest, CutsAcrossTheBordersOfBatches) {
  EXPECT_THAT(Shown(Rebatch(BatchesOf({7, 3}), {4, 3})), ElementsAre("0 1 2 3", "4 5 6", "7 8 9"));
  EXPECT_THAT(Shown(Rebatch(BatchesOf({1, 0, 1, 4}), {3})), ElementsAre("0 1 2", "3 4 5"));
  EXPECT_THAT(Shown(Rebatch(Count(10).Batch(4), {6})), ElementsAre("0 1 2 3 4 5", "6 7 8 9"));
}

TEST(RebatchTest, AShortBatchEndsTheStreamAndSizesOfZeroComeBehindAFullOne) {
  EXPECT_THAT(Shown(Rebatch(Count(5).Batch(5), {2, 0})), ElementsAre("0 1", "", "2 3", "", "4"));
  EXPECT_THAT(Shown(Rebatch(Count(5).Batch(5), {2, 0}, /*drop_remainder=*/true)), ElementsAre("0 1", "", "2 3", ""));
  EXPECT_THAT(Shown(Rebatch(Count(2).Batch(2), {2, 0, 2, 0})), ElementsAre("0 1", ""));
  EXPECT_THAT(Shown(Rebatch(Count(0).Batch(2), {0, 2})), IsEmpty());
}

TEST(RebatchTest, EveryLeafIsCutSparseIdsToo) {
  SparseIds lists{Tensor::Vector<int64_t>({7, 8, 9, 5}), Tensor::Vector<int64_t>({0, 1, 3, 3, 4}), Tensor::Vector<float>({1, 2, 3, 4})};
  const Nest rows{{"ids", Nest(lists)}, {"x", Nest(*Range(0, 8).Reshape({4, 2}))}};
  const Dataset recut = Rebatch(Dataset::FromTensors(rows).Batch(3), {2});
  const std::vector<Nest> batches = PlainPass(recut);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_TRUE(BitwiseEqual(*batches[1]["x"].tensor(), *Tensor::Copy<int64_t>({2, 2}, {4, 5, 6, 7})));
  const SparseIds second = *batches[1]["ids"].sparse_ids();
  EXPECT_TRUE(BitwiseEqual(second.ids, Tensor::Vector<int64_t>({5})));
  EXPECT_TRUE(BitwiseEqual(second.row_splits, Tensor::Vector<int64_t>({0, 0, 1})));
  EXPECT_TRUE(BitwiseEqual(*second.weights, Tensor::Vector<float>({4})));
  EXPECT_EQ(recut.ElementSpec()->at("x").shape, (Shape{-1, 2}));
}

TEST(RebatchTest, RefusesSizesThatCannotBeAndElementsThatAreNoBatches) {
  for (const Ints& sizes : {Ints{}, Ints{0, 0}, Ints{2, -1}})
    EXPECT_EQ(FirstError(Rebatch(Count(4).Batch(2), sizes)).code(), absl::StatusCode::kInvalidArgument);
  for (const Dataset& cut : {Rebatch(Count(4), {2}), RecutForReplicas(Count(4), 2)}) {
    EXPECT_EQ(FirstError(cut).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(FirstError(cut).message(), HasSubstr("so call Batch first"));
  }
}

TEST(RebatchTest, BatchesThatCannotBeJoinedAreAnError) {
  const Dataset uneven = Dataset::Generator([](int64_t i) -> absl::StatusOr<std::optional<Nest>> { return Nest(*Range(0, 2 + i).Reshape({1, 2 + i})); }, 2);
  EXPECT_THAT(FirstError(Rebatch(uneven, {2})).message(), HasSubstr("must be alike"));
}

TEST(RebatchTest, AnyStreamIsWhatItsModelSaysAndAnyPositionCanBeSought) {
  constexpr uint64_t kSeed = 20250302;
  std::cout << "seed " << kSeed << "\n";
  for (uint64_t i = 0; i < 300; ++i) {
    Random random(MixSeeds(kSeed, i));
    Ints input, sizes = {static_cast<int64_t>(random.Below(5)) + 1};
    const int64_t rows = static_cast<int64_t>(random.Below(30));
    for (int64_t left = rows; left > 0; left -= input.back()) input.push_back(std::min(left, static_cast<int64_t>(random.Below(6))));
    for (uint64_t more = random.Below(4); more > 0; --more) sizes.push_back(static_cast<int64_t>(random.Below(5)));
    const bool drop = random.Chance(0.5);
    std::vector<std::string> model;
    for (int64_t first = 0, place = 0;; ++place) {
      const int64_t size = sizes[static_cast<size_t>(place) % sizes.size()];
      if (rows == 0 || (size > 0 && first == rows) || (drop && first + size > rows)) break;
      model.push_back(Shown(Nest(Range(first, std::min(first + size, rows)))));
      first += size;
      if (first > rows) break;
    }
    SCOPED_TRACE(absl::StrCat("sample ", i, ": ", rows, " rows in {", absl::StrJoin(input, ","), "} cut into {", absl::StrJoin(sizes, ","), "}"));
    const Dataset shown_to_be_even = Count(rows).Batch(static_cast<int64_t>(random.Below(6)) + 1);
    for (const Dataset& batches : {BatchesOf(input), shown_to_be_even, shown_to_be_even.Shuffle(1, 1)}) {
      const Dataset recut = Rebatch(batches, sizes, drop);
      ASSERT_EQ(Shown(recut), model);
      ExpectEveryPositionCanBeSought(recut, random.Next());
    }
    if (HasFatalFailure()) return;
  }
}

TEST(RebatchTest, ReadsOnlyTheBatchesItNeedsWhereTheyAreKnownToBeAlike) {
  int64_t mapped = 0;  // one thread
  const Dataset counted = Count(1000).Map([&mapped](const Nest& element) -> absl::StatusOr<Nest> {
    ++mapped;
    return element;
  });
  const auto iterator = Rebatch(counted.Batch(10).Prefetch(2), {5}).Iterate();
  ASSERT_TRUE(iterator->Seek(150).ok());
  EXPECT_EQ(Shown(**iterator->Next()), "750 751 752 753 754");
  EXPECT_EQ(mapped, 10);
}

TEST(RecutForReplicasTest, CutsBatchesKnownToBeAlikeAcrossTheirBordersAndOthersEachByItself) {
  EXPECT_THAT(Shown(RecutForReplicas(Count(9).Batch(9, /*drop_remainder=*/true), 4)), ElementsAre("0 1 2", "3 4", "5 6", "7 8"));
  EXPECT_THAT(Shown(RecutForReplicas(Count(9).Batch(9), 4)), ElementsAre("0 1 2", "3 4 5", "6 7 8", ""));
  EXPECT_THAT(Shown(RecutForReplicas(BatchesOf({4, 5, 1}), 2)), ElementsAre("0 1", "2 3", "4 5 6", "7 8", "9", ""));
  EXPECT_THAT(Shown(RecutForReplicas(Count(3).Batch(2), 1)), ElementsAre("0 1", "2"));
  ExpectEveryPositionCanBeSought(RecutForReplicas(BatchesOf({4, 5, 1}), 3), 1);
}

}  // namespace
}  // namespace divvy
