#include "coordinator/store/sqlite_store.h"

#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "coordinator/store/store_rows.h"
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
  row.next_serial = 12;
  row.exit_code = 138;
  return row;
}

VariableRow SomeVariable(uint32_t id, const std::string& name) {
  VariableRow row;
  row.layout.id = VariableId(id);
  row.layout.spec.name = name;
  row.layout.spec.shape = Shape{10, 3};
  row.layout.spec.aggregation = VariableAggregation::kMean;
  row.layout.spec.optimizer = Adam{};
  row.layout.offsets = {0, 5, 10};
  row.layout.ps = {1, 0};
  row.layout.slots = {{"m", SlotSpec::Kind::kValues, 0.f}, {"t", SlotSpec::Kind::kRowCounts, 0.f}};
  row.layout.slot_optimizers = {"Adam", "Adam"};
  row.initializer = RandomUniform{-1, 1, 7};
  return row;
}

CheckpointRow SomeCheckpoint(uint64_t epoch, uint64_t serial) {
  return {{Epoch(epoch), serial}, CheckpointRow::State::kCommitted, 1000, uint64_t{1} << 40};
}

class SqliteStoreTest : public ::testing::Test {
 protected:
  std::string directory() const {
    return absl::StrCat(::testing::TempDir(), "/",
                        ::testing::UnitTest::GetInstance()->current_test_info()->name());
  }
  std::string file() const { return directory() + "/divvy.db"; }
  absl::StatusOr<std::unique_ptr<Store>> Open() {
    return SqliteStore::Open(directory(), executor_);
  }

  // Puts `change` and waits for its status.
  absl::Status Put(Store& store, StoreChange change) {
    absl::Status result;
    bool over = false;
    Mutex mu;
    CondVar told;
    store.Put(std::move(change), [&](absl::Status status) {
      MutexLock lock(mu);
      result = std::move(status);
      over = true;
      told.NotifyAll();
    });
    MutexLock lock(mu);
    told.Wait(mu, [&] { return over; });
    return result;
  }

  // Runs SQL on the file, as another program could.
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
  const absl::StatusOr<StoredJob> stored = (*store)->Load();
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_EQ(stored->job.state, JobRow::State::kNew);
  EXPECT_EQ(stored->job.job, JobId());
  EXPECT_EQ(stored->job.id_block_end, 1u);
  EXPECT_EQ(stored->job.next_serial, 1u);
  EXPECT_TRUE(stored->variables.empty() && stored->checkpoints.empty());
}

TEST_F(SqliteStoreTest, WhatWasPutIsThereAfterOpeningAgain) {
  {
    const auto store = Open();
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE(Put(**store, {JobRow()}).ok());
    // Replaces the first row.
    ASSERT_TRUE(Put(**store, {SomeRow()}).ok());
  }
  const auto store = Open();
  ASSERT_TRUE(store.ok()) << store.status();
  const absl::StatusOr<StoredJob> stored = (*store)->Load();
  ASSERT_TRUE(stored.ok()) << stored.status();
  const JobRow* row = &stored->job;
  EXPECT_EQ(row->job, JobId(0xfedcba9876543210));
  EXPECT_EQ(row->state, JobRow::State::kRunning);
  EXPECT_EQ(row->epoch, Epoch(7));
  EXPECT_EQ(row->lineage, Epoch(6));
  EXPECT_EQ(row->id_block_end, 1'099'511'627'777u);
  EXPECT_EQ(row->next_variable_id, 4'000'000'000u);
  EXPECT_EQ(row->next_serial, 12u);
  EXPECT_EQ(row->exit_code, 138);
}

TEST_F(SqliteStoreTest, VariablesAndCheckpointsAreThereAfterOpeningAgain) {
  {
    const auto store = Open();
    ASSERT_TRUE(store.ok()) << store.status();
    StoreChange change = {SomeRow(),
                          {SomeVariable(7, "b"), SomeVariable(3, "a")},
                          {},
                          {SomeCheckpoint(4, 9), SomeCheckpoint(3, 8), SomeCheckpoint(3, 10)}};
    // These values would be sent in a write of their own, so the store does not keep them.
    change.put_variables[0].initializer = Tensor::Vector<float>({1, 2});
    ASSERT_TRUE(Put(**store, change).ok());
    CheckpointRow writing = SomeCheckpoint(3, 8);
    writing.state = CheckpointRow::State::kWriting;
    // Some of the deleted rows do not exist.
    ASSERT_TRUE(
        Put(**store, {{}, {}, {VariableId(99)}, {writing}, {{Epoch(4), 9}, {Epoch(4), 8}}}).ok());
  }
  const auto store = Open();
  ASSERT_TRUE(store.ok()) << store.status();
  const absl::StatusOr<StoredJob> stored = (*store)->Load();
  ASSERT_TRUE(stored.ok()) << stored.status();
  // The second change does not name the job's row, so the row stays.
  EXPECT_EQ(stored->job.epoch, Epoch(7));
  ASSERT_EQ(stored->variables.size(), 2u);
  const VariableRow& a = stored->variables[0];
  EXPECT_EQ(a.layout.id, VariableId(3));
  EXPECT_EQ(a.layout.spec.name, "a");
  EXPECT_EQ(a.layout.spec.shape, (Shape{10, 3}));
  EXPECT_EQ(a.layout.spec.aggregation, VariableAggregation::kMean);
  EXPECT_TRUE(a.layout.spec.optimizer && std::holds_alternative<Adam>(*a.layout.spec.optimizer));
  EXPECT_THAT(a.layout.offsets, ElementsAre(0, 5, 10));
  EXPECT_THAT(a.layout.ps, ElementsAre(1, 0));
  EXPECT_EQ(a.layout.SlotName(1), "a/Adam/t");
  ASSERT_TRUE(std::holds_alternative<RandomUniform>(a.initializer));
  EXPECT_EQ(std::get<RandomUniform>(a.initializer).seed, 7u);
  EXPECT_EQ(stored->variables[1].layout.id, VariableId(7));
  EXPECT_TRUE(std::holds_alternative<Constant>(stored->variables[1].initializer));
  ASSERT_EQ(stored->checkpoints.size(), 2u);
  EXPECT_EQ(stored->checkpoints[0].id.name(), "ckpt-3-8");
  EXPECT_EQ(stored->checkpoints[0].state, CheckpointRow::State::kWriting);
  EXPECT_EQ(stored->checkpoints[1].id.name(), "ckpt-3-10");
  EXPECT_EQ(stored->checkpoints[1].finished_steps, 1000);
  EXPECT_EQ(stored->checkpoints[1].bytes, uint64_t{1} << 40);
}

TEST_F(SqliteStoreTest, AClosedStoreRefusesAndLetsTheDirectoryGo) {
  const auto first = Open();
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(Put(**first, {SomeRow()}).ok());
  (*first)->Close();
  (*first)->Close();
  const auto second = Open();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->Load()->job.epoch, Epoch(7));
  EXPECT_EQ(Put(**first, {JobRow()}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ((*first)->Load().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ((*first)->Scrub().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(SqliteStoreTest, WhatIsToldToBeDoneIsInTheFileItself) {
  const auto store = Open();
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE(Put(**store, {SomeRow(), {SomeVariable(3, "a")}}).ok());
  const std::string copy = directory() + "/copy";
  ASSERT_TRUE(FileSystem::Real().CreateDirectory(copy).ok());
  ASSERT_TRUE(FileSystem::Real()
                  .ReplaceFile(copy + "/divvy.db", *FileSystem::Real().ReadFile(file()))
                  .ok());
  const auto copied = SqliteStore::Open(copy, executor_);
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ((*copied)->Load()->job.epoch, Epoch(7));
  EXPECT_EQ((*copied)->Load()->variables.size(), 1u);
}

TEST(StoreRowsTest, AVariableWithAStateThatIsWrittenNoMoreIsRefused) {
  SqlRow row = Encode(SomeVariable(3, "a"));
  EXPECT_TRUE(DecodeVariable(row).ok());
  for (const int64_t state : {0, 2}) {
    row[2] = state;
    EXPECT_EQ(DecodeVariable(row).status(),
              absl::InvalidArgumentError(absl::StrCat("column state has no value ", state)));
  }
}

TEST_F(SqliteStoreTest, TheFirstVersionsFileIsTakenOver) {
  RunSql(
      "CREATE TABLE job (id INTEGER PRIMARY KEY CHECK (id = 1), job_id INTEGER NOT NULL, state "
      "INTEGER NOT NULL, epoch INTEGER NOT NULL, lineage INTEGER NOT "
      "NULL, id_block_end INTEGER NOT NULL, next_variable_id INTEGER NOT NULL, exit_code INTEGER "
      "NOT NULL); INSERT INTO job VALUES (1, 77, 1, 5, 4, 2097153, "
      "30, 0); PRAGMA application_id = 1146508889; PRAGMA user_version = 1");
  for (int i = 0; i < 2; ++i) {
    const auto store = Open();
    ASSERT_TRUE(store.ok()) << store.status();
    const absl::StatusOr<StoredJob> stored = (*store)->Load();
    ASSERT_TRUE(stored.ok()) << stored.status();
    EXPECT_EQ(stored->job.job, JobId(77));
    EXPECT_EQ(stored->job.state, JobRow::State::kRunning);
    EXPECT_EQ(stored->job.epoch, Epoch(5));
    EXPECT_EQ(stored->job.lineage, Epoch(4));
    EXPECT_EQ(stored->job.id_block_end, 2'097'153u);
    EXPECT_EQ(stored->job.next_variable_id, 30u);
    EXPECT_EQ(stored->job.next_serial, 1u);
  }
}

TEST_F(SqliteStoreTest, TheSecondVersionsFileIsTakenOverWithoutAWordOnWhatServersHold) {
  {
    const auto store = Open();
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE(Put(**store, {SomeRow(), {SomeVariable(3, "a")}, {}, {SomeCheckpoint(3, 8)}}).ok());
  }
  // Makes the file of schema 2.
  RunSql("DROP TABLE state; PRAGMA user_version = 2");
  for (int i = 0; i < 2; ++i) {
    const auto store = Open();
    ASSERT_TRUE(store.ok()) << store.status();
    const absl::StatusOr<StoredJob> stored = (*store)->Load();
    ASSERT_TRUE(stored.ok()) << stored.status();
    EXPECT_EQ(stored->job.epoch, Epoch(7));
    EXPECT_EQ(stored->variables.size(), 1u);
    EXPECT_EQ(stored->checkpoints.size(), 1u);
    EXPECT_FALSE(stored->state.has_value());
  }
}

TEST_F(SqliteStoreTest, TheStateOfARunningJobIsThereAfterOpeningAgain) {
  StateRow row;
  row.held = StateRow::Held::kFirstValues;
  row.state.job = JobId(77);
  row.state.lineage = Epoch(5);
  row.state.layout = Layout::Received(9, {});
  row.state.finished_steps = 100;
  row.state.next_ordinal = 103;
  row.state.finished_reads = 7;
  row.state.epochs = 2;
  row.state.passes = {{"train", 3}};
  row.state.program_state = std::string("round\0 2", 8);
  {
    const auto store = Open();
    ASSERT_TRUE(store.ok()) << store.status();
    StoreChange change;
    change.state = row;
    change.state->held = StateRow::Held::kLeasedData;
    ASSERT_TRUE(Put(**store, change).ok());
    change.state = row;
    ASSERT_TRUE(Put(**store, change).ok());
    // This change leaves the state row as it is.
    ASSERT_TRUE(Put(**store, {SomeRow()}).ok());
  }
  const auto store = Open();
  ASSERT_TRUE(store.ok()) << store.status();
  const std::optional<StateRow> read = (*store)->Load()->state;
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->held, StateRow::Held::kFirstValues);
  EXPECT_EQ(read->state.lineage, Epoch(5));
  EXPECT_EQ(read->state.layout->version(), 9u);
  EXPECT_TRUE(read->state.layout->variables().empty());
  EXPECT_EQ(read->state.finished_steps, 100);
  EXPECT_EQ(read->state.next_ordinal, 103);
  EXPECT_EQ(read->state.finished_reads, 7);
  EXPECT_EQ(read->state.epochs, 2);
  EXPECT_EQ(read->state.passes, (std::map<std::string, int64_t>{{"train", 3}}));
  EXPECT_EQ(read->state.program_state, row.state.program_state);
}

TEST_F(SqliteStoreTest, RowsThatAreNotWhatWasWrittenAreDataLoss) {
  {
    const auto store = Open();
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_TRUE(
        Put(**store,
            {SomeRow(), {SomeVariable(3, "a")}, {}, {SomeCheckpoint(3, 8), SomeCheckpoint(3, 9)}})
            .ok());
  }
  const std::string good = *FileSystem::Real().ReadFile(file());
  for (const char* harm :
       {"UPDATE job SET epoch = 6", "DELETE FROM job", "UPDATE variables SET name = 'c'",
        "DELETE FROM checkpoints WHERE serial = 9",
        "UPDATE checkpoints SET serial = 10 WHERE serial = 9", "DELETE FROM seal",
        "UPDATE seal SET rows = 3", "INSERT INTO checkpoints VALUES (4, 1, 0, 0, 0, 0)",
        "CREATE TABLE more (a)", "DROP TABLE checkpoints"}) {
    ASSERT_TRUE(FileSystem::Real().ReplaceFile(file(), good).ok());
    RunSql(harm);
    const absl::Status refused = Open().status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss) << harm;
    EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr(file()), HasSubstr("move it away")))
        << harm;
  }
}

TEST_F(SqliteStoreTest, PutsAreDoneInTheirOrderAndTheLastOneStays) {
  // Only the writer changes it, and this test reads it after the writer has ended.
  std::vector<int> order;
  {
    const auto store = Open();
    ASSERT_TRUE(store.ok()) << store.status();
    for (int i = 1; i <= 5; ++i) {
      JobRow row = SomeRow();
      row.epoch = Epoch(i);
      (*store)->Put({row}, [&order, i](absl::Status status) {
        EXPECT_TRUE(status.ok()) << status;
        order.push_back(i);
      });
    }
    // The destructor waits for all changes.
  }
  EXPECT_THAT(order, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ((*Open())->Load()->job.epoch, Epoch(5));
}

TEST_F(SqliteStoreTest, ASecondCoordinatorOnTheDirectoryIsRefused) {
  const auto first = Open();
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status refused = Open().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(refused.message()),
      AllOf(HasSubstr(directory()), HasSubstr("another coordinator"), HasSubstr("--state_dir")));
  // The first store still works.
  EXPECT_TRUE(Put(**first, {SomeRow()}).ok());
}

TEST_F(SqliteStoreTest, AFileThatIsNoDatabaseIsDataLoss) {
  ASSERT_TRUE(FileSystem::Real().CreateDirectory(directory()).ok());
  ASSERT_TRUE(FileSystem::Real().ReplaceFile(file(), std::string(4096, 'x')).ok());
  const absl::Status refused = Open().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr(file()), HasSubstr("move it away")));
}

TEST_F(SqliteStoreTest, AFileThatCannotBeOpenedIsAQuestionOfConfiguration) {
  // A directory has the name of the file.
  ASSERT_TRUE(FileSystem::Real().CreateDirectory(file()).ok());
  const absl::Status refused = Open().status();
  // The code is not PermissionDenied, because that code means missing rights of a certificate.
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr(file()),
                    HasSubstr("--state_dir must be a directory that the coordinator may write")));
}

TEST_F(SqliteStoreTest, AnotherProgramsDatabaseIsRefused) {
  RunSql("CREATE TABLE addresses (name TEXT)");
  const absl::Status refused = Open().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("another program's database"));
}

TEST_F(SqliteStoreTest, ALaterSchemaIsRefusedNamingBothVersions) {
  ASSERT_TRUE(Open().ok());
  RunSql("PRAGMA user_version = 9");
  const absl::Status refused = Open().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("schema 9"), HasSubstr("reads 1 to 4")));
}

TEST_F(SqliteStoreTest, AFileThatMayNotGrowIsAFullDiskAndNoFailedDevice) {
  const auto store = Open();
  ASSERT_TRUE(store.ok()) << store.status();
  StoreChange change;
  change.job = SomeRow();
  ASSERT_EQ(Put(**store, change), absl::OkStatus());
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit narrow = {100, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &narrow), 0);
  const absl::Status full = Put(**store, change);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_THAT(std::string(full.message()), AllOf(HasSubstr(file()), HasSubstr("ulimit -f")));
  EXPECT_EQ(Put(**store, change), absl::OkStatus()) << "the limit was raised";
}

TEST_F(SqliteStoreTest, ADirectoryThatCannotBeMadeNamesTheFlag) {
  ASSERT_TRUE(FileSystem::Real().ReplaceFile(directory(), "a file").ok());
  const absl::Status refused = SqliteStore::Open(directory() + "/state", executor_).status();
  EXPECT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr(directory()), HasSubstr("--state_dir")));
}

}  // namespace
}  // namespace divvy
