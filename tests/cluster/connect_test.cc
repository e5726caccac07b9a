// A program with its own main: Connect to tasks that run elsewhere. Here they are servers of this
// process on free ports.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/testing/loopback_port.h"
#include "divvy.h"
#include "formats/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "program/main.h"
#include "ps_server/service/ps_task.h"
#include "worker/service/worker_task.h"

namespace divvy {
namespace {

using ::testing::HasSubstr;

absl::Status AddOne(WorkerContext& worker) {
  ASSIGN_OR_RETURN(Variable counter, worker.strategy().FindVariable("counter"));
  return counter.AssignAdd(Tensor::Scalar(1.0f));
}
const Step kAddOne("connect_test/add_one", AddOne);

// The exit code that the coordinator sent to a task.
class Told {
 public:
  OnExit Listener() {
    return [this](int code, const std::string&) {
      MutexLock lock(mu_);
      code_ = code;
      changed_.NotifyAll();
    };
  }
  int Wait() {
    MutexLock lock(mu_);
    changed_.WaitFor(mu_, absl::Seconds(30),
                     [this]() DIVVY_REQUIRES(mu_) { return code_.has_value(); });
    return code_.value_or(-1);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::optional<int> code_ DIVVY_GUARDED_BY(mu_);
};

class ConnectTest : public testing::Test {
 protected:
  void SetUp() override {
    PsTaskOptions ps;
    ps.task.role = Role::kPs;
    ps_ = *PsTask::Start(ps, ps_told_.Listener());
    WorkerTaskOptions worker;
    worker.task.role = Role::kWorker;
    worker_ = *WorkerTask::Start(worker, worker_told_.Listener());
  }
  std::unique_ptr<ClusterResolver> Resolver(const std::string& task_type = "chief") const {
    return *SimpleClusterResolver(
        absl::StrCat(R"({"chief":[")", port_.address(), R"("],"ps":[")", ps_->address(),
                     R"("],"worker":[")", worker_->address(), R"("]})"),
        task_type, 0);
  }
  static absl::StatusOr<float> Count(Coordinator& coordinator, int steps) {
    for (int i = 0; i < steps; ++i) RETURN_IF_ERROR(coordinator.Schedule(kAddOne).status());
    RETURN_IF_ERROR(coordinator.Join());
    ASSIGN_OR_RETURN(const Variable counter, coordinator.strategy().FindVariable("counter"));
    ASSIGN_OR_RETURN(const Tensor value, counter.Read());
    return value.data_as<float>()[0];
  }

  const LoopbackPort port_ = *LoopbackPort::Reserve();  // for the chief
  Told ps_told_, worker_told_;
  std::unique_ptr<PsTask> ps_;
  std::unique_ptr<WorkerTask> worker_;
};

TEST_F(ConnectTest, RunsStepsOnTheClusterAndTheEndOfTheJobReachesEveryTask) {
  auto resolver = Resolver();
  const ClusterResolver* const mine = resolver.get();
  auto coordinator = Connect(std::move(resolver), StrategyOptions());
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  EXPECT_EQ((*coordinator)->strategy().cluster_resolver(), mine);
  ASSERT_TRUE((*coordinator)->strategy().CreateVariable({"counter", {}}).ok());
  EXPECT_EQ(*Count(**coordinator, 20), 20);
  // No task has a checkpoint directory, but the model can still be exported.
  const std::string exported = absl::StrCat(testing::TempDir(), "/counter.safetensors");
  ASSERT_EQ((*coordinator)->Export(exported), absl::OkStatus());
  const auto file = SafetensorsReader::Open(FileSystem::Real(), exported);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*(*file)->ReadTensor("counter")->scalar<float>(), 20);
  EXPECT_TRUE((*coordinator)->Finish(absl::OkStatus()).ok());
  EXPECT_EQ(worker_told_.Wait(), 0);
  EXPECT_EQ(ps_told_.Wait(), 0);
}

TEST_F(ConnectTest, ACoordinatorThatGoesWithoutFinishLeavesTheClusterToTheNext) {
  {
    auto first = Connect(Resolver(), StrategyOptions());
    ASSERT_TRUE(first.ok()) << first.status();
  }
  // Without --job_name and --state_dir, this begins another job.
  const auto other_job = Connect(Resolver(), StrategyOptions());
  EXPECT_FALSE(other_job.ok());
  EXPECT_THAT(std::string(other_job.status().message()), HasSubstr("--state_dir"));
}

TEST_F(ConnectTest, AResolverOfAnotherRoleAndAClusterWithoutPsAreRefused) {
  const absl::Status worker = Connect(Resolver("worker"), StrategyOptions()).status();
  EXPECT_EQ(worker.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(worker.message()), HasSubstr("this is a worker"));
  const absl::Status empty =
      Connect(*SimpleClusterResolver("{}", "chief", 0), StrategyOptions()).status();
  EXPECT_EQ(empty.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Connect(nullptr, StrategyOptions()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace divvy
