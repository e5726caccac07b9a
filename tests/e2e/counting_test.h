// The fixture of tests that run the counter program on a cluster of processes, under faults.
#ifndef DIVVY_TESTS_E2E_COUNTING_TEST_H_
#define DIVVY_TESTS_E2E_COUNTING_TEST_H_

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "gtest/gtest.h"
#include "tests/e2e/process_cluster.h"

namespace divvy {

constexpr char kCounter[] = "tests/e2e/counter_program";
constexpr absl::Duration kPatience = absl::Seconds(60);

inline std::string TemporaryPath(absl::string_view name) {
  return absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
}

// A cluster that runs the counter program, which counts until Finish.
class CountingTest : public ::testing::Test {
 protected:
  void Make(int num_ps, int num_workers, bool proxied, std::vector<std::string> flags = {}) {
    ProcessClusterOptions options;
    options.program = kCounter;
    options.num_ps = num_ps;
    options.num_workers = num_workers;
    options.proxied = proxied;
    options.flags = std::move(flags);
    options.flags.push_back("--stop_file=" + stop_file_);
    cluster_ = *ProcessCluster::Make(std::move(options));
  }
  void StartAll() {
    const absl::Status started = cluster_->StartAll();
    ASSERT_TRUE(started.ok()) << started;
    WaitFor(kChiefTask, "counting");
  }
  std::string WaitFor(TaskId task, absl::string_view text, absl::Duration timeout = kPatience) {
    const absl::StatusOr<std::string> line = cluster_->WaitForText(task, text, timeout);
    EXPECT_TRUE(line.ok()) << line.status();
    return line.value_or("");
  }
  int ExitOf(TaskId task, absl::Duration timeout = kPatience) {
    const absl::StatusOr<ExitStatus> status = cluster_->WaitForExit(task, timeout);
    EXPECT_TRUE(status.ok()) << status.status();
    return status.ok() ? status->code() : -1;
  }
  // Waits until `rounds` more rounds of steps have finished.
  void CountOn(int rounds) {
    for (int i = 0; i < rounds; ++i) WaitFor(kChiefTask, "counted ");
  }
  void Kill(TaskId task) {
    const absl::StatusOr<ExitStatus> killed = cluster_->Kill(task);
    EXPECT_TRUE(killed.ok()) << killed.status();
  }
  void Start(TaskId task, const LifeOptions& life = {}) {
    const absl::Status started = cluster_->Start(task, life);
    ASSERT_TRUE(started.ok()) << started;
  }
  // Ends the job. The program itself checks that every counter is exact.
  void Finish() {
    ASSERT_TRUE(FileSystem::Real().ReplaceFile(stop_file_, "").ok());
    WaitFor(kChiefTask, "counter = ");
    EXPECT_EQ(ExitOf(kChiefTask), 0);
    const absl::Status ended = cluster_->WaitForAll(kPatience);
    EXPECT_TRUE(ended.ok()) << ended;
  }

  // A path that no other test uses.
  static std::string OwnPath(absl::string_view name) {
    std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::replace(test.begin(), test.end(), '/', '_');  // from a test's parameter
    return TemporaryPath(absl::StrCat(name, "_", test));
  }

  const std::string stop_file_ = OwnPath("stop");
  std::unique_ptr<ProcessCluster> cluster_;
};

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_COUNTING_TEST_H_
