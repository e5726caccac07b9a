#include <map>
#include <string>
#include <vector>

#include "cluster/cluster_resolver.h"
#include "cluster/same_view.h"
#include "gtest/gtest.h"
#include "protocol/error.h"

namespace divvy {
namespace {

// ---- cluster ------------------------------------------------------------------------------------

TEST(ClusterSpecTest, KeepsHolesInTheIndices) {
  const ClusterSpec spec(
      {{"worker", {{0, "a:1"}, {3, "b:1"}}}, {"ps", {}}, {"chief", {{0, "c:1"}}}});
  EXPECT_EQ(spec.jobs(), (std::vector<std::string>{"chief", "ps", "worker"}));
  EXPECT_EQ(spec.num_tasks("worker"), 2);
  EXPECT_EQ(spec.num_tasks("ps"), 0);
  EXPECT_EQ(spec.num_tasks("evaluator"), 0);
  EXPECT_EQ(spec.task_indices("worker"), (std::vector<int>{0, 3}));
  EXPECT_EQ(*spec.task_address("worker", 3), "b:1");
  const auto tasks = spec.job_tasks("worker");
  ASSERT_EQ(tasks.size(), 4u);
  EXPECT_EQ(tasks[0], "a:1");
  EXPECT_EQ(tasks[1], std::nullopt);
  EXPECT_TRUE(spec.job_tasks("ps").empty());
  EXPECT_EQ(spec.task_address("worker", 1).status().message(),
            "job \"worker\" has no task 1; it has: 0, 3");
  EXPECT_EQ(spec.task_address("evaluator", 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(EmbeddedClusterResolverTest, DescribesTheClusterItPlays) {
  const auto chief = EmbeddedClusterResolver(2, 3);
  EXPECT_EQ(chief->task_type(), "chief");
  EXPECT_EQ(chief->task_id(), 0);
  EXPECT_EQ(chief->rpc_layer(), "grpc");
  EXPECT_EQ(chief->environment(), "");
  EXPECT_EQ(*chief->master(), "embedded:chief/0");
  EXPECT_EQ(*chief->master("ps", 1), "embedded:ps/1");
  EXPECT_FALSE(chief->master("ps", 2).ok());
  EXPECT_EQ(chief->cluster_spec()->num_tasks("worker"), 3);
  EXPECT_TRUE(chief->num_accelerators()->empty());
  EXPECT_FALSE(chief->num_accelerators("worker", 9).ok());
  EXPECT_EQ(*EmbeddedClusterResolver(1, 2, "worker", 1)->master(), "embedded:worker/1");
}

TEST(EmbeddedClusterResolverTest, KnowsTheAcceleratorsOfItsOwnTask) {
  const auto worker = WithAccelerators(EmbeddedClusterResolver(1, 2, "worker", 1), {{"GPU", 2}});
  const std::map<std::string, int> own = {{"GPU", 2}};
  EXPECT_EQ(worker->num_accelerators().value(), own);
  EXPECT_EQ(worker->num_accelerators("worker", 1).value(), own);
  EXPECT_TRUE(worker->num_accelerators("worker", 0)->empty());
  EXPECT_TRUE(worker->num_accelerators("ps", 0)->empty());
  EXPECT_FALSE(worker->num_accelerators("worker", 2).ok());
  EXPECT_EQ(*worker->master(), "embedded:worker/1");
}

TEST(SameViewTest, KnowingLessIsFineAndAContradictionIsNot) {
  const ClusterView own{{"ps", {{0, "a:1"}, {1, "b:1"}}}, {"worker", {{0, "c:1"}}}};
  EXPECT_EQ(CheckSameView(own, own, "worker 1"), absl::OkStatus());
  EXPECT_EQ(CheckSameView(own, {}, "ps 1"), absl::OkStatus());
  EXPECT_EQ(CheckSameView({}, own, "ps 1"), absl::OkStatus());
  EXPECT_EQ(CheckSameView(own, {{"ps", {{1, "b:1"}}}, {"worker", {{7, "d:1"}}}}, "ps 1"),
            absl::OkStatus());
  const absl::Status refused =
      CheckSameView(own, {{"ps", {{1, "x:9"}}}, {"worker", {{5, "c:1"}}}}, "worker 5");
  EXPECT_EQ(ReasonOf(refused), Reason::kClusterMismatch);
  EXPECT_EQ(refused.message(),
            "worker 5 knows another cluster: cluster.ps[1] is \"x:9\" there and \"b:1\" here; "
            "\"c:1\" is cluster.worker[5] there and cluster.worker[0] here. "
            "Give all tasks the same TF_CONFIG");
}

}  // namespace
}  // namespace divvy
