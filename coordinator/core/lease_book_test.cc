#include "coordinator/core/lease_book.h"

#include <algorithm>
#include <iostream>
#include <set>
#include <utility>
#include <vector>

#include "base/random.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using Range = std::pair<int64_t, int64_t>;

TEST(LeaseBookTest, AWorkerReadsForwardWithinItsChunk) {
  LeaseBook book;
  book.SetEnd(1000);
  EXPECT_EQ(book.Take(0, 1), Range(0, 1));
  EXPECT_EQ(book.Take(0, 1), Range(1, 1));
  EXPECT_EQ(book.Take(1, 1), Range(64, 1));
  EXPECT_EQ(book.Take(0, 1), Range(2, 1));
}

TEST(LeaseBookTest, WhereTheEndIsNotKnownChunksGrowWithWhatWasGiven) {
  LeaseBook book;
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(book.Take(i % 2, 1), Range(i, 1));
  // The first position of a chunk of two.
  EXPECT_EQ(book.Take(0, 1), Range(8, 1));
  EXPECT_EQ(book.Take(1, 1), Range(10, 1));
  EXPECT_EQ(book.Take(0, 1), Range(9, 1));
}

TEST(LeaseBookTest, AnEarlierPassTellsWhereToExpectTheEnd) {
  LeaseBook book;
  book.SetHint(45);
  EXPECT_EQ(book.expected(), 45);
  EXPECT_EQ(book.Take(0, 1), Range(0, 1));
  EXPECT_EQ(book.Take(1, 1), Range(11, 1));
  // The data may be longer in this pass.
  EXPECT_FALSE(book.exhausted());
}

TEST(LeaseBookTest, AStepTakesAnElementForEachReplica) {
  LeaseBook book;
  book.SetEnd(5);
  EXPECT_EQ(book.Take(0, 2), Range(0, 2));
  EXPECT_EQ(book.Take(0, 2), Range(2, 2));
  EXPECT_EQ(book.Take(0, 2), Range(4, 1));
  EXPECT_EQ(book.Take(0, 2), std::nullopt);
  EXPECT_TRUE(book.exhausted());
}

TEST(LeaseBookTest, WhatALostWorkerHadNotBegunGoesFirst) {
  LeaseBook book;
  book.SetEnd(1000);
  EXPECT_EQ(book.Take(0, 1), Range(0, 1));
  EXPECT_EQ(book.Take(1, 1), Range(64, 1));
  book.WorkerGone(0);
  EXPECT_EQ(book.Take(1, 1), Range(1, 1));
  EXPECT_EQ(book.Take(1, 1), Range(2, 1));
}

TEST(LeaseBookTest, AWorkerThatFindsNothingElseTakesHalfOfAnothersChunk) {
  LeaseBook book;
  book.SetEnd(1000);
  EXPECT_EQ(book.Take(0, 1), Range(0, 1));  // chunk 0 .. 63
  book.SetEnd(41);
  // Of the chunk, 40 positions are left. Positions 1 to 20 stay with worker 0.
  EXPECT_EQ(book.Take(1, 1), Range(21, 1));
  EXPECT_EQ(book.Take(0, 1), Range(1, 1));
  EXPECT_EQ(book.Take(1, 1), Range(22, 1));
}

TEST(LeaseBookTest, ChunksAreShortWhereTheEndIsKnownAndNear) {
  LeaseBook book;
  book.SetEnd(45);
  EXPECT_EQ(book.Take(0, 1), Range(0, 1));
  // The first chunk had 45 / 4 positions.
  EXPECT_EQ(book.Take(1, 1), Range(11, 1));
}

TEST(LeaseBookTest, WhatAStepGivesBackGoesFirst) {
  LeaseBook book;
  EXPECT_EQ(book.Take(0, 1), Range(0, 1));
  EXPECT_EQ(book.Take(0, 1), Range(1, 1));
  book.GiveBack(0, 1);
  EXPECT_EQ(book.Take(1, 1), Range(0, 1));
}

TEST(LeaseBookTest, AnEmptyPassIsExhaustedAtOnce) {
  LeaseBook book;
  EXPECT_FALSE(book.exhausted());
  book.SetEnd(0);
  EXPECT_TRUE(book.exhausted());
  EXPECT_EQ(book.Take(0, 1), std::nullopt);
}

TEST(LeaseBookTest, AnEndFoundLaterStopsWhatIsBeyondIt) {
  LeaseBook book;
  book.SetEnd(1000);
  EXPECT_EQ(book.Take(0, 1), Range(0, 1));
  EXPECT_EQ(book.Take(1, 1), Range(64, 1));
  book.SetEnd(64);
  // Worker 1 gets half of the rest of worker 0's chunk.
  EXPECT_EQ(book.Take(1, 1), Range(32, 1));
  EXPECT_FALSE(book.exhausted());
  book.SetEnd(70);
  EXPECT_EQ(*book.end(), 64);
}

TEST(LeaseBookTest, AnotherLifeGivesWhatNoStepWasGiven) {
  LeaseBook book;
  book.SetEnd(10, /*exact=*/true);
  EXPECT_EQ(book.Take(0, 2), Range(0, 2));
  EXPECT_EQ(book.Take(1, 2), Range(2, 2));
  book.GiveBack(0, 2);
  PassProgress pass;
  book.Save(pass);
  EXPECT_EQ(pass.end, 10);
  EXPECT_TRUE(pass.end_is_exact);
  LeaseBook again(pass);
  EXPECT_EQ(again.expected(), 10);
  EXPECT_EQ(again.Take(0, 2), Range(0, 2));
  for (int64_t first = 4; first < 10; first += 2) EXPECT_EQ(again.Take(0, 2), Range(first, 2));
  EXPECT_TRUE(again.exhausted());
}

// The book of a coordinator that continues from a checkpoint. The positions of steps in flight are
// unread in the cut.
LeaseBook AnotherLife(const LeaseBook& book, std::vector<Range>& in_flight) {
  PassProgress pass;
  book.Save(pass);
  for (const Range& range : in_flight) pass.unread.insert(range);
  in_flight.clear();
  return LeaseBook(pass);
}

TEST(LeaseBookTest, EveryPositionIsGivenOnceWhateverHappensToWorkers) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    LeaseBook book;
    const int64_t elements = random.Below(500), per_step = 1 + random.Below(3);
    if (random.Chance(0.5)) book.SetEnd(elements);
    std::multiset<int64_t> finished;
    std::vector<Range> in_flight;
    for (int i = 0; i < 5000 && !(book.exhausted() && in_flight.empty()); ++i) {
      const int worker = random.Below(4);
      if (random.Chance(0.02)) book.WorkerGone(worker);
      if (random.Chance(0.02)) book = AnotherLife(book, in_flight);
      if (random.Chance(0.6)) {
        const auto taken = book.Take(worker, per_step);
        if (taken && taken->first >= elements) {
          // A worker that has read past the end reports the number of elements.
          book.SetEnd(elements);
        } else if (taken) {
          in_flight.push_back(*taken);
        }
      } else if (!in_flight.empty()) {
        const Range range = in_flight.back();
        in_flight.pop_back();
        if (random.Chance(0.1)) {
          book.GiveBack(range.first, range.second);
        } else {
          for (int64_t p = range.first; p < std::min(range.first + range.second, elements); ++p)
            finished.insert(p);
        }
      }
    }
    ASSERT_EQ(static_cast<int64_t>(finished.size()), elements);
    int64_t expected = 0;
    for (const int64_t position : finished) EXPECT_EQ(position, expected++);
  }
}

TEST(LeaseBookTest, WhatLiesBeyondAnEndThatWasWrongIsGivenAllTheSame) {
  LeaseBook book;
  EXPECT_EQ(book.Take(0, 1), std::make_pair(int64_t{0}, int64_t{1}));
  EXPECT_EQ(book.Take(0, 1), std::make_pair(int64_t{1}, int64_t{1}));
  book.SetEnd(1);
  book.GiveBack(1, 1);
  EXPECT_EQ(book.Take(0, 1), std::nullopt);
  EXPECT_TRUE(book.exhausted());
  book.SetSize(3);
  std::set<int64_t> given;
  while (const auto taken = book.Take(0, 1)) given.insert(taken->first);
  EXPECT_EQ(given, (std::set<int64_t>{1, 2}));
  book.SetSize(std::nullopt);
  EXPECT_FALSE(book.exhausted());
}

TEST(LeaseBookTest, NothingThatIsGivenBackIsNothing) {
  LeaseBook book;
  book.Take(0, 2);
  book.GiveBack(0, 0);
  book.GiveBack(0, 2);
  EXPECT_EQ(book.Take(1, 2), std::make_pair(int64_t{0}, int64_t{2}));
}

}  // namespace
}  // namespace divvy
