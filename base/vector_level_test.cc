#include "base/vector_level.h"

#include "gtest/gtest.h"

namespace divvy {
namespace {

TEST(VectorLevelTest, RunsTheBodyOnceAtEveryLevel) {
  const VectorLevel best = BestVectorLevel();
  EXPECT_EQ(CurrentVectorLevel(), best);
  for (const VectorLevel level : {VectorLevel::kBase, VectorLevel::kAvx2, VectorLevel::kAvx512}) {
    if (level > best) continue;
    SetVectorLevel(level);
    EXPECT_EQ(CurrentVectorLevel(), level);
    int runs = 0;
    AtVectorLevel([&] { ++runs; });
    EXPECT_EQ(runs, 1) << VectorLevelName(level);
  }
  SetVectorLevel(best);
}

}  // namespace
}  // namespace divvy
