#include "bench/results/measures.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy::results {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;

template <typename T>
std::string MessageOf(const absl::StatusOr<T>& result) {
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(result.status().message());
}

TEST(AreaUnderCurveTest, IsTheShareOfPairsInTheRightOrder) {
  // Pairs of a positive (0.8, 0.4) and a negative (0.5, 0.1, 0.4): 3 and 1 are right, 1 is a tie.
  EXPECT_DOUBLE_EQ(*AreaUnderCurve({0.5f, 0.8f, 0.1f, 0.4f, 0.4f}, {0, 1, 0, 1, 0}), 4.5 / 6);
}

TEST(AreaUnderCurveTest, EqualScoresAreAHalf) {
  EXPECT_DOUBLE_EQ(*AreaUnderCurve({2, 2, 2}, {0, 1, 0}), 0.5);
}

TEST(AreaUnderCurveTest, EqualsTheCountOfAllPairs) {
  Random random(7);
  std::vector<float> scores, labels;
  for (int i = 0; i < 300; ++i) {
    scores.push_back(static_cast<float>(random.Below(20)));
    labels.push_back(random.Chance(scores.back() / 20) ? 1 : 0);
  }
  double right = 0, pairs = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    for (size_t j = 0; j < scores.size(); ++j) {
      if (labels[i] < 1 || labels[j] > 0) continue;
      pairs += 1;
      right += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
    }
  }
  EXPECT_THAT(*AreaUnderCurve(scores, labels), DoubleNear(right / pairs, 1e-12));
}

TEST(AreaUnderCurveTest, RefusesWhatHasNoCurve) {
  EXPECT_THAT(MessageOf(AreaUnderCurve({}, {})), HasSubstr("at least one"));
  EXPECT_THAT(MessageOf(AreaUnderCurve({1, 2}, {1})), HasSubstr("2 predictions and 1 labels"));
  EXPECT_THAT(MessageOf(AreaUnderCurve({1, 2}, {1, 1})), HasSubstr("one class"));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(MessageOf(AreaUnderCurve({1, nan}, {1, 0})), HasSubstr("NaN"));
}

TEST(LogLossTest, IsTheMeanOfBothClasses) {
  // p = 3/4 for the first, 1/4 for the second.
  const float logit = std::log(3.0f);
  EXPECT_THAT(*LogLoss({logit, -logit}, {1, 1}),
              DoubleNear(-(std::log(0.75) + std::log(0.25)) / 2, 1e-7));
}

TEST(LogLossTest, DoesNotOverflow) {
  EXPECT_DOUBLE_EQ(*LogLoss({1000, -1000}, {1, 0}), 0);
  EXPECT_DOUBLE_EQ(*LogLoss({1000, -1000}, {0, 0}), 500);
}

TEST(RootMeanSquareTest, ClipsThePredictions) {
  EXPECT_DOUBLE_EQ(*RootMeanSquare({9, -9, 3}, {5, 1, 3}, 1, 5), 0);
  EXPECT_DOUBLE_EQ(*RootMeanSquare({4, 2}, {1, 2}, 1, 5), std::sqrt(4.5));
}

// Users and items are points of a plane.
Tensor Points(std::vector<float> values) {
  const auto rows = static_cast<int64_t>(values.size() / 2);
  return *Tensor::Copy<float>({rows, 2}, values);
}

TEST(RecallTest, IsTheMeanOfTheFoundShares) {
  const Tensor users = Points({1, 0, 0, 1}), items = Points({3, 1, 2, 3, 1, 2});
  // The order of user 0 is 0, 1, 2; that of user 1 is 1, 2, 0.
  EXPECT_DOUBLE_EQ(*RecallOfNearest(1, users, items, {}, {{0}, {1}}), 1);
  EXPECT_DOUBLE_EQ(*RecallOfNearest(1, users, items, {}, {{0, 1}, {0}}), 0.25);
  EXPECT_DOUBLE_EQ(*RecallOfNearest(2, users, items, {}, {{0, 1}, {0}}), 0.5);
  EXPECT_DOUBLE_EQ(*RecallOfNearest(99, users, items, {}, {{0, 1}, {0}}), 1);
}

TEST(RecallTest, LeavesOutSeenItemsAndUsersWithoutWishes) {
  const Tensor users = Points({1, 0, 0, 1}), items = Points({3, 1, 2, 3, 1, 2});
  EXPECT_DOUBLE_EQ(*RecallOfNearest(1, users, items, {{0}}, {{1}}), 1);
  EXPECT_DOUBLE_EQ(*RecallOfNearest(1, users, items, {{0}}, {{1}, {}}), 1);
}

TEST(RecallTest, OfEqualItemsTheFirstCounts) {
  const Tensor user = Points({1, 1}), items = Points({1, 1, 1, 1, 1, 1});
  EXPECT_DOUBLE_EQ(*RecallOfNearest(2, user, items, {}, {{0, 1}}), 1);
  EXPECT_DOUBLE_EQ(*RecallOfNearest(2, user, items, {}, {{2}}), 0);
}

TEST(RecallTest, IsTheSameOverSeveralBlocksOfUsers) {
  // 300 users on a line, each nearest to the item of its own number modulo 3.
  std::vector<float> users;
  ItemLists wanted;
  for (int64_t user = 0; user < 300; ++user) {
    const double angle = 2 * static_cast<double>(user % 3);
    users.push_back(static_cast<float>(std::cos(angle)));
    users.push_back(static_cast<float>(std::sin(angle)));
    wanted.push_back({user % 3 == 2 ? 0 : user % 3});
  }
  const Tensor items =
      Points({1, 0, static_cast<float>(std::cos(2)), static_cast<float>(std::sin(2)),
              static_cast<float>(std::cos(4)), static_cast<float>(std::sin(4))});
  EXPECT_DOUBLE_EQ(*RecallOfNearest(1, Points(users), items, {}, wanted), 200.0 / 300);
}

TEST(RecallTest, NamesWhatItCannotUse) {
  const Tensor users = Points({1, 0}), items = Points({3, 1});
  EXPECT_THAT(MessageOf(RecallOfNearest(0, users, items, {}, {{0}})), HasSubstr("k is 0"));
  EXPECT_THAT(MessageOf(RecallOfNearest(1, users, items, {}, {{1}})),
              HasSubstr("wanted: item 1 of user 0 is outside [0, 1)"));
  EXPECT_THAT(MessageOf(RecallOfNearest(1, users, items, {{-1}}, {{0}})),
              HasSubstr("seen: item -1"));
  EXPECT_THAT(MessageOf(RecallOfNearest(1, users, items, {}, {})), HasSubstr("no user wants"));
  EXPECT_THAT(MessageOf(RecallOfNearest(1, users, Tensor::Vector<float>({1, 2}), {}, {{0}})),
              HasSubstr("no float32 matrices of one width"));
}

}  // namespace
}  // namespace divvy::results
