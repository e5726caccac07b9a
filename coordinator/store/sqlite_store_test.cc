#include "coordinator/store/sqlite_store.h"

#include <sqlite3.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

JobRow SomeRow() {
  JobRow row;
  row.job = JobId(0xfedcba9876543210);  // its highest bit is set
  row.state = JobRow::State::kRunning;
  row.epoch = Epoch(7);
  row.lineage = Epoch(6);
  row.id_block_end = (uint64_t{1} << 40) + 1;
  row.next_variable_id = 4'000'000'000;
  row.exit_code = 138;
  return row;
}

class SqliteStoreTest : public ::testing::Test {
 protected:
  std::string directory() const { return absl::StrCat(::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name()); }
  std::string file() const { return directory() + "/divvy.db"; }
  absl::StatusOr<std::unique_ptr<Store>> Open() { return SqliteStore::Open(directory(), executor_); }

  // Puts and waits.
  absl::Status Put(Store& store, const JobRow& row) {
    absl::Status result;
    bool over = false;
    Mutex mu;
    CondVar told;
    store.Put(row, [&](absl::Status status) {
      MutexLock lock(mu);
      result = std::move(status);
      over = true;
      told.NotifyAll();
    });
    MutexLock lock(mu);
    told.Wait(mu, [&] { return over; });
    return result;
  }

  // The file as somebody else would make it.
  void RunSql(const char* sql) {
    ASSERT_TRUE(FileSystem::Real().CreateDirectory(directory()).ok());
    sqlite3* handle = nullptr;
    ASSERT_EQ(sqlite3_open(file().c_str(), &handle), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(handle, sql, nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(handle);
  }

  ThreadPoolExecutor executor_{1};
};

TEST_F(SqliteStoreTest, ANewDirectoryHoldsANewJob) {
  const auto store = Open();
  ASSERT_TRUE(store.ok()) << store.status();
  const absl::StatusOr<JobRow> row = (*store)->Load();
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->state, JobRow::State::kNew);
  EXPECT_EQ(row->job, JobId());
  EXPECT_EQ(row->id_block_end, 1u);
}

TEST_F(SqliteStoreTest, WhatWasPutIsThereAfterOpeningAgain) {
  {
    const auto store = Open();
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE(Put(**store, JobRow()).ok());
    ASSERT_TRUE(Put(**store, SomeRow()).ok());  // replaces it
  }
  const auto store = Open();
  ASSERT_TRUE(store.ok()) << store.status();
  const absl::StatusOr<JobRow> row = (*store)->Load();
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ(row->job, JobId(0xfedcba9876543210));
  EXPECT_EQ(row->state, JobRow::State::kRunning);
  EXPECT_EQ(row->epoch, Epoch(7));
  EXPECT_EQ(row->lineage, Epoch(6));
  EXPECT_EQ(row->id_block_end, 1'099'511'627'777u);
  EXPECT_EQ(row->next_variable_id, 4'000'000'000u);
  EXPECT_EQ(row->exit_code, 138);
}

TEST_F(SqliteStoreTest, PutsAreDoneInTheirOrderAndTheLastOneStays) {
  std::vector<int> order;  // touched by the one writer, and after it by this test
  {
    const auto store = Open();
    ASSERT_TRUE(store.ok()) << store.status();
    for (int i = 1; i <= 5; ++i) {
      JobRow row = SomeRow();
      row.epoch = Epoch(i);
      (*store)->Put(row, [&order, i](absl::Status status) {
        EXPECT_TRUE(status.ok()) << status;
        order.push_back(i);
      });
    }
  }  // waits for them
  EXPECT_THAT(order, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ((*Open())->Load()->epoch, Epoch(5));
}

TEST_F(SqliteStoreTest, ASecondCoordinatorOnTheDirectoryIsRefused) {
  const auto first = Open();
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status refused = Open().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr(directory()), HasSubstr("another coordinator"), HasSubstr("--state_dir")));
  EXPECT_TRUE(Put(**first, SomeRow()).ok());  // the first goes on
}

TEST_F(SqliteStoreTest, AFileThatIsNoDatabaseIsDataLoss) {
  ASSERT_TRUE(FileSystem::Real().CreateDirectory(directory()).ok());
  ASSERT_TRUE(FileSystem::Real().ReplaceFile(file(), std::string(4096, 'x')).ok());
  const absl::Status refused = Open().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr(file()), HasSubstr("move it away")));
}

TEST_F(SqliteStoreTest, AFileThatCannotBeOpenedIsAQuestionOfConfiguration) {
  ASSERT_TRUE(FileSystem::Real().CreateDirectory(file()).ok());  // a directory stands in its place
  const absl::Status refused = Open().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);  // and not PermissionDenied, which speaks of certificates
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr(file()), HasSubstr("--state_dir must be a directory that the coordinator may write")));
}

TEST_F(SqliteStoreTest, AnotherProgramsDatabaseIsRefused) {
  RunSql("CREATE TABLE addresses (name TEXT)");
  const absl::Status refused = Open().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("another program's database"));
}

TEST_F(SqliteStoreTest, AnotherSchemaIsRefusedNamingBothVersions) {
  ASSERT_TRUE(Open().ok());
  RunSql("PRAGMA user_version = 9");
  const absl::Status refused = Open().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("schema 9"), HasSubstr("reads 1")));
}

TEST_F(SqliteStoreTest, ADirectoryThatCannotBeMadeNamesTheFlag) {
  ASSERT_TRUE(FileSystem::Real().ReplaceFile(directory(), "a file").ok());
  const absl::Status refused = SqliteStore::Open(directory() + "/state", executor_).status();
  EXPECT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr(directory()), HasSubstr("--state_dir")));
}

}  // namespace
}  // namespace divvy
