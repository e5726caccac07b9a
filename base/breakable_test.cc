// Compiled with -DDIVVY_BREAKABLE. base_test.cc checks the build without it.
#include "base/breakable.h"

#include "gtest/gtest.h"

namespace divvy {
namespace {

TEST(BreakableTest, EveryRuleHoldsUntilItIsBrokenAndAgainWhenItIsMended) {
  constexpr Rule kRules[kNumRules] = {Rule::kDedupe, Rule::kSessionCheck, Rule::kWaitForFence,
                                      Rule::kOpenContainsInFlight};
  for (const Rule broken : kRules) {
    SetRuleBroken(broken, true);
    for (const Rule rule : kRules) EXPECT_EQ(RuleHolds(rule), rule != broken);
    SetRuleBroken(broken, false);
    for (const Rule rule : kRules) EXPECT_TRUE(RuleHolds(rule));
  }
}

}  // namespace
}  // namespace divvy
