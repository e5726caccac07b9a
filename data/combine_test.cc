// Zip, Concatenate, FlatMap, Interleave, Unbatch and Cache.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/testing/seek_suite.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Dataset Range(int64_t begin, int64_t end) {
  std::vector<int64_t> values;
  for (int64_t i = begin; i < end; ++i) values.push_back(i);
  return Dataset::FromTensorSlices(Tensor::Vector<int64_t>(values));
}
// The same without a known size.
Dataset Unsized(int64_t begin, int64_t end) {
  return Range(begin, end).Filter([](const Nest&) -> absl::StatusOr<bool> { return true; });
}

std::vector<int64_t> Numbers(const Dataset& dataset) {
  std::vector<int64_t> numbers;
  for (const Nest& element : PlainPass(dataset))
    numbers.push_back(element.tensor()->data_as<int64_t>()[0]);
  return numbers;
}

int64_t Number(const Nest& element) { return element.tensor()->data_as<int64_t>()[0]; }

void ExpectSeeks(const Dataset& dataset) {
  for (uint64_t seed = 1; seed <= 5; ++seed) ExpectEveryPositionCanBeSought(dataset, seed);
}

absl::Status FirstError(const Dataset& dataset) { return dataset.Iterate()->Next().status(); }

// Fails at 2, with an error of an element, or with another one.
Dataset BadAt2(absl::StatusCode code = absl::StatusCode::kDataLoss) {
  return Range(0, 5).Map([code](const Nest& element) -> absl::StatusOr<Nest> {
    if (Number(element) == 2) return absl::Status(code, "two");
    return element;
  });
}

// ---- Zip

TEST(ZipTest, EndsWithTheShortestAndMakesListsOrDicts) {
  const Dataset both = Dataset::Zip({Range(0, 3), Range(10, 15)});
  const std::vector<Nest> elements = PlainPass(both);
  ASSERT_EQ(elements.size(), 3u);
  EXPECT_EQ(Number(elements[2][0]), 2);
  EXPECT_EQ(Number(elements[2][1]), 12);
  EXPECT_EQ(both.Iterate()->size(), 3);
  ExpectSeeks(both);
  const Dataset named = Dataset::ZipDict({{"a", Range(0, 3)}, {"b", Unsized(10, 12)}});
  EXPECT_EQ(Number(PlainPass(named).at(1)["b"]), 11);
  EXPECT_EQ(PlainPass(named).size(), 2u);
  EXPECT_EQ(named.Iterate()->size(), std::nullopt);
  ExpectSeeks(named.Batch(2));
}

TEST(ZipTest, OfNothingIsRefused) {
  const absl::Status refused = FirstError(Dataset::Zip(std::vector<Dataset>()));
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("at least 1"));
}

// ---- Concatenate

TEST(ConcatenateTest, GoesOnWithTheNextWhetherSizesAreKnownOrNot) {
  for (const bool sized : {true, false}) {
    const auto part = [&](int64_t begin, int64_t end) {
      return sized ? Range(begin, end) : Unsized(begin, end);
    };
    const Dataset all =
        part(0, 3).Concatenate(part(3, 3)).Concatenate(part(3, 4)).Concatenate(part(4, 9));
    EXPECT_THAT(Numbers(all), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
    EXPECT_EQ(all.Iterate()->size(), sized ? std::optional<int64_t>(9) : std::nullopt);
    ExpectSeeks(all);
    ExpectSeeks(all.Batch(4).Repeat(2));
    ExpectSeeks(all.Shuffle(3, 7));
  }
}

// ---- FlatMap

Dataset Times(const Nest& element) {
  const int64_t n = Number(element);
  return n % 2 == 0 ? Range(10 * n, 11 * n) : Unsized(10 * n, 11 * n);
}

TEST(FlatMapTest, PutsTheDatasetsOneBehindTheOther) {
  const Dataset flat = Range(0, 5).FlatMap(
      [](const Nest& element) -> absl::StatusOr<Dataset> { return Times(element); });
  EXPECT_THAT(Numbers(flat), ElementsAre(10, 20, 21, 30, 31, 32, 40, 41, 42, 43));
  ExpectSeeks(flat);
  ExpectSeeks(flat.Batch(3).Repeat(2));
}

TEST(FlatMapTest, ABadElementCountsAsOneAndOtherErrorsEndThePass) {
  const auto twice = [](const Nest& element) -> absl::StatusOr<Dataset> {
    return Range(Number(element), Number(element) + 1).Repeat(2);
  };
  EXPECT_THAT(Numbers(BadAt2().FlatMap(twice).IgnoreErrors(1)),
              ElementsAre(0, 0, 1, 1, 3, 3, 4, 4));
  const auto fails = [](const Nest& element) -> absl::StatusOr<Dataset> {
    if (Number(element) == 2) return absl::InvalidArgumentError("two");
    return Range(0, 1);
  };
  EXPECT_THAT(Numbers(Range(0, 4).FlatMap(fails).IgnoreErrors(1)), ElementsAre(0, 0, 0));
  const auto pass = BadAt2(absl::StatusCode::kUnavailable).FlatMap(twice).Iterate();
  ASSERT_TRUE(pass->Seek(6).ok());
  EXPECT_EQ(pass->Next().status().code(), absl::StatusCode::kUnavailable);
}

TEST(FlatMapTest, AnExceptionOfTheFunctionIsAnError) {
  const absl::Status status = FirstError(
      Range(0, 1).FlatMap([](const Nest&) -> absl::StatusOr<Dataset> { throw std::string("no"); }));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a FlatMap function"));
}

// ---- Interleave

// The example of TensorFlow's documentation of Dataset.interleave.
TEST(InterleaveTest, TakesTurnsAsTensorFlowDoes) {
  const Dataset mixed = Range(1, 6).Interleave(
      [](const Nest& element) -> absl::StatusOr<Dataset> {
        return Range(Number(element), Number(element) + 1).Repeat(6);
      },
      /*cycle_length=*/2, /*block_length=*/4);
  EXPECT_THAT(Numbers(mixed), ElementsAre(1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4,
                                          4, 3, 3, 4, 4, 5, 5, 5, 5, 5, 5));
  ExpectSeeks(mixed);
}

TEST(InterleaveTest, ASlotWaitsForItsTurnBeforeItIsFilledAgain) {
  const auto times = [](const Nest& element) -> absl::StatusOr<Dataset> { return Times(element); };
  EXPECT_THAT(Numbers(Range(0, 5).Interleave(times, 3)),
              ElementsAre(10, 20, 30, 21, 31, 40, 32, 41, 42, 43));
  // One slot is FlatMap; more slots than elements are as many as elements.
  EXPECT_EQ(Numbers(Range(0, 5).Interleave(times, 1)), Numbers(Range(0, 5).FlatMap(times)));
  ExpectSeeks(Range(0, 5).Interleave(times, 9, 2));
}

TEST(InterleaveTest, ABadElementCountsAsOne) {
  const auto one = [](const Nest& element) -> absl::StatusOr<Dataset> {
    return Range(Number(element), Number(element) + 1);
  };
  EXPECT_THAT(Numbers(BadAt2().Interleave(one, 2).IgnoreErrors(1)), ElementsAre(0, 1, 3, 4));
  const auto all = [](const Nest&) -> absl::StatusOr<Dataset> { return BadAt2(); };
  EXPECT_THAT(Numbers(Range(0, 2).Interleave(all, 2).IgnoreErrors(2)),
              ElementsAre(0, 0, 1, 1, 3, 3, 4, 4));
  EXPECT_EQ(FirstError(Range(0, 2).Interleave(all, 0)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FirstError(Range(0, 2).Interleave(all, 1, 0)).code(),
            absl::StatusCode::kInvalidArgument);
}

// ---- Unbatch

TEST(UnbatchTest, IsTheInverseOfBatch) {
  const Dataset rows = Range(0, 11);
  for (const int64_t size : {1, 3, 11, 20}) {
    EXPECT_EQ(Numbers(rows.Batch(size).Unbatch()), Numbers(rows)) << size;
    ExpectSeeks(rows.Batch(size).Unbatch());
  }
  ExpectSeeks(rows.Batch(3).Unbatch().Batch(4).Repeat(2));
}

TEST(UnbatchTest, TakesSparseIdsAndBatchesOfAnySizeAndEmptyOnes) {
  const auto batch = [](const Nest& element) -> absl::StatusOr<Nest> {
    const int64_t n = Number(element) % 3;
    SparseIds ids;
    std::vector<int64_t> values, splits = {0};
    for (int64_t row = 0; row < n; ++row) {
      values.insert(values.end(), static_cast<size_t>(row), Number(element));
      splits.push_back(static_cast<int64_t>(values.size()));
    }
    ids.ids = Tensor::Vector<int64_t>(values);
    ids.row_splits = Tensor::Vector<int64_t>(splits);
    return Nest(ids);
  };
  const Dataset rows = Range(0, 8).Map(batch).Unbatch();
  const std::vector<Nest> elements = PlainPass(rows);
  ASSERT_EQ(elements.size(), 0u + 1 + 2 + 0 + 1 + 2 + 0 + 1);
  EXPECT_EQ(elements[2].sparse_ids()->ids.shape(), (Shape{1}));
  ExpectSeeks(rows);
}

TEST(UnbatchTest, ABatchWithoutRowsIsAnErrorOfOneElement) {
  const Dataset mixed = Range(0, 3).Map([](const Nest& element) -> absl::StatusOr<Nest> {
    if (Number(element) == 1) return element;  // a scalar
    return Nest(Tensor::Vector<int64_t>({Number(element), 7}));
  });
  EXPECT_THAT(Numbers(mixed.Unbatch().IgnoreErrors(1)), ElementsAre(0, 7, 2, 7));
  EXPECT_THAT(std::string(FirstError(Range(0, 1).Unbatch()).message()), HasSubstr("Unbatch"));
}

// ---- Cache

TEST(CacheTest, ReadsEachElementOnceInAllPassesOfAnIterator) {
  int64_t calls = 0;
  const Dataset counted = Range(0, 3000).Map([&calls](const Nest& element) -> absl::StatusOr<Nest> {
    ++calls;
    return element;
  });
  const Dataset cached = counted.Cache();
  EXPECT_EQ(Numbers(cached.Repeat(3)).size(), 9000u);
  EXPECT_EQ(calls, 3000);
  EXPECT_EQ(Numbers(cached), Numbers(counted));
  ExpectSeeks(cached);
  ExpectSeeks(Unsized(0, 1024).Cache());
  ExpectSeeks(cached.Shuffle(100, 3).Batch(7));
}

TEST(CacheTest, KeepsOnlyThePiecesThatAreRead) {
  int64_t calls = 0;
  const Dataset counted =
      Range(0, 100'000).Map([&calls](const Nest& element) -> absl::StatusOr<Nest> {
        ++calls;
        return element;
      });
  const auto pass = counted.Cache().Iterate();
  ASSERT_TRUE(pass->Seek(90'000).ok());
  EXPECT_EQ(Number(**pass->Next()), 90'000);
  EXPECT_LE(calls, 1024);
}

TEST(CacheTest, AnErrorIsThatOfItsElementAlone) {
  EXPECT_THAT(Numbers(BadAt2().Cache().IgnoreErrors(1)), ElementsAre(0, 1, 3, 4));
}

TEST(CacheTest, WhatIsBeforeABadElementIsReadOnce) {
  int64_t calls = 0;
  const Dataset counted = Range(0, 5).Map([&calls](const Nest& element) -> absl::StatusOr<Nest> {
    ++calls;
    if (Number(element) == 4) return absl::DataLossError("four");
    return element;
  });
  EXPECT_THAT(Numbers(counted.Cache().Take(4).Repeat(3)),
              ElementsAre(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3));
  EXPECT_EQ(calls, 5);
}

}  // namespace
}  // namespace divvy
