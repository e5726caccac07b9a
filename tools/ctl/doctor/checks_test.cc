// One test for each check: it finds the fault, and nothing in a cluster that is well.
#include "tools/ctl/doctor/checks.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy::doctor {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TaskFacts Task(v1::Job job, int index) {
  TaskFacts task;
  task.address = absl::StrCat("host-", job, "-", index, ":2222");
  task.name = "?";
  task.task.set_job(job);
  task.task.set_index(index);
  task.task.set_job_id(7);
  task.task.set_build("0.1.0 abc");
  task.clock_ahead = absl::ZeroDuration();
  if (job == v1::CHIEF) {
    task.task.mutable_coordinator()->set_finished_steps(100);
    task.task.mutable_coordinator()->set_durable_steps(90);
    task.task.mutable_coordinator()->set_last_checkpoint("ckpt-1-2");
    task.task.mutable_coordinator()->mutable_checkpoints()->set_interval_ns(
        absl::ToInt64Nanoseconds(absl::Minutes(10)));
    task.task.set_state("running");
    task.task.set_state_ns(absl::ToInt64Nanoseconds(absl::Hours(10)));
  }
  if (job == v1::PS) {
    task.task.mutable_ps()->set_memory_bytes(50 << 20);
    task.task.mutable_ps()->set_memory_limit_bytes(100 << 20);
  }
  if (job == v1::WORKER) task.task.mutable_worker();
  return task;
}

// A cluster with nothing wrong.
Facts Well() {
  Facts facts;
  facts.now = absl::FromUnixSeconds(1'000'000);
  facts.config = ConfigFacts{"TF_CONFIG", {}};
  facts.tasks = {Task(v1::CHIEF, 0), Task(v1::PS, 0), Task(v1::WORKER, 0)};
  facts.progress = ProgressFacts{absl::Seconds(1), 5};
  DirectoryFacts directory;
  directory.path = "/ckpt";
  directory.free_bytes = uint64_t{50} << 30;
  directory.total_bytes = uint64_t{100} << 30;
  DirectoryFacts::Checkpoint checkpoint;
  checkpoint.name = "ckpt-1-2";
  checkpoint.bytes = uint64_t{1} << 30;
  checkpoint.age = absl::Minutes(3);
  directory.checkpoints = {checkpoint};
  facts.checkpoints = directory;
  CertificateFacts certificates;
  certificates.cert = "/certs/ps-0.pem";
  certificates.key = "/certs/ps-0.key";
  certificates.end = facts.now + absl::Hours(24 * 100);
  certificates.key_mode = 0100600;
  certificates.key_is_own = true;
  facts.certificates = certificates;
  facts.machine = {8, 2, false, uint64_t{64} << 20};
  facts.blas_threads = 4;
  return facts;
}

v1::CoordinatorStatus& Job(Facts& facts) { return *facts.tasks[0].task.mutable_coordinator(); }

int64_t Ns(absl::Duration duration) { return absl::ToInt64Nanoseconds(duration); }

// The only finding.
Finding Only(const Facts& facts) {
  const std::vector<Finding> findings = Examine(facts);
  EXPECT_THAT(findings, SizeIs(1));
  return findings.empty() ? Finding() : findings[0];
}

TEST(DoctorChecksTest, NothingIsFoundWhereNothingIsWrong) {
  EXPECT_THAT(Examine(Well()), IsEmpty());
  EXPECT_THAT(Examine(Facts()), IsEmpty()) << "nothing was looked at";
}

TEST(DoctorChecksTest, EachFindingSaysWhatWhyAndWhatMendsIt) {
  Facts facts = Well();
  facts.config->problems = {"a"};
  facts.tasks[0].task.set_build("other");
  facts.tasks[1].status = absl::UnavailableError("gone");
  facts.tasks[2].clock_ahead = absl::Hours(1);
  facts.progress->finished_steps = 0;
  Job(facts).set_oldest_step_ns(Ns(absl::Hours(1)));
  facts.tasks[0].task.add_findings()->set_text("hot");
  facts.checkpoints->free_bytes = 0;
  facts.checkpoints->checkpoints[0].age = absl::Hours(9);
  facts.certificates->key_mode = 0644;
  facts.blas_threads = 99;
  const std::vector<Finding> findings = Examine(facts);
  EXPECT_THAT(findings, SizeIs(10));
  for (const Finding& finding : findings) {
    EXPECT_FALSE(finding.what.empty() || finding.why.empty() || finding.mend.empty());
    EXPECT_EQ(finding.path.empty(), finding.fix == Finding::Fix::kNone) << finding.what;
  }
}

TEST(DoctorChecksTest, Config) {
  Facts facts = Well();
  facts.config->problems = {"no chief", "ps is no list"};
  EXPECT_THAT(Examine(facts),
              ElementsAre(Field(&Finding::what, "TF_CONFIG is wrong: no chief"),
                          Field(&Finding::what, "TF_CONFIG is wrong: ps is no list")));
}

TEST(DoctorChecksTest, Unreachable) {
  Facts facts = Well();
  facts.tasks[1].status = absl::UnavailableError("connection refused");
  facts.tasks[1].name = "ps 0";
  const Finding finding = Only(facts);
  EXPECT_THAT(finding.what, AllOf(HasSubstr("ps 0 ("), HasSubstr("does not answer")));
  EXPECT_EQ(finding.why, "connection refused");
  EXPECT_THAT(finding.mend, HasSubstr("divvyctl health --addr="));
}

TEST(DoctorChecksTest, WrongTask) {
  Facts facts = Well();
  facts.tasks[1].name = "ps 0";
  EXPECT_THAT(Examine(facts), IsEmpty());
  facts.tasks[1].name = "ps 1";
  EXPECT_THAT(Only(facts).what, HasSubstr("is ps 0, and TF_CONFIG has ps 1 there"));
}

TEST(DoctorChecksTest, WrongJob) {
  Facts facts = Well();
  facts.tasks[2].task.set_job_id(0);
  EXPECT_THAT(Examine(facts), IsEmpty()) << "it has not met a coordinator yet";
  facts.tasks[2].task.set_job_id(8);
  EXPECT_THAT(Only(facts).what, HasSubstr("belongs to job 0000000000000008, and the coordinator "
                                          "to 0000000000000007"));
}

TEST(DoctorChecksTest, OtherBuild) {
  Facts facts = Well();
  facts.tasks[1].task.set_build("0.0.9 def");
  const Finding finding = Only(facts);
  EXPECT_EQ(finding.what, "tasks run 2 builds");
  EXPECT_THAT(finding.why, HasSubstr("0.0.9 def: ps 0 ("));
}

TEST(DoctorChecksTest, Clocks) {
  Facts facts = Well();
  facts.tasks[0].clock_ahead = std::nullopt;
  facts.tasks[1].clock_ahead = absl::Seconds(-4);
  EXPECT_THAT(Examine(facts), IsEmpty()) << "an older build, and a small difference";
  facts.tasks[1].clock_ahead = absl::Seconds(-90);
  EXPECT_THAT(Only(facts).what, HasSubstr("is 1m30s behind this machine's"));
  facts.tasks[1].clock_ahead = absl::ZeroDuration();
  facts.checkpoints->clock_ahead = absl::Hours(2);
  EXPECT_EQ(Only(facts).what,
            "the clock of the file server of /ckpt is 2h ahead of this machine's");
}

TEST(DoctorChecksTest, Stalled) {
  Facts facts = Well();
  facts.progress = ProgressFacts{absl::Seconds(20), 0};
  Job(facts).set_oldest_step_ns(Ns(absl::Minutes(9)));
  EXPECT_THAT(Examine(facts), IsEmpty()) << "a step may take as long";
  Job(facts).set_oldest_step_ns(Ns(absl::Minutes(11)));
  EXPECT_EQ(Only(facts).what, "no step finished within 20s, and the oldest is 11m old");
  v1::TaskStatus::Wait& wait = *facts.tasks[0].task.add_waits();
  wait.set_text("step train on worker 0");
  wait.set_since_ns(Ns(absl::Minutes(2)));
  EXPECT_THAT(Examine(facts), IsEmpty()) << "it waited in the queue, behind a step that runs";
  wait.set_since_ns(Ns(absl::Minutes(11)));
  EXPECT_THAT(Only(facts).what, HasSubstr("no step finished"));
  facts.tasks[0].task.clear_waits();
  facts.progress.reset();
  EXPECT_THAT(Examine(facts), IsEmpty()) << "there is no step to run";
}

TEST(DoctorChecksTest, FoundByTheCoordinator) {
  using Found = v1::TaskStatus::Finding;
  const std::pair<Found::Kind, const char*> mends[] = {{Found::MEMORY_FORECAST, "divvyctl resize"},
                                                       {Found::HOT_PS, "divvyctl rebalance"},
                                                       {Found::STRAGGLER, "replace the worker"},
                                                       {Found::INPUT_BOUND, "prefetch"},
                                                       {Found::KIND_NONE, "The status page"}};
  for (const auto& [kind, mend] : mends) {
    Facts facts = Well();
    Found& found = *facts.tasks[0].task.add_findings();
    found.set_kind(kind);
    found.set_job(v1::PS);
    found.set_index(3);
    found.set_text("something");
    EXPECT_EQ(Only(facts).what, "ps 3: something");
    EXPECT_THAT(Only(facts).mend, HasSubstr(mend));
  }
  Facts facts = Well();
  facts.tasks[1].task.add_findings()->set_text("the coordinator tells it, too");
  EXPECT_THAT(Examine(facts), IsEmpty());
}

TEST(DoctorChecksTest, LongWaits) {
  Facts facts = Well();
  v1::TaskStatus::Wait& wait = *facts.tasks[2].task.add_waits();
  wait.set_text("ps 1");
  wait.set_since_ns(absl::ToInt64Nanoseconds(absl::Seconds(59)));
  EXPECT_THAT(Examine(facts), IsEmpty());
  wait.set_since_ns(absl::ToInt64Nanoseconds(absl::Seconds(61)));
  const Finding finding = Only(facts);
  EXPECT_THAT(finding.what, HasSubstr("has waited for 1m1s"));
  EXPECT_EQ(finding.why, "ps 1");
  wait.set_text("step train on worker 1");
  EXPECT_THAT(Examine(facts), IsEmpty()) << "a worker computes";
}

TEST(DoctorChecksTest, FullTables) {
  Facts facts = Well();
  v1::CoordinatorStatus::Table& table = *facts.tasks[0].task.mutable_coordinator()->add_tables();
  table.set_name("user");
  EXPECT_THAT(Examine(facts), IsEmpty());
  table.mutable_stats()->set_refused(3);
  EXPECT_EQ(Only(facts).what, "table user has been full");
}

TEST(DoctorChecksTest, Budget) {
  Facts facts = Well();
  facts.tasks[1].task.mutable_ps()->set_memory_bytes(95 << 20);
  EXPECT_THAT(Only(facts).what, HasSubstr("uses 95 MiB of its 100 MiB"));
  facts.tasks[1].task.mutable_ps()->set_memory_limit_bytes(0);
  EXPECT_THAT(Examine(facts), IsEmpty()) << "there is no limit";
}

TEST(DoctorChecksTest, Directory) {
  Facts facts = Well();
  facts.checkpoints->checkpoints.clear();
  facts.tasks.clear();
  facts.checkpoints->state = absl::NotFoundError("none");
  const Finding missing = Only(facts);
  EXPECT_EQ(missing.what, "there is no directory /ckpt");
  EXPECT_EQ(missing.fix, Finding::Fix::kMakeDirectory);
  EXPECT_EQ(missing.path, "/ckpt");
  facts.checkpoints->state = absl::FailedPreconditionError("/ckpt is a file");
  EXPECT_EQ(Only(facts).why, "/ckpt is a file");
  EXPECT_EQ(Only(facts).fix, Finding::Fix::kNone);
  facts.checkpoints->state = absl::OkStatus();
  facts.checkpoints->writable = absl::PermissionDeniedError("may not write");
  EXPECT_EQ(Only(facts).what, "nothing can be written to /ckpt");
}

TEST(DoctorChecksTest, Disk) {
  Facts facts = Well();
  facts.checkpoints->free_bytes = uint64_t{4} << 30;
  EXPECT_THAT(Only(facts).what, HasSubstr("4 GiB of 100 GiB are free")) << "less than 5 %";
  facts.checkpoints->free_bytes = uint64_t{6} << 30;
  EXPECT_THAT(Examine(facts), IsEmpty());
  facts.checkpoints->checkpoints[0].bytes = uint64_t{7} << 30;
  EXPECT_EQ(Only(facts).why, "the next checkpoint needs about 7 GiB");
}

TEST(DoctorChecksTest, NewestCheckpoint) {
  Facts facts = Well();
  DirectoryFacts::Checkpoint& newest = facts.checkpoints->checkpoints[0];
  newest.state = absl::DataLossError("checksum of table");
  EXPECT_EQ(Only(facts).what, "the newest checkpoint is damaged: ckpt-1-2");
  EXPECT_THAT(Only(facts).mend, HasSubstr("divvyctl checkpoint verify /ckpt"));
  newest.missing_files = {"ckpt-1-2.data-00001-of-00002"};
  EXPECT_EQ(Only(facts).what, "files of ckpt-1-2 are not in /ckpt: ckpt-1-2.data-00001-of-00002");
  EXPECT_THAT(Only(facts).why, HasSubstr("do not share this directory"));
}

TEST(DoctorChecksTest, NotShared) {
  Facts facts = Well();
  facts.tasks[0].task.mutable_coordinator()->set_last_checkpoint("ckpt-5-5");
  EXPECT_EQ(Only(facts).what, "the coordinator's checkpoint ckpt-5-5 is not in /ckpt");
  facts.checkpoints->checkpoints.clear();
  EXPECT_EQ(Only(facts).what, "the coordinator's checkpoint ckpt-5-5 is not in /ckpt");
}

TEST(DoctorChecksTest, OldCheckpoint) {
  Facts facts = Well();
  facts.checkpoints->checkpoints[0].age = absl::Minutes(31);
  EXPECT_EQ(Only(facts).what, "the newest checkpoint, ckpt-1-2, is 31m old");
  EXPECT_EQ(Only(facts).why, "a loss now would cost 10 steps");
  facts.tasks[0].task.mutable_coordinator()->set_durable_steps(100);
  EXPECT_THAT(Examine(facts), IsEmpty()) << "it covers all steps";
  Job(facts).set_durable_steps(0);
  facts.tasks[0].task.set_state_ns(Ns(absl::Minutes(29)));
  EXPECT_THAT(Examine(facts), IsEmpty()) << "the coordinator has begun with an old one";
  facts.tasks[0].task.set_state_ns(Ns(absl::Hours(1)));
  facts.tasks[0].task.set_state("attaching");
  EXPECT_THAT(Examine(facts), IsEmpty()) << "no step runs yet";
  facts.tasks[0].task.set_state("running");
  EXPECT_THAT(Examine(facts), SizeIs(1));
  Job(facts).mutable_checkpoints()->set_interval_ns(0);
  EXPECT_THAT(Examine(facts), IsEmpty()) << "none is wanted";
}

TEST(DoctorChecksTest, Certificates) {
  Facts facts = Well();
  facts.certificates->problems = {"--tls_cert=x: certificate has expired", "no key"};
  EXPECT_THAT(Examine(facts),
              ElementsAre(Field(&Finding::what, "--tls_cert=x: certificate has expired"),
                          Field(&Finding::what, "no key")));
}

TEST(DoctorChecksTest, CertificateEnd) {
  Facts facts = Well();
  facts.certificates->end = facts.now + absl::Hours(24 * 6);
  EXPECT_EQ(Only(facts).what, "/certs/ps-0.pem ends in 144h");
  facts.certificates->end = facts.now - absl::Hours(1);
  EXPECT_THAT(Examine(facts), IsEmpty()) << "that it is over is a problem of the files";
  facts.certificates->end = std::nullopt;
  EXPECT_THAT(Examine(facts), IsEmpty());
}

TEST(DoctorChecksTest, OpenKey) {
  Facts facts = Well();
  facts.certificates->key_mode = 0100640;
  EXPECT_THAT(Examine(facts), IsEmpty()) << "the group of a volume of secrets";
  facts.certificates->key_mode = 0100644;
  const Finding finding = Only(facts);
  EXPECT_THAT(finding.why, HasSubstr("its mode is 0644"));
  EXPECT_THAT(finding.mend, HasSubstr("`chmod o-rwx /certs/ps-0.key`, and make a new key"));
  EXPECT_EQ(finding.fix, Finding::Fix::kCloseKey);
  EXPECT_EQ(finding.path, "/certs/ps-0.key");
  facts.certificates->key_is_own = false;
  EXPECT_EQ(Only(facts).fix, Finding::Fix::kNone) << "its owner must do that";
}

TEST(DoctorChecksTest, BlasThreads) {
  Facts facts = Well();
  facts.blas_threads = 5;
  EXPECT_EQ(Only(facts).what, "workers of this machine want 10 threads, and it has 8 cores");
  facts.machine.workers = 0;
  EXPECT_THAT(Examine(facts), IsEmpty()) << "one worker";
}

TEST(DoctorChecksTest, SharedMemory) {
  Facts facts = Well();
  facts.machine.has_gpus = true;
  EXPECT_EQ(Only(facts).what, "/dev/shm has 64 MiB");
  facts.machine.shm_bytes = uint64_t{1} << 30;
  EXPECT_THAT(Examine(facts), IsEmpty());
}

TEST(DoctorChecksTest, EachCheckHasAName) {
  std::vector<absl::string_view> names;
  for (const Check& check : AllChecks()) names.push_back(check.name);
  EXPECT_THAT(names, SizeIs(21));
  EXPECT_THAT(names, testing::Each(testing::Ne("")));
}

}  // namespace
}  // namespace divvy::doctor
