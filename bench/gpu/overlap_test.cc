#include "bench/gpu/overlap.h"

#include "gtest/gtest.h"

namespace divvy::bench {
namespace {

TEST(HiddenPartTest, IsZeroWhereOneFollowsTheOther) {
  EXPECT_DOUBLE_EQ(HiddenPart(3, 5, 8), 0);
  EXPECT_NEAR(HiddenPart(0.08, 2.9, 2.98), 0, 1e-12)
      << "a copy that is much shorter than the computation is not hidden just because the total is "
         "hardly longer";
}

TEST(HiddenPartTest, IsOneWhereTheShorterCostsNothing) {
  EXPECT_DOUBLE_EQ(HiddenPart(3, 5, 5), 1);
  EXPECT_DOUBLE_EQ(HiddenPart(5, 3, 5), 1);
}

TEST(HiddenPartTest, IsThePartOfTheShorterThatIsHidden) {
  EXPECT_DOUBLE_EQ(HiddenPart(4, 10, 11), 0.75);
}

TEST(HiddenPartTest, IsBelowZeroWhereTheTwoHinderEachOther) {
  EXPECT_DOUBLE_EQ(HiddenPart(4, 10, 16), -0.5);
}

TEST(ComputationsPerCopyTest, MakesBothAboutAsLong) {
  EXPECT_EQ(ComputationsPerCopy(1.3, 0.34), 4);
  EXPECT_EQ(ComputationsPerCopy(0.1, 5), 1);
}

}  // namespace
}  // namespace divvy::bench
