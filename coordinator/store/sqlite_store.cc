#include "coordinator/store/sqlite_store.h"

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "coordinator/store/sqlite_database.h"
#include "coordinator/store/store_rows.h"

namespace divvy {
namespace {

constexpr int64_t kApplicationId = 0x44565659;  // "DVVY"
constexpr int64_t kSchemaVersion = 4;

const StoreTable* const* Tables() {
  static const StoreTable* const tables[] = {&JobTable(), &VariableTable(), &CheckpointTable(),
                                             &StateTable(), nullptr};
  return tables;
}

// ---- the seal: the number of rows and the sum of their checksums ----

struct Seal {
  uint64_t rows = 0;
  uint64_t crc_sum = 0;
};
bool operator==(const Seal& a, const Seal& b) { return a.rows == b.rows && a.crc_sum == b.crc_sum; }

absl::StatusOr<Seal> ReadSeal(SqliteDatabase& database) {
  ASSIGN_OR_RETURN(const std::vector<SqlRow> rows,
                   database.Run(absl::StrCat("SELECT rows, crc_sum FROM ", kSealTable)));
  if (rows.size() != 1)
    return database.Damaged(
        absl::StrCat("table ", kSealTable, " has ", rows.size(), " rows, not 1"));
  const auto* count = std::get_if<int64_t>(&rows[0][0]);
  const auto* sum = std::get_if<int64_t>(&rows[0][1]);
  if (count == nullptr || sum == nullptr)
    return database.Damaged(absl::StrCat("table ", kSealTable, " holds no numbers"));
  return Seal{static_cast<uint64_t>(*count), static_cast<uint64_t>(*sum)};
}

absl::Status WriteSeal(SqliteDatabase& database, const Seal& seal) {
  const SqlRow values = {static_cast<int64_t>(seal.rows), static_cast<int64_t>(seal.crc_sum)};
  return database
      .Run(absl::StrCat("INSERT OR REPLACE INTO ", kSealTable,
                        " (id, rows, crc_sum) VALUES (1, ?1, ?2)"),
           values)
      .status();
}

// ---- rows ----

std::string WhereKey(const StoreTable& table) {
  std::string where = " WHERE ";
  for (int i = 0; i < table.num_keys; ++i)
    absl::StrAppend(&where, i == 0 ? "" : " AND ", table.columns[i], " = ?", i + 1);
  return where;
}

// Removes the row of `key`, if there is one.
absl::Status DeleteRow(SqliteDatabase& database, const StoreTable& table, const SqlRow& key,
                       Seal& seal) {
  const std::string from = absl::StrCat(" FROM ", table.name, WhereKey(table));
  ASSIGN_OR_RETURN(const std::vector<SqlRow> old,
                   database.Run(absl::StrCat("SELECT crc", from), key));
  if (old.empty()) return absl::OkStatus();
  const auto* crc = std::get_if<int64_t>(&old[0][0]);
  if (crc == nullptr)
    return database.Damaged(absl::StrCat("a row of table ", table.name, " has no checksum"));
  --seal.rows;
  seal.crc_sum -= static_cast<uint64_t>(*crc);
  return database.Run(absl::StrCat("DELETE", from), key).status();
}

absl::Status PutRow(SqliteDatabase& database, const StoreTable& table, SqlRow row, Seal& seal) {
  RETURN_IF_ERROR(
      DeleteRow(database, table, SqlRow(row.begin(), row.begin() + table.num_keys), seal));
  const uint32_t crc = table.Crc(row);
  ++seal.rows;
  seal.crc_sum += crc;
  row.emplace_back(int64_t{crc});
  std::string marks = "?1";
  for (size_t i = 2; i <= row.size(); ++i) absl::StrAppend(&marks, ", ?", i);
  return database
      .Run(absl::StrCat("INSERT INTO ", table.name, " (", absl::StrJoin(table.columns, ", "),
                        ", crc) VALUES (", marks, ")"),
           row)
      .status();
}

// Decodes every row of `table` and passes it to `take`; `seal` counts the rows.
template <typename Decode, typename Take>
absl::Status ReadRows(SqliteDatabase& database, const StoreTable& table, Seal& seal, Decode decode,
                      Take take) {
  ASSIGN_OR_RETURN(const std::vector<SqlRow> rows,
                   database.Run(absl::StrCat("SELECT ", absl::StrJoin(table.columns, ", "),
                                             ", crc FROM ", table.name)));
  for (SqlRow row : rows) {
    const auto* stored = std::get_if<int64_t>(&row.back());
    const uint64_t crc = stored == nullptr ? 0 : static_cast<uint64_t>(*stored);
    row.pop_back();
    if (stored == nullptr || crc != table.Crc(row))
      return database.Damaged(absl::StrCat("a row of table ", table.name,
                                           " does not have the checksum of its content"));
    ++seal.rows;
    seal.crc_sum += crc;
    auto decoded = decode(row);
    if (!decoded.ok())
      return database.Damaged(
          absl::StrCat("a row of table ", table.name, ": ", decoded.status().message()));
    take(*std::move(decoded));
  }
  return absl::OkStatus();
}

absl::StatusOr<StoredJob> ReadAll(SqliteDatabase& database) {
  StoreChange all;
  Seal found;
  RETURN_IF_ERROR(
      ReadRows(database, JobTable(), found, DecodeJob, [&](JobRow row) { all.job = row; }));
  RETURN_IF_ERROR(ReadRows(database, VariableTable(), found, DecodeVariable,
                           [&](VariableRow row) { all.put_variables.push_back(std::move(row)); }));
  RETURN_IF_ERROR(ReadRows(database, CheckpointTable(), found, DecodeCheckpoint,
                           [&](CheckpointRow row) { all.put_checkpoints.push_back(row); }));
  RETURN_IF_ERROR(ReadRows(database, StateTable(), found, DecodeState,
                           [&](StateRow row) { all.state = std::move(row); }));
  ASSIGN_OR_RETURN(const Seal sealed, ReadSeal(database));
  if (!(found == sealed))
    return database.Damaged("rows are missing, or are older versions of themselves");
  StoredJob job;
  Apply(all, job);
  return job;
}

absl::Status WriteRows(SqliteDatabase& database, const StoreChange& change) {
  ASSIGN_OR_RETURN(Seal seal, ReadSeal(database));
  if (change.job) RETURN_IF_ERROR(PutRow(database, JobTable(), Encode(*change.job), seal));
  for (const VariableRow& row : change.put_variables)
    RETURN_IF_ERROR(PutRow(database, VariableTable(), Encode(row), seal));
  for (const VariableId id : change.deleted_variables)
    RETURN_IF_ERROR(DeleteRow(database, VariableTable(), KeyOf(id), seal));
  for (const CheckpointRow& row : change.put_checkpoints)
    RETURN_IF_ERROR(PutRow(database, CheckpointTable(), Encode(row), seal));
  for (const CheckpointId id : change.deleted_checkpoints)
    RETURN_IF_ERROR(DeleteRow(database, CheckpointTable(), KeyOf(id), seal));
  if (change.state) RETURN_IF_ERROR(PutRow(database, StateTable(), Encode(*change.state), seal));
  return WriteSeal(database, seal);
}

// Runs `body` with the database as a transaction: everything that it writes is kept, or nothing.
template <typename Body>
absl::Status InTransaction(SqliteDatabase& database, Body body) {
  RETURN_IF_ERROR(database.Run("BEGIN EXCLUSIVE"));
  absl::Status written = body(database);
  if (written.ok()) written = database.Run("COMMIT").status();
  if (!written.ok()) database.Rollback();
  return written;
}

// ---- the schema ----

absl::Status WriteVersion(SqliteDatabase& database) {
  return database.Run(absl::StrCat("PRAGMA user_version = ", kSchemaVersion)).status();
}

absl::Status MakeSchema(SqliteDatabase& database) {
  for (const StoreTable* const* table = Tables(); *table != nullptr; ++table)
    RETURN_IF_ERROR(database.Run((*table)->create));
  RETURN_IF_ERROR(database.Run(kCreateSeal));
  RETURN_IF_ERROR(WriteSeal(database, {}));
  RETURN_IF_ERROR(database.Run(absl::StrCat("PRAGMA application_id = ", kApplicationId)));
  return WriteVersion(database);
}

// Schema 1 was a table `job` without checksums, next_serial and the other tables.
absl::Status MigrateFrom1(SqliteDatabase& database) {
  ASSIGN_OR_RETURN(std::vector<SqlRow> rows,
                   database.Run("SELECT id, job_id, state, epoch, lineage, id_block_end, "
                                "next_variable_id, 1, exit_code FROM job"));
  RETURN_IF_ERROR(database.Run("DROP TABLE job"));
  RETURN_IF_ERROR(MakeSchema(database));
  Seal seal;
  for (SqlRow& row : rows) RETURN_IF_ERROR(PutRow(database, JobTable(), std::move(row), seal));
  return WriteSeal(database, seal);
}

// Schema 2 had no table `state`. Its rows of variables do not describe what servers hold, and
// without a row of `state` nothing is adopted.
absl::Status MigrateFrom2(SqliteDatabase& database) {
  RETURN_IF_ERROR(database.Run(StateTable().create));
  return WriteVersion(database);
}

// Schema 3 had the former hash of the layout in its row of `state`, which is read as well
// (Layout::FormerHash).
absl::Status MigrateFrom3(SqliteDatabase& database) {
  return WriteVersion(database);
}

// Makes sure that the file is a store of this version. An empty file, or a store of an older
// version, is converted.
absl::Status MakeOrMigrate(SqliteDatabase& database) {
  ASSIGN_OR_RETURN(const int64_t tables, database.Number("SELECT count(*) FROM sqlite_schema"));
  ASSIGN_OR_RETURN(const int64_t application, database.Number("PRAGMA application_id"));
  ASSIGN_OR_RETURN(const int64_t version, database.Number("PRAGMA user_version"));
  if (tables == 0 && application == 0 && version == 0) return MakeSchema(database);
  if (application != kApplicationId) {
    return absl::FailedPreconditionError(absl::StrCat(
        database.path(),
        ": this is another program's database. Give a --state_dir that is Divvy's alone"));
  }
  if (version == 1) return MigrateFrom1(database);
  if (version == 2) return MigrateFrom2(database);
  if (version == 3) return MigrateFrom3(database);
  if (version == kSchemaVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      database.path(), ": written by another version of Divvy (schema ", version,
      ", this one reads 1 to ", kSchemaVersion,
      "). Run the coordinator that wrote it, or give an empty --state_dir to begin a new job"));
}

// ---- scrubbing ----

// Checks that the tables are exactly those that MakeSchema makes. With a flipped bit in a name or
// type, rows could be misread.
absl::Status CheckTables(SqliteDatabase& database) {
  std::map<std::string, std::string> wanted = {{kSealTable, kCreateSeal}};
  for (const StoreTable* const* table = Tables(); *table != nullptr; ++table)
    wanted[(*table)->name] = (*table)->create;
  ASSIGN_OR_RETURN(const std::vector<SqlRow> rows,
                   database.Run("SELECT type, name, tbl_name, sql FROM sqlite_schema"));
  for (const SqlRow& row : rows) {
    const auto* name = std::get_if<std::string>(&row[1]);
    const auto table = name == nullptr ? wanted.end() : wanted.find(*name);
    if (table == wanted.end() ||
        row != SqlRow{std::string("table"), table->first, table->first, table->second}) {
      return database.Damaged("its tables are not those of a store");
    }
    wanted.erase(table);
  }
  return wanted.empty() ? absl::OkStatus()
                        : database.Damaged(absl::StrCat("it has no table ", wanted.begin()->first));
}

// Checks SQLite's own structure: pages, their order and their free lists. This does not detect a
// change in a row's content; the rows' checksums do.
absl::Status CheckStructure(SqliteDatabase& database) {
  ASSIGN_OR_RETURN(const std::vector<SqlRow> rows, database.Run("PRAGMA integrity_check(1)"));
  const auto* answer = rows.empty() ? nullptr : std::get_if<std::string>(&rows[0][0]);
  if (answer != nullptr && *answer == "ok") return absl::OkStatus();
  return database.Damaged(answer == nullptr ? "its pages cannot be checked" : *answer);
}

absl::Status CheckContent(SqliteDatabase& database) {
  RETURN_IF_ERROR(CheckTables(database));
  return ReadAll(database).status();
}

absl::Status Prepare(SqliteDatabase& database) {
  RETURN_IF_ERROR(database.Open());
  // The mode is set before the first lock is taken, so that the lock is kept.
  RETURN_IF_ERROR(database.Run("PRAGMA locking_mode = EXCLUSIVE"));
  // EXTRA also syncs the removal of a journal. A new file is switched to a write-ahead log in a
  // transaction that uses a rollback journal. Without that sync, the journal could come back after
  // a power cut and roll the file back to nothing.
  RETURN_IF_ERROR(database.Run("PRAGMA synchronous = EXTRA"));
  RETURN_IF_ERROR(database.Run("PRAGMA journal_mode = WAL"));
  // Each change calls CarryLogOver itself, and so it sees the errors.
  RETURN_IF_ERROR(database.Run("PRAGMA wal_autocheckpoint = 0"));
  RETURN_IF_ERROR(database.Run("PRAGMA temp_store = MEMORY"));
  RETURN_IF_ERROR(database.Run("PRAGMA cell_size_check = ON"));
  // The structure is checked before anything is written, because a write into a damaged file could
  // overwrite good data.
  RETURN_IF_ERROR(CheckStructure(database));
  RETURN_IF_ERROR(InTransaction(database, MakeOrMigrate));
  RETURN_IF_ERROR(database.CheckWritable());
  RETURN_IF_ERROR(CheckContent(database));
  return database.CarryLogOver();
}

}  // namespace

struct SqliteStore::State {
  struct Write {
    StoreChange change;
    std::function<void(absl::Status)> done;
  };

  State(std::string path, Executor& executor)
      : path(std::move(path)), executor(executor), database(this->path) {}

  void EndWritingLocked() DIVVY_REQUIRES(mu) {
    writing = false;
    idle.NotifyAll();
  }
  void EndWriting() {
    MutexLock lock(mu);
    EndWritingLocked();
  }

  absl::Status Closed() const {
    return absl::FailedPreconditionError(absl::StrCat(path, ": the store is closed"));
  }

  absl::Status WriteChange(const StoreChange& change) DIVVY_REQUIRES(database_mu) {
    RETURN_IF_ERROR(broken);
    absl::Status written = InTransaction(
        database, [&](SqliteDatabase& open_database) { return WriteRows(open_database, change); });
    if (!written.ok()) {
      if (database.DeviceFailed() || absl::IsDataLoss(written)) Break(written);
      return written;
    }
    // The change is durable in the log. If the file has no room for it, the next change tries
    // again. After a device failure nothing is tried again.
    const absl::Status carried = database.CarryLogOver();
    if (!database.DeviceFailed() && !absl::IsDataLoss(carried)) return absl::OkStatus();
    Break(carried);
    return carried;
  }
  void Break(const absl::Status& why) DIVVY_REQUIRES(database_mu) {
    broken = why;
    database.KeepLogOnClose();
  }

  const std::string path;
  Executor& executor;
  Mutex mu;
  CondVar idle;
  std::deque<Write> writes DIVVY_GUARDED_BY(mu);
  // Whether a Writer exists.
  bool writing DIVVY_GUARDED_BY(mu) = false;
  bool closed DIVVY_GUARDED_BY(mu) = false;
  // Never held together with mu.
  Mutex database_mu;
  SqliteDatabase database DIVVY_GUARDED_BY(database_mu);
  bool open DIVVY_GUARDED_BY(database_mu) = false;
  // Not OK: nothing more is written, and every change gets this error.
  absl::Status broken DIVVY_GUARDED_BY(database_mu);
};

namespace {

// Writes changes until none are left. An executor that stops destroys tasks that have not begun. In
// that case the destructor clears State::writing, so that Close does not wait for ever.
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
        written = state_->WriteChange(write.change);
      }
      write.done(std::move(written));
    }
  }

 private:
  const std::shared_ptr<State> state_;
  bool ran_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> SqliteStore::Open(const std::string& state_dir,
                                                         Executor& executor) {
  if (absl::Status made = FileSystem::Real().CreateDurableDirectory(state_dir); !made.ok()) {
    // PermissionDenied is the code for missing rights of a certificate.
    const absl::StatusCode code =
        absl::IsPermissionDenied(made) ? absl::StatusCode::kFailedPrecondition : made.code();
    return absl::Status(
        code, absl::StrCat(made.message(),
                           ". --state_dir must be a directory that the coordinator may write"));
  }
  auto state = std::make_shared<State>(absl::StrCat(state_dir, "/divvy.db"), executor);
  MutexLock lock(state->database_mu);
  RETURN_IF_ERROR(Prepare(state->database));
  state->open = true;
  return std::unique_ptr<Store>(new SqliteStore(state));
}

void SqliteStore::Close() {
  {
    MutexLock lock(state_->mu);
    state_->closed = true;
    state_->idle.Wait(state_->mu, [this]() DIVVY_REQUIRES(state_->mu) { return !state_->writing; });
  }
  MutexLock lock(state_->database_mu);
  state_->open = false;
  // The database is closed before this function returns, so that the next Open can take the lock.
  state_->database.Close();
}

absl::StatusOr<StoredJob> SqliteStore::Load() {
  MutexLock lock(state_->database_mu);
  if (!state_->open) return state_->Closed();
  return ReadAll(state_->database);
}

absl::Status SqliteStore::Scrub() {
  MutexLock lock(state_->database_mu);
  if (!state_->open) return state_->Closed();
  state_->database.ForgetPages();
  absl::Status scrubbed = CheckStructure(state_->database);
  if (scrubbed.ok()) scrubbed = CheckContent(state_->database);
  if (absl::IsDataLoss(scrubbed)) state_->Break(scrubbed);
  return scrubbed;
}

void SqliteStore::Put(StoreChange change, std::function<void(absl::Status)> done) {
  {
    MutexLock lock(state_->mu);
    if (state_->closed)
      return state_->executor.Post(
          [done = std::move(done), refused = state_->Closed()] { done(refused); });
    state_->writes.push_back({std::move(change), std::move(done)});
    if (std::exchange(state_->writing, true)) return;
  }
  state_->executor.PostBlocking(
      "store", [writer = std::make_shared<Writer<State>>(state_)] { writer->Run(); });
}

}  // namespace divvy
