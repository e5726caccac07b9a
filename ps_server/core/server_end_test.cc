#include "ps_server/core/server_end.h"

#include "base/exit_codes.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

TEST(ServerEndTest, ServesUntilItIsToldToEnd) {
  ServerEnd end;
  EXPECT_FALSE(end.is_draining());
  EXPECT_FALSE(end.is_ending());
  EXPECT_FALSE(end.TakeExit());
}

TEST(ServerEndTest, TheFirstEndCounts) {
  ServerEnd end;
  end.Begin(3, "lost the job");
  end.Begin(0, "");
  const auto exit = end.TakeExit();
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->code, 3);
  EXPECT_EQ(exit->why, "lost the job");
}

TEST(ServerEndTest, TheExitIsGivenOnce) {
  ServerEnd end;
  end.Begin(0, "");
  EXPECT_TRUE(end.TakeExit());
  EXPECT_FALSE(end.TakeExit());
  EXPECT_TRUE(end.is_ending());
}

TEST(ServerEndTest, ADrainEndsWhenItIsComplete) {
  ServerEnd end;
  EXPECT_TRUE(end.StartDrain());
  EXPECT_TRUE(end.is_draining());
  EXPECT_FALSE(end.TakeExit());
  end.CompleteDrain();
  EXPECT_FALSE(end.is_draining());
  const auto exit = end.TakeExit();
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->code, exit_codes::kDrained);
  EXPECT_EQ(exit->why, "asked to end");
}

TEST(ServerEndTest, AShutdownOvertakesADrain) {
  ServerEnd end;
  EXPECT_TRUE(end.StartDrain());
  end.Begin(0, "");
  end.CompleteDrain();
  EXPECT_FALSE(end.is_draining());
  EXPECT_EQ(end.TakeExit()->code, 0);
}

TEST(ServerEndTest, DrainsOnceAndNotBehindAnEnd) {
  ServerEnd end;
  EXPECT_TRUE(end.StartDrain());
  EXPECT_FALSE(end.StartDrain());
  ServerEnd ended;
  ended.Begin(0, "");
  EXPECT_FALSE(ended.StartDrain());
}

}  // namespace
}  // namespace divvy
