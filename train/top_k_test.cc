#include "train/top_k.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Lists = std::vector<std::vector<int64_t>>;

Nest Sparse(const Lists& lists) {
  std::vector<int64_t> ids, splits = {0};
  for (const std::vector<int64_t>& list : lists) {
    ids.insert(ids.end(), list.begin(), list.end());
    splits.push_back(static_cast<int64_t>(ids.size()));
  }
  return SparseIds{Tensor::Vector<int64_t>(ids), Tensor::Vector<int64_t>(splits), {}};
}

Tensor Floats(Shape shape, std::vector<float> values) {
  return *Tensor::Copy<float>(shape, values);
}

std::vector<int64_t> ItemsOf(const TopK& best) {
  const Tensor items = best.Items();
  const absl::Span<const int64_t> values = *items.values<int64_t>();
  return {values.begin(), values.end()};
}

bool Holds(const std::vector<int64_t>& list, int64_t item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

// Users with scores of all items, and the two figures by definition.
struct Case {
  int64_t users, items;
  std::vector<float> scores;
  Lists seen, relevant;

  Case(Random& random, int64_t users, int64_t items) : users(users), items(items) {
    // Few different scores, so that there are many ties.
    for (int64_t i = 0; i < users * items; ++i)
      scores.push_back(static_cast<float>(random.Below(6)));
    for (int64_t user = 0; user < users; ++user) {
      seen.emplace_back();
      relevant.emplace_back();
      for (int64_t item = 0; item < items; ++item) {
        if (random.Chance(0.2)) seen.back().push_back(item);
        if (random.Chance(0.15)) relevant.back().push_back(item);
      }
      std::reverse(relevant.back().begin(), relevant.back().end());
    }
    relevant[0].clear();
  }

  // The columns [first, end).
  Tensor Columns(int64_t first, int64_t end) const {
    std::vector<float> block;
    for (int64_t user = 0; user < users; ++user)
      block.insert(block.end(), scores.begin() + user * items + first,
                   scores.begin() + user * items + end);
    return Floats({users, end - first}, block);
  }

  // All items that the user has not seen, the best first.
  std::vector<int64_t> Ranking(int64_t user) const {
    std::vector<int64_t> ranking;
    for (int64_t item = 0; item < items; ++item)
      if (!Holds(seen[user], item)) ranking.push_back(item);
    std::stable_sort(ranking.begin(), ranking.end(), [&](int64_t a, int64_t b) {
      return scores[user * items + a] > scores[user * items + b];
    });
    return ranking;
  }

  void Expect(const Metric& recall, const Metric& ndcg, int k) const {
    double recalls = 0, ndcgs = 0, counted = 0;
    for (int64_t user = 0; user < users; ++user) {
      std::vector<int64_t> ranking = Ranking(user);
      double wanted = 0, found = 0, gain = 0, ideal = 0;
      for (const int64_t item : relevant[user]) wanted += !Holds(seen[user], item);
      for (int rank = 1; rank <= k && rank <= static_cast<int>(ranking.size()); ++rank) {
        if (!Holds(relevant[user], ranking[rank - 1])) continue;
        ++found;
        gain += 1 / std::log2(rank + 1.0);
      }
      for (int rank = 1; rank <= k && rank <= wanted; ++rank) ideal += 1 / std::log2(rank + 1.0);
      if (wanted == 0) continue;
      recalls += found / wanted;
      ndcgs += gain / ideal;
      ++counted;
    }
    EXPECT_EQ(recall.count(), counted);
    EXPECT_NEAR(recall.value(), recalls / counted, 1e-12);
    EXPECT_EQ(ndcg.count(), counted);
    EXPECT_NEAR(ndcg.value(), ndcgs / counted, 1e-12);
  }
};

TEST(TopKTest, AgreesWithASortOfAllItemsInBlocksOfAnySize) {
  const uint64_t seed = 91;
  SCOPED_TRACE(seed);
  Random random(seed);
  const Case test(random, 12, 40);
  for (const int64_t block : {1, 7, 40}) {
    SCOPED_TRACE(block);
    TopK best(10, Sparse(test.seen));
    // The last block first: the order of blocks does not matter.
    for (int64_t first = (test.items - 1) / block * block; first >= 0; first -= block) {
      const int64_t end = std::min(first + block, test.items);
      ASSERT_EQ(best.Add(first, test.Columns(first, end)), absl::OkStatus());
    }
    std::vector<int64_t> expected;
    for (int64_t user = 0; user < test.users; ++user) {
      const std::vector<int64_t> ranking = test.Ranking(user);
      expected.insert(expected.end(), ranking.begin(), ranking.begin() + 10);
    }
    EXPECT_EQ(ItemsOf(best), expected);
    for (const int k : {1, 3, 10}) {
      test.Expect(*best.Recall(k, Sparse(test.relevant)), *best.Ndcg(k, Sparse(test.relevant)), k);
    }
  }
}

TEST(TopKTest, PartsOfTheUsersAddUpToAllUsers) {
  const uint64_t seed = 92;
  SCOPED_TRACE(seed);
  Random random(seed);
  const Case test(random, 9, 30);
  Metrics sum;
  for (const auto& [first, end] : {std::pair(0, 4), std::pair(4, 5), std::pair(5, 9)}) {
    const auto part = [&, first = first, end = end](const Lists& lists) {
      return Sparse(Lists(lists.begin() + first, lists.begin() + end));
    };
    const std::vector<float> scores(test.scores.begin() + first * 30,
                                    test.scores.begin() + end * 30);
    const auto metrics = Collect(
        TopKMetrics({5}, Floats({end - first, 30}, scores), part(test.relevant), part(test.seen)));
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    ASSERT_EQ(Merge(*metrics, sum), absl::OkStatus());
  }
  test.Expect(sum.at("recall@5"), sum.at("ndcg@5"), 5);
}

TEST(TopKTest, OfEqualScoresTheLowerItemIsBetterWhateverTheOrder) {
  TopK best(3);
  ASSERT_EQ(best.Add(2, Floats({1, 3}, {1, 1, 1})), absl::OkStatus());
  ASSERT_EQ(best.Add(0, Floats({1, 2}, {1, 1})), absl::OkStatus());
  EXPECT_THAT(ItemsOf(best), ElementsAre(0, 1, 2));
}

TEST(TopKTest, HasTheFiguresOfAWorkedExample) {
  // The ranking is 3, 1, 0, 2; 1 and 2 are relevant.
  TopK best(3);
  ASSERT_EQ(best.Add(0, Floats({1, 4}, {2, 3, 1, 4})), absl::OkStatus());
  EXPECT_THAT(ItemsOf(best), ElementsAre(3, 1, 0));
  EXPECT_EQ(best.Recall(1, Sparse({{1, 2}}))->value(), 0);
  EXPECT_EQ(best.Recall(3, Sparse({{1, 2}}))->value(), 0.5);
  // (1 / log2 3) / (1 / log2 2 + 1 / log2 3)
  EXPECT_NEAR(best.Ndcg(3, Sparse({{1, 2}}))->value(), 0.38685280723454163, 1e-15);
  EXPECT_EQ(best.Ndcg(3, Sparse({{3}}))->value(), 1);
}

TEST(TopKTest, LeavesOutSeenItemsAndFillsWithMinusOne) {
  TopK best(3, Sparse({{0, 2}, {}}));
  ASSERT_EQ(best.Add(0, Floats({2, 3}, {9, 1, 8, 1, 2, 3})), absl::OkStatus());
  EXPECT_THAT(ItemsOf(best), ElementsAre(1, -1, -1, 2, 1, 0));
  // Item 0 is seen by user 0, so only item 1 is relevant. User 1 has nothing relevant.
  const absl::StatusOr<Metric> recall = best.Recall(1, Sparse({{0, 1, 1}, {}}));
  ASSERT_TRUE(recall.ok()) << recall.status();
  EXPECT_EQ(recall->value(), 1);
  EXPECT_EQ(recall->count(), 1);
}

TEST(TopKTest, TakesDoublesInfinitiesAndNoUsersAtAll) {
  TopK best(1);
  ASSERT_EQ(
      best.Add(0, Tensor::Vector<double>({-INFINITY, 1e300, INFINITY}).Reshape({1, 3}).value()),
      absl::OkStatus());
  EXPECT_THAT(ItemsOf(best), ElementsAre(2));
  const auto none = Collect(TopKMetrics({2}, Floats({0, 5}, {}), Sparse({}), Sparse({})));
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(none->at("recall@2").count(), 0);
  EXPECT_EQ(none->at("ndcg@2").value(), 0);
}

void ExpectRefused(const absl::Status& status, const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  for (const std::string& part : parts) EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

TEST(TopKTest, RefusesWhatDoesNotFitAndNamesTheFix) {
  const Tensor scores = Floats({1, 3}, {1, 2, 3});
  ExpectRefused(TopK(0).Add(0, scores), {"k is 0", "at least 1"});
  ExpectRefused(TopK(1).Add(0, Floats({3}, {1, 2, 3})), {"scores [3]", "[users, items]"});
  ExpectRefused(TopK(1).Add(-1, scores), {"first_item is -1", "counted from 0"});
  ExpectRefused(TopK(1).Add(7, Floats({1, 2}, {1, NAN})),
                {"score of item 8 for user 0", "not a number"});
  ExpectRefused(TopK(1, Sparse({{0}, {1}})).Add(0, scores),
                {"seen has 2 lists for 1 users", "one list for each user"});
  ExpectRefused(TopK(1, Nest("seen")).Add(0, scores), {"TopK: seen"});

  TopK best(2);
  ASSERT_EQ(best.Add(0, scores), absl::OkStatus());
  ExpectRefused(best.Add(3, Floats({2, 1}, {1, 2})), {"2 users after a block of 1"});
  ExpectRefused(best.Add(2, scores), {"items 2 to 4 overlap with items 0 to 2", "each item once"});
  EXPECT_THAT(ItemsOf(best), ElementsAre(2, 1));
  ExpectRefused(best.Recall(3, Sparse({{0}})).status(), {"Recall: k is 3", "the 2 items"});
  ExpectRefused(best.Ndcg(0, Sparse({{0}})).status(), {"Ndcg: k is 0", "at least 1"});
  ExpectRefused(best.Recall(1, Sparse({})).status(), {"relevant has 0 lists for 1 users"});
  ExpectRefused(best.Recall(1, Sparse({{3}})).status(),
                {"item 3 is relevant to user 0", "never added", "scores of all items"});
}

TEST(TopKMetricsTest, GiveTheErrorOfTheScoresToEachMetric) {
  const auto metrics = TopKMetrics({1, 2}, Floats({1, 1}, {NAN}), Sparse({{0}}));
  ASSERT_EQ(metrics.size(), 4u);
  for (const auto& [name, metric] : metrics) ExpectRefused(metric.status(), {"not a number"});
}

}  // namespace
}  // namespace divvy
