#include "coordinator/store/sqlite_store.h"

#include <sqlite3.h>

#include <deque>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

constexpr int64_t kApplicationId = 0x44565659;  // "DVVY"
constexpr int64_t kSchemaVersion = 1;
constexpr char kWanted[] = "--state_dir must be a directory that the coordinator may write";
constexpr char kCreateTable[] =
    "CREATE TABLE job (id INTEGER PRIMARY KEY CHECK (id = 1), job_id INTEGER NOT NULL, state INTEGER NOT NULL, epoch INTEGER NOT NULL, lineage INTEGER NOT "
    "NULL, "
    "id_block_end INTEGER NOT NULL, next_variable_id INTEGER NOT NULL, exit_code INTEGER NOT NULL)";
constexpr char kReadRow[] = "SELECT job_id, state, epoch, lineage, id_block_end, next_variable_id, exit_code FROM job WHERE id = 1";
constexpr char kWriteRow[] =
    "INSERT OR REPLACE INTO job (id, job_id, state, epoch, lineage, id_block_end, next_variable_id, exit_code) VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)";

// SQLite's integers are signed: ours keep their bits.
int64_t Signed(uint64_t value) { return static_cast<int64_t>(value); }

// One connection. Used by one thread at a time.
class Database {
 public:
  explicit Database(std::string path) : path_(std::move(path)) {}
  ~Database() { Close(); }
  Database(const Database&) = delete;

  absl::Status Open() {
    const int code = sqlite3_open_v2(path_.c_str(), &handle_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
    return code == SQLITE_OK ? absl::OkStatus() : Error(code);
  }

  void Close() { sqlite3_close(std::exchange(handle_, nullptr)); }

  // Runs one statement with `values` bound in order. `row`, if given, gets the columns of its first row, and stays empty where there is none.
  absl::Status Run(const std::string& sql, const std::vector<int64_t>& values = {}, std::vector<int64_t>* row = nullptr) {
    sqlite3_stmt* raw = nullptr;
    int code = sqlite3_prepare_v2(handle_, sql.c_str(), -1, &raw, nullptr);
    const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(raw, sqlite3_finalize);
    for (size_t i = 0; code == SQLITE_OK && i < values.size(); ++i) code = sqlite3_bind_int64(raw, static_cast<int>(i) + 1, values[i]);
    if (code != SQLITE_OK) return Error(code);
    while ((code = sqlite3_step(raw)) == SQLITE_ROW) {
      if (row == nullptr || !row->empty()) continue;
      for (int i = 0; i < sqlite3_column_count(raw); ++i) row->push_back(sqlite3_column_int64(raw, i));
    }
    return code == SQLITE_DONE ? absl::OkStatus() : Error(code);
  }

  absl::StatusOr<int64_t> Number(const std::string& sql) {
    std::vector<int64_t> row;
    RETURN_IF_ERROR(Run(sql, {}, &row));
    return row.empty() ? 0 : row[0];
  }

 private:
  absl::Status Error(int code) const {
    const std::string what = absl::StrCat(path_, ": ", handle_ != nullptr ? sqlite3_errmsg(handle_) : sqlite3_errstr(code));
    switch (code & 0xff) {
      case SQLITE_BUSY:
      case SQLITE_LOCKED:
        return absl::FailedPreconditionError(
            absl::StrCat(path_, ": another coordinator holds this state directory. Stop it, or give this one a --state_dir of its own"));
      case SQLITE_NOTADB:
      case SQLITE_CORRUPT:
        return absl::DataLossError(absl::StrCat(what, ". It cannot be trusted: move it away, or give an empty --state_dir, to begin a new job"));
      case SQLITE_IOERR: return absl::ResourceExhaustedError(absl::StrCat(what, ". The disk of --state_dir has failed"));
      case SQLITE_FULL: return absl::ResourceExhaustedError(absl::StrCat(what, ". Make room on the disk of --state_dir"));
      case SQLITE_CANTOPEN:
      case SQLITE_READONLY:
      case SQLITE_PERM: return absl::FailedPreconditionError(absl::StrCat(what, ". ", kWanted));
      default: return absl::InternalError(what);
    }
  }

  const std::string path_;
  sqlite3* handle_ = nullptr;
};

absl::Status MakeSchema(Database& database) {
  RETURN_IF_ERROR(database.Run(kCreateTable));
  RETURN_IF_ERROR(database.Run(absl::StrCat("PRAGMA application_id = ", kApplicationId)));
  return database.Run(absl::StrCat("PRAGMA user_version = ", kSchemaVersion));
}

// The file is a store of this version; an empty one becomes it.
absl::Status CheckSchema(Database& database, const std::string& path) {
  ASSIGN_OR_RETURN(const int64_t tables, database.Number("SELECT count(*) FROM sqlite_master"));
  ASSIGN_OR_RETURN(const int64_t application, database.Number("PRAGMA application_id"));
  ASSIGN_OR_RETURN(const int64_t version, database.Number("PRAGMA user_version"));
  if (tables == 0 && application == 0 && version == 0) return MakeSchema(database);
  if (application != kApplicationId) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": this is another program's database. Give a --state_dir that is Divvy's alone"));
  }
  if (version == kSchemaVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(path, ": written by another version of Divvy (schema ", version, ", this one reads ", kSchemaVersion,
                                                    "). Run the coordinator that wrote it, or give an empty --state_dir to begin a new job"));
}

absl::Status Prepare(Database& database, const std::string& path) {
  RETURN_IF_ERROR(database.Open());
  RETURN_IF_ERROR(database.Run("PRAGMA locking_mode = EXCLUSIVE"));  // before the first lock is taken: it is then kept
  RETURN_IF_ERROR(database.Run("PRAGMA journal_mode = WAL"));
  RETURN_IF_ERROR(database.Run("PRAGMA synchronous = FULL"));
  RETURN_IF_ERROR(database.Run("BEGIN EXCLUSIVE"));
  RETURN_IF_ERROR(CheckSchema(database, path));
  return database.Run("COMMIT");
}

absl::StatusOr<JobRow> ReadRow(Database& database, const std::string& path) {
  std::vector<int64_t> values;
  RETURN_IF_ERROR(database.Run(kReadRow, {}, &values));
  JobRow row;
  if (values.empty()) return row;
  if (values[1] < 0 || values[1] > static_cast<int64_t>(JobRow::State::kFailed)) {
    return absl::DataLossError(absl::StrCat(path, ": the job's row has no state ", values[1], ". Move the file away to begin a new job"));
  }
  row.job = JobId(static_cast<uint64_t>(values[0]));
  row.state = static_cast<JobRow::State>(values[1]);
  row.epoch = Epoch(static_cast<uint64_t>(values[2]));
  row.lineage = Epoch(static_cast<uint64_t>(values[3]));
  row.id_block_end = static_cast<uint64_t>(values[4]);
  row.next_variable_id = static_cast<uint32_t>(values[5]);
  row.exit_code = static_cast<int32_t>(values[6]);
  return row;
}

absl::Status WriteRow(Database& database, const JobRow& row) {
  return database.Run(kWriteRow, {Signed(row.job.value()), static_cast<int64_t>(row.state), Signed(row.epoch.value()), Signed(row.lineage.value()),
                                  Signed(row.id_block_end), row.next_variable_id, row.exit_code});
}

}  // namespace

struct SqliteStore::State {
  struct Write {
    JobRow row;
    std::function<void(absl::Status)> done;
  };

  State(std::string path, Executor& executor) : path(std::move(path)), executor(executor), database(this->path) {}

  void EndWritingLocked() DIVVY_REQUIRES(mu) {
    writing = false;
    idle.NotifyAll();
  }
  void EndWriting() {
    MutexLock lock(mu);
    EndWritingLocked();
  }

  const std::string path;
  Executor& executor;
  Mutex mu;
  CondVar idle;
  std::deque<Write> writes DIVVY_GUARDED_BY(mu);
  bool writing DIVVY_GUARDED_BY(mu) = false;  // a writer exists
  Mutex database_mu;                          // after mu, never with it
  Database database DIVVY_GUARDED_BY(database_mu);
};

namespace {

// Takes writes until there are none. An executor that stops drops tasks that have not begun: then the destructor alone says that there is no writer.
template <typename State>
class Writer {
 public:
  explicit Writer(std::shared_ptr<State> state) : state_(std::move(state)) {}
  Writer(const Writer&) = delete;
  ~Writer() {
    if (!ran_) state_->EndWriting();
  }

  void Run() {
    ran_ = true;
    while (true) {
      typename State::Write write;
      {
        MutexLock lock(state_->mu);
        if (state_->writes.empty()) return state_->EndWritingLocked();
        write = std::move(state_->writes.front());
        state_->writes.pop_front();
      }
      absl::Status written;
      {
        MutexLock lock(state_->database_mu);
        written = WriteRow(state_->database, write.row);
      }
      write.done(std::move(written));
    }
  }

 private:
  const std::shared_ptr<State> state_;
  bool ran_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> SqliteStore::Open(const std::string& state_dir, Executor& executor) {
  if (absl::Status made = FileSystem::Real().CreateDirectory(state_dir); !made.ok()) {
    const absl::StatusCode code =
        absl::IsPermissionDenied(made) ? absl::StatusCode::kFailedPrecondition : made.code();  // it is no certificate that lacks a right
    return absl::Status(code, absl::StrCat(made.message(), ". ", kWanted));
  }
  auto state = std::make_shared<State>(absl::StrCat(state_dir, "/divvy.db"), executor);
  MutexLock lock(state->database_mu);
  RETURN_IF_ERROR(Prepare(state->database, state->path));
  return std::unique_ptr<Store>(new SqliteStore(state));
}

SqliteStore::~SqliteStore() {
  {
    MutexLock lock(state_->mu);
    state_->idle.Wait(state_->mu, [this]() DIVVY_NO_THREAD_SAFETY_ANALYSIS { return !state_->writing; });
  }
  MutexLock lock(state_->database_mu);
  state_->database.Close();  // here, so that the next Open finds the directory free
}

absl::StatusOr<JobRow> SqliteStore::Load() {
  MutexLock lock(state_->database_mu);
  return ReadRow(state_->database, state_->path);
}

void SqliteStore::Put(const JobRow& row, std::function<void(absl::Status)> done) {
  {
    MutexLock lock(state_->mu);
    state_->writes.push_back({row, std::move(done)});
    if (std::exchange(state_->writing, true)) return;
  }
  state_->executor.PostBlocking("store", [writer = std::make_shared<Writer<State>>(state_)] { writer->Run(); });
}

}  // namespace divvy
