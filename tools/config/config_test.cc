#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/config/describe_cluster.h"

namespace divvy {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Described(const std::string& tf_config, ClusterFlags flags = {}) {
  ClusterConfigSources sources;
  sources.tf_config = tf_config;
  sources.flags = flags;
  return DescribeCluster(sources).text;
}

TEST(DescribeClusterTest, EveryTaskHasItsLineAndThisOneAStar) {
  EXPECT_EQ(
      Described(
          R"({"cluster":{"chief":["h0:2222"],"evaluator":["h9:2222"],"ps":["h3:2222","h4:2222"],"worker":["h1:2222","h2:2222"]},)"
          R"("task":{"type":"worker","index":1},"job":{}})"),
      "cluster 358434d9ff7b75b8 (from TF_CONFIG): 1 chief, 2 ps, 2 workers; * is this task\n"
      "  chief 0      h0:2222  runs the program; waits for 2 ps and for workers\n"
      "  evaluator 0  h9:2222  reads checkpoints; no task connects to it\n"
      "  ps 0         h3:2222  holds variables; registers with h0:2222\n"
      "  ps 1         h4:2222  holds variables; registers with h0:2222\n"
      "  worker 0     h1:2222  runs steps; registers with h0:2222\n"
      "* worker 1     h2:2222  runs steps; registers with h0:2222\n"
      "note: TF_CONFIG: not read: \"job\"\n"
      "note: evaluators are in the cluster, but nobody dials them: they read checkpoints\n"
      "no problem found\n");
}

TEST(DescribeClusterTest, WhatCouldBeReadIsShownAboveEverythingThatIsWrong) {
  ClusterConfigSources sources;
  sources.tf_config =
      R"({"cluster":{"ps":["h3","h4:2222"],"wroker":["h1:2222"]},"task":{"type":"PS","index":1}})";
  const ClusterDescription description = DescribeCluster(sources);
  EXPECT_FALSE(description.can_run);
  EXPECT_EQ(description.text,
            "cluster d5d2cb98ae834055 (from TF_CONFIG): 0 chiefs, 2 ps, 0 workers; * is this task\n"
            "  ps 0      h3         holds variables; waits until the coordinator dials it\n"
            "  ps 1      h4:2222    holds variables; waits until the coordinator dials it\n"
            "  wroker 0  h1:2222    has an unknown role\n"
            "* PS 1      not in it  has an unknown role\n"
            "wrong: cluster.ps[0] is \"h3\": it has no port: write \"h3:2222\"\n"
            "wrong: cluster has the job \"wroker\": it is written \"worker\"\n"
            "wrong: task.type is \"PS\": it is written \"ps\"\n"
            "3 things are wrong: no task would start\n");
}

TEST(DescribeClusterTest, ASparseParameterServerSeesItselfAndTheCoordinator) {
  EXPECT_THAT(
      Described(R"({"cluster":{"ps":["a:1"],"worker":{}},"task":{"type":"ps","index":3}})",
                {{}, {}, "c:1", {}}),
      HasSubstr("* ps 3  a:1      holds variables; registers with c:1\nno problem found\n"));
}

TEST(DescribeClusterTest, WhereNothingIsSaidTheClusterIsOneProcess) {
  const ClusterDescription description = DescribeCluster({});
  EXPECT_TRUE(description.can_run);
  EXPECT_EQ(description.text,
            "no TF_CONFIG, --cluster_file, CLUSTER_SPEC or flag names a cluster: all tasks run "
            "in one process\n");
}

TEST(DescribeClusterTest, ManyTasksAreCutShortAndThisOneIsShown) {
  std::string workers = "\"w0:1\"";
  for (int i = 1; i < 1000; ++i) workers += ",\"w" + std::to_string(i) + ":1\"";
  const std::string text = Described(R"({"cluster":{"ps":["p:1"],"worker":[)" + workers +
                                     R"(]},"task":{"type":"worker","index":700}})");
  EXPECT_THAT(text, HasSubstr("\n* worker 700  w700:1       runs steps"));
  EXPECT_THAT(text, HasSubstr("\n  worker ...  1000 in all\n"));
  EXPECT_THAT(text, Not(HasSubstr("worker 64 ")));
}

TEST(DescribeClusterTest, WhatIsNoTextCannotForgeALine) {
  EXPECT_THAT(Described("{\"cluster\":{\"a\\nno problem found\":[\"b:1\"]}}"),
              HasSubstr("a\\x0ano problem found 0"));
}

}  // namespace
}  // namespace divvy
