#include "task/version_line.h"

#include "gtest/gtest.h"

namespace divvy {
namespace {

TEST(VersionLineTest, NamesTheCommitOnlyIfTheBuildKnowsIt) {
  EXPECT_EQ(VersionLine("divvyctl", "529a9564"), "divvyctl 0.1.0 (commit 529a9564)\n");
  EXPECT_EQ(VersionLine("divvyctl", ""), "divvyctl 0.1.0\n");
}

}  // namespace
}  // namespace divvy
