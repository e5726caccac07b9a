#include "coordinator/core/arrangement.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partitioners/div.h"

namespace divvy {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Ge;
using testing::SizeIs;

using Loads = std::map<ShardKey, ShardLoad>;

// A variable of `rows` rows in shards on these servers.
VariableLayout Variable(uint32_t id, const std::string& name, int64_t rows, std::vector<int> ps) {
  VariableLayout variable;
  variable.id = VariableId(id);
  variable.spec.name = name;
  variable.spec.shape = {rows, 4};
  variable.offsets = DivSplit::Create(rows, static_cast<int64_t>(ps.size()))->offsets();
  variable.ps = std::move(ps);
  return variable;
}

// The load of all shards of a variable, even within each, and 100 bytes.
void Give(uint32_t id, const std::vector<double>& bytes_per_second, Loads& loads) {
  for (size_t part = 0; part < bytes_per_second.size(); ++part)
    loads[{VariableId(id), 0, static_cast<uint16_t>(part)}] = {{bytes_per_second[part]}, 100};
}

// The imbalance that an arrangement makes of the load, computed row by row. No row of the variables
// lies beside another variable.
double ImbalanceWith(const Layout& layout, const Loads& loads, const Arrangement& arrangement,
                     int num_ps) {
  std::vector<double> servers(static_cast<size_t>(num_ps));
  for (const auto& [id, variable] : layout.variables()) {
    const std::vector<int>& ps = arrangement.ps.at(variable.spec.name);
    const DivSplit split = *DivSplit::Create(variable.rows(), static_cast<int64_t>(ps.size()));
    for (int part = 0; part < variable.num_shards(); ++part) {
      const int64_t first = variable.offsets[static_cast<size_t>(part)],
                    rows = variable.offsets[static_cast<size_t>(part) + 1] - first;
      const std::vector<double>& load =
          loads.at({id, 0, static_cast<uint16_t>(part)}).bytes_per_second;
      const auto parts = static_cast<int64_t>(load.size());
      // A row has `parts` pieces, and so a part of the load has `rows` of them.
      for (int64_t i = 0; i < rows * parts; ++i) {
        const int64_t row = first + i / parts;
        servers[static_cast<size_t>(ps[static_cast<size_t>(split.FindChecked(row).shard)])] +=
            load[static_cast<size_t>(i / rows)] / static_cast<double>(rows);
      }
    }
  }
  const double total = std::accumulate(servers.begin(), servers.end(), 0.0);
  return *std::max_element(servers.begin(), servers.end()) * num_ps / total;
}

TEST(ArrangeTest, TwoBusyShardsOfOneServerArePartedAndNothingIsCut) {
  const auto layout = Layout::Empty()->With(Variable(1, "a", 10, {0, 1, 0, 1}));
  Loads loads;
  Give(1, {40, 1, 40, 1}, loads);
  EXPECT_NEAR(BalanceOf(*layout, loads, 2).imbalance, 80 / 41., 1e-9);
  EXPECT_NEAR(BalanceOf(*layout, loads, 2).busiest_bytes_per_second, 80, 1e-9);
  const auto better = Arrange(*layout, {}, loads, 2);
  ASSERT_TRUE(better.has_value());
  EXPECT_NEAR(better->before, 80 / 41., 1e-9);
  EXPECT_NEAR(better->after, 1, 1e-9);
  EXPECT_EQ(better->cut, 0);
  ASSERT_EQ(better->ps.count("a"), 1u);
  const std::vector<int>& ps = better->ps.at("a");
  ASSERT_THAT(ps, SizeIs(4));
  EXPECT_NE(ps[0], ps[2]);
  EXPECT_NE(ps[1], ps[3]);
}

TEST(ArrangeTest, WhatIsBalancedStaysAndSoDoesWhatNobodyUses) {
  const auto layout = Layout::Empty()->With(Variable(1, "a", 10, {0, 1}));
  Loads loads;
  Give(1, {50, 48}, loads);
  EXPECT_FALSE(Arrange(*layout, {}, loads, 2).has_value());
  Give(1, {0, 0}, loads);
  EXPECT_FALSE(Arrange(*layout, {}, loads, 2).has_value());
  EXPECT_FALSE(Arrange(*layout, {}, {}, 2).has_value());
  EXPECT_FALSE(Arrange(*Layout::Empty(), {}, {}, 2).has_value());
}

TEST(ArrangeTest, AShardThatIsHotAloneIsCut) {
  const auto layout = Layout::Empty()->With(Variable(1, "a", 1000, {0, 1, 2, 3}));
  Loads loads;
  Give(1, {500, 100, 100, 100}, loads);
  const auto better = Arrange(*layout, {}, loads, 4);
  ASSERT_TRUE(better.has_value());
  EXPECT_NEAR(better->before, 2.5, 1e-9);
  EXPECT_LE(better->after, 1.1);
  EXPECT_EQ(better->cut, 1);
  EXPECT_EQ(better->moved, 0);
  const std::vector<int>& ps = better->ps.at("a");
  EXPECT_THAT(ps, SizeIs(Ge(8)));
  EXPECT_THAT(ps, Each(testing::AllOf(Ge(0), testing::Le(3))));
}

// Ids are often numbered by how frequent they are, so the first rows of a shard are busy.
TEST(ArrangeTest, ACutKnowsWhichRowsOfAShardAreBusy) {
  const auto layout = Layout::Empty()->With(Variable(1, "a", 6400, {0, 1, 2, 3}));
  Loads loads;
  Give(1, {100, 100, 100, 100}, loads);
  std::vector<double> hot(16, 2);
  hot[0] = 300, hot[1] = 150, hot[2] = 75;
  loads[{VariableId(1), 0, 0}].bytes_per_second = hot;
  const auto better = Arrange(*layout, {}, loads, 4);
  ASSERT_TRUE(better.has_value());
  EXPECT_NEAR(better->after, ImbalanceWith(*layout, loads, *better, 4), 0.01);
  EXPECT_LT(better->after, 0.7 * better->before);
}

TEST(ArrangeTest, ARowThatIsHotAloneStaysHot) {
  const auto layout =
      Layout::Empty()->With(Variable(1, "a", 1, {0}))->With(Variable(2, "b", 8, {1}));
  Loads loads;
  Give(1, {1000}, loads);
  Give(2, {1}, loads);
  EXPECT_FALSE(Arrange(*layout, {}, loads, 2).has_value());
}

TEST(ArrangeTest, AVariableBesideAnotherGoesWithItAndItsShardIsNotCut) {
  const auto layout = Layout::Empty()
                          ->With(Variable(1, "anchor", 1000, {0, 1}))
                          ->With(Variable(2, "beside", 10, {0}))
                          ->With(Variable(3, "third", 1000, {0}));
  Loads loads;
  Give(1, {10, 10}, loads);
  Give(2, {90}, loads);
  Give(3, {100}, loads);
  const auto better = Arrange(*layout, {{"beside", {"anchor", 0}}}, loads, 2);
  ASSERT_TRUE(better.has_value());
  EXPECT_EQ(better->ps.count("beside"), 0u);
  EXPECT_THAT(better->ps.at("anchor"), SizeIs(2));
  EXPECT_LE(better->after, 1.1);
}

TEST(ArrangeTest, NoServerGetsMoreThanItMayHold) {
  const auto layout = Layout::Empty()->With(Variable(1, "a", 4, {0, 0, 0, 1}));
  Loads loads;
  Give(1, {10, 10, 10, 1}, loads);
  ArrangeOptions options;
  options.room = {400, 200};
  const auto better = Arrange(*layout, {}, loads, 2, options);
  ASSERT_TRUE(better.has_value());
  const auto on_one = std::count(better->ps.at("a").begin(), better->ps.at("a").end(), 1);
  EXPECT_LE(on_one, 2);
  options.room = {100, 100};
  EXPECT_FALSE(Arrange(*layout, {}, loads, 2, options).has_value());
}

TEST(ArrangeTest, EachPartOfATableKeepsRoomForManyRows) {
  for (const auto& [max_rows, most] : {std::pair<int64_t, size_t>{3, 1}, {10'000, 2}, {0, 16}}) {
    VariableLayout table = Variable(1, "t", 65'536, {0});
    table.spec.table = TableOptions();
    table.spec.table->max_rows = max_rows;
    const auto layout = Layout::Empty()->With(table)->With(Variable(2, "b", 8, {1}));
    Loads loads;
    Give(1, {1000}, loads);
    Give(2, {1}, loads);
    const auto better = Arrange(*layout, {}, loads, 2);
    EXPECT_EQ(better.has_value(), most > 1) << max_rows;
    if (better) {
      EXPECT_LE(better->ps.at("t").size(), most) << max_rows;
    }
  }
}

TEST(ArrangeTest, VariablesThatLieBesideEachOtherInACircleAreNoCircle) {
  const auto layout =
      Layout::Empty()->With(Variable(1, "a", 100, {0}))->With(Variable(2, "b", 100, {0}));
  Loads loads;
  Give(1, {10}, loads);
  Give(2, {10}, loads);
  const auto better = Arrange(*layout, {{"a", {"b", 0}}, {"b", {"a", 0}}}, loads, 2);
  EXPECT_FALSE(better.has_value());  // b lies beside a, which is not cut
}

// Whatever the load: shards on servers that exist, and as busy as said.
TEST(ArrangeTest, KeepsItsWordForAnyLoad) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const auto below = [&random](int64_t most) {
      return static_cast<int64_t>(random.Below(static_cast<uint64_t>(most)));
    };
    const int num_ps = static_cast<int>(1 + below(6));
    auto layout = Layout::Empty();
    Loads loads;
    std::map<std::string, Colocation> colocated;
    const int64_t variables = 1 + below(8);
    for (int64_t i = 1; i <= variables; ++i) {
      const int64_t rows = 1 + below(2000), shards = 1 + below(std::min<int64_t>(rows, 6));
      std::vector<int> ps;
      std::vector<double> load;
      for (int64_t part = 0; part < shards; ++part) {
        ps.push_back(static_cast<int>(below(num_ps)));
        load.push_back(below(3) == 0 ? static_cast<double>(below(10'000)) : 0);
      }
      const std::string name = "v" + std::to_string(i);
      layout = layout->With(Variable(static_cast<uint32_t>(i), name, rows, ps));
      Give(static_cast<uint32_t>(i), load, loads);
      if (seed % 2 == 0 && i > 1 && shards == 1 && below(2) == 0)
        colocated[name] = {"v" + std::to_string(1 + below(i - 1)), static_cast<int>(below(8))};
    }
    const auto better = Arrange(*layout, colocated, loads, num_ps);
    if (!better) continue;
    EXPECT_LE(better->after, 0.9 * better->before + 1e-9);
    EXPECT_GE(better->after, 1 - 1e-9);
    for (const auto& [id, variable] : layout->variables()) {
      const auto found = better->ps.find(variable.spec.name);
      ASSERT_EQ(found == better->ps.end(), colocated.count(variable.spec.name) > 0);
      if (found == better->ps.end()) continue;
      EXPECT_GE(found->second.size(), variable.ps.size());
      EXPECT_LE(static_cast<int64_t>(found->second.size()), variable.rows());
      EXPECT_THAT(found->second, Each(testing::AllOf(Ge(0), testing::Lt(num_ps))));
    }
    if (colocated.empty()) {
      EXPECT_NEAR(better->after, ImbalanceWith(*layout, loads, *better, num_ps), 0.02);
    }
    const auto again = Arrange(*layout, colocated, loads, num_ps);
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(again->ps, better->ps);
  }
}

}  // namespace
}  // namespace divvy
