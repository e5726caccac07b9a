#include "base/recent_values.h"

#include "gtest/gtest.h"

namespace divvy {
namespace {

TEST(RecentValuesTest, NoneHaveNoQuantile) { EXPECT_EQ(RecentValues().Quantile(0.5), 0); }

TEST(RecentValuesTest, OneIsEachQuantile) {
  RecentValues values;
  values.Add(0.25);
  EXPECT_EQ(values.Quantile(0), 0.25);
  EXPECT_EQ(values.Quantile(0.5), 0.25);
  EXPECT_EQ(values.Quantile(1), 0.25);
}

TEST(RecentValuesTest, QuantilesAreThoseOfTheValues) {
  RecentValues values;
  for (int i = 100; i >= 1; --i) values.Add(i);
  EXPECT_EQ(values.Quantile(0.5), 51);
  EXPECT_EQ(values.Quantile(0.99), 100);
  EXPECT_EQ(values.Quantile(0), 1);
}

TEST(RecentValuesTest, OnlyTheLastAreKept) {
  RecentValues values;
  for (int i = 0; i < 1000; ++i) values.Add(i < 744 ? 1e9 : 1);
  EXPECT_EQ(values.Quantile(1), 1);
}

}  // namespace
}  // namespace divvy
