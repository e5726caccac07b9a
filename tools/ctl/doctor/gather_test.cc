#include "tools/ctl/doctor/gather.h"

#include <sys/stat.h>
#include <unistd.h>

#include <deque>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "coordinator/checkpoint/testing/some_checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/divvy.grpc.pb.h"
#include "rpc/server.h"
#include "rpc/wall_time.h"
#include "tools/ctl/certs.h"

namespace divvy::doctor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A new empty directory.
std::string Folder(const char* name) {
  const std::string path = absl::StrCat(testing::TempDir(), "/", name);
  EXPECT_TRUE(FileSystem::Real().CreateDirectory(path).ok());
  return path;
}

TEST(DoctorGatherTest, ADirectoryWithAWholeCheckpoint) {
  const std::string path = Folder("whole");
  WriteSomeCheckpoint(FileSystem::Real(), path + "/ckpt-1-2", 7);
  const DirectoryFacts facts = LookAtDirectory(path + "/");
  EXPECT_EQ(facts.path, path);
  EXPECT_TRUE(facts.state.ok());
  EXPECT_TRUE(facts.writable.ok()) << facts.writable;
  EXPECT_GT(facts.free_bytes, 0u);
  EXPECT_GE(facts.total_bytes, facts.free_bytes);
  EXPECT_LT(absl::AbsDuration(facts.clock_ahead), absl::Seconds(5));
  ASSERT_EQ(facts.checkpoints.size(), 1u);
  EXPECT_EQ(facts.checkpoints[0].name, "ckpt-1-2");
  EXPECT_TRUE(facts.checkpoints[0].state.ok()) << facts.checkpoints[0].state;
  EXPECT_THAT(facts.checkpoints[0].missing_files, IsEmpty());
  EXPECT_GT(facts.checkpoints[0].bytes, 0u);
  EXPECT_LT(facts.checkpoints[0].age, absl::Hours(1));
  const auto names = FileSystem::Real().ListDirectory(path);
  ASSERT_TRUE(names.ok());
  EXPECT_THAT(*names, testing::Each(Not(HasSubstr("doctor")))) << "the file that it wrote is gone";
}

TEST(DoctorGatherTest, FilesThatAnIndexNamesAndThatAreNotThere) {
  const std::string path = Folder("unshared");
  WriteSomeCheckpoint(FileSystem::Real(), path + "/ckpt-1-2", 7);
  ASSERT_TRUE(FileSystem::Real().Remove(path + "/ckpt-1-2.data-00001-of-00002").ok());
  DirectoryFacts facts = LookAtDirectory(path);
  EXPECT_FALSE(facts.checkpoints[0].state.ok());
  EXPECT_THAT(facts.checkpoints[0].missing_files, ElementsAre("ckpt-1-2.data-00001-of-00002"));
  ASSERT_TRUE(FileSystem::Real().Remove(path + "/ckpt-1-2.data-00000-of-00002").ok());
  facts = LookAtDirectory(path);
  EXPECT_THAT(facts.checkpoints[0].missing_files, ElementsAre("ckpt-1-2.data-*"));
}

TEST(DoctorGatherTest, AMissingDirectoryIsMadeAndThenFound) {
  const std::string path = absl::StrCat(Folder("parent"), "/made");
  EXPECT_TRUE(absl::IsNotFound(LookAtDirectory(path).state));
  Finding finding;
  EXPECT_FALSE(Mend(finding).ok());
  finding.fix = Finding::Fix::kMakeDirectory;
  finding.path = path;
  EXPECT_EQ(*Mend(finding),
            "made the directory " + path + ": check that this is the shared volume");
  EXPECT_TRUE(LookAtDirectory(path).state.ok());
}

TEST(DoctorGatherTest, ADirectoryIsNotMadeWhereItsParentIsMissing) {
  Finding finding;
  finding.fix = Finding::Fix::kMakeDirectory;
  finding.path = absl::StrCat(testing::TempDir(), "/volume/that/is/not/mounted");
  EXPECT_THAT(std::string(Mend(finding).status().message()), HasSubstr("mount the volume"));
  EXPECT_FALSE(FileSystem::Real().Stat(absl::StrCat(testing::TempDir(), "/volume")).ok());
}

TEST(DoctorGatherTest, CertificatesAndAnOpenKey) {
  CertsOptions options;
  options.out = Folder("certs");
  options.lifetime = absl::Hours(48);
  ASSERT_TRUE(WriteCertificates(options, FileSystem::Real()).ok());
  TlsFiles files;
  files.cert = options.out + "/ps-0.pem";
  files.key = options.out + "/ps-0.key";
  files.ca = options.out + "/ca.pem";
  ASSERT_EQ(chmod(files.key.c_str(), 0644), 0);
  CertificateFacts facts = LookAtCertificates(files);
  EXPECT_THAT(facts.problems, IsEmpty());
  ASSERT_TRUE(facts.end);
  EXPECT_LT(absl::AbsDuration(*facts.end - Clock::Real().WallTime() - options.lifetime),
            absl::Minutes(10));
  EXPECT_EQ(*facts.key_mode & 07777, 0644u);

  Finding finding;
  finding.fix = Finding::Fix::kCloseKey;
  finding.path = files.key;
  const absl::StatusOr<std::string> closed = Mend(finding);
  if (geteuid() == 0) {
    EXPECT_FALSE(facts.key_is_own);
    EXPECT_TRUE(absl::IsPermissionDenied(closed.status())) << closed.status();
    EXPECT_EQ(*LookAtCertificates(files).key_mode & 07777, 0644u);
  } else {
    EXPECT_TRUE(facts.key_is_own);
    EXPECT_EQ(*closed,
              absl::StrCat("set the mode of ", files.key, " to 0640; make a new key, too"));
    EXPECT_EQ(*LookAtCertificates(files).key_mode & 07777, 0640u);
  }

  files.key = options.out + "/ps-1.key";
  files.cert = options.out + "/missing.pem";
  facts = LookAtCertificates(files);
  EXPECT_THAT(facts.problems, Not(IsEmpty()));
  EXPECT_FALSE(facts.end);
}

TEST(DoctorGatherTest, WorkersOfTheOwnHost) {
  ClusterConfigSources sources;
  EXPECT_EQ(WorkersOnThisHost(sources), 0);
  EXPECT_FALSE(LookAtConfig(sources));
  sources.tf_config =
      R"({"cluster": {"chief": ["a:1"], "ps": ["a:2"], "worker": ["a:3", "b:3", "a:4"]},
          "task": {"type": "worker", "index": 0}})";
  EXPECT_EQ(WorkersOnThisHost(sources), 2);
  EXPECT_THAT(LookAtConfig(sources)->problems, IsEmpty());
  sources.tf_config = "{";
  EXPECT_THAT(LookAtConfig(sources)->problems, Not(IsEmpty()));
}

TEST(DoctorGatherTest, ThisMachine) {
  const MachineFacts machine = LookAtMachine(3);
  EXPECT_GE(machine.cores, 1);
  EXPECT_EQ(machine.workers, 3);
}

// A coordinator whose steps finish when the test says so, with a clock of its own.
class Coordinator : public v1::Admin::CallbackService {
 public:
  int64_t steps_of_each_answer = 0;
  // What the next answers say instead, while there are any.
  std::deque<int64_t> finished;
  bool has_clock = true;

 private:
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest*, v1::TaskStatus* reply) override {
    reply->set_job(v1::CHIEF);
    reply->mutable_coordinator()->set_in_flight(1);
    reply->mutable_coordinator()->set_finished_steps(++answers_ * steps_of_each_answer);
    if (!finished.empty()) {
      reply->mutable_coordinator()->set_finished_steps(finished.front());
      finished.pop_front();
    }
    if (has_clock)
      context->AddTrailingMetadata(
          kWallTimeKey, absl::StrCat(absl::ToUnixNanos(Clock::Real().WallTime() + absl::Hours(1))));
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  int64_t answers_ = 0;
};

class DoctorTasksTest : public testing::Test {
 protected:
  void SetUp() override {
    ServerOptions server;
    server.address = "127.0.0.1:0";
    auto started = Server::Start(server, {&coordinator_}, nullptr);
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
    options_.addresses = {absl::StrCat("127.0.0.1:", server_->port())};
    options_.credentials = MakeChannelCredentials(std::nullopt, "");
    options_.timeout = absl::Seconds(30);
  }

  Coordinator coordinator_;
  std::unique_ptr<Server> server_;
  StatusOptions options_;
};

TEST_F(DoctorTasksTest, TheClockOfATaskIsCompared) {
  std::optional<ProgressFacts> progress;
  std::vector<TaskFacts> tasks = LookAtTasks(options_, absl::ZeroDuration(), progress);
  ASSERT_TRUE(tasks[0].status.ok()) << tasks[0].status;
  EXPECT_GT(*tasks[0].clock_ahead, absl::Minutes(59));
  EXPECT_LE(*tasks[0].clock_ahead, absl::Hours(1));
  coordinator_.has_clock = false;
  tasks = LookAtTasks(options_, absl::ZeroDuration(), progress);
  EXPECT_EQ(tasks[0].clock_ahead, std::nullopt) << "an older build";
}

TEST_F(DoctorTasksTest, StepsAreWatchedUntilOneFinishes) {
  std::optional<ProgressFacts> progress;
  LookAtTasks(options_, absl::Milliseconds(1), progress);
  ASSERT_TRUE(progress);
  EXPECT_EQ(progress->finished_steps, 0);
  EXPECT_GT(progress->watched, absl::ZeroDuration());
  coordinator_.steps_of_each_answer = 3;
  LookAtTasks(options_, absl::Hours(1), progress);
  EXPECT_EQ(progress->finished_steps, 3);
}

TEST_F(DoctorTasksTest, ACoordinatorThatIsStartedAgainIsWatchedAnew) {
  coordinator_.finished = {100, 5, 9};
  std::optional<ProgressFacts> progress;
  LookAtTasks(options_, absl::Hours(1), progress);
  ASSERT_TRUE(progress);
  EXPECT_EQ(progress->finished_steps, 4);
}

}  // namespace
}  // namespace divvy::doctor
