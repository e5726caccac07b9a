#include "coordinator/store/sqlite_database.h"

#include <sqlite3.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

constexpr char kWanted[] = "--state_dir must be a directory that the coordinator may write";

using Statement = std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)>;

struct Bind {
  sqlite3_stmt* statement;
  int at;
  int operator()(std::monostate) const { return sqlite3_bind_null(statement, at); }
  int operator()(int64_t value) const { return sqlite3_bind_int64(statement, at, value); }
  int operator()(const std::string& text) const {
    return sqlite3_bind_text64(statement, at, text.data(), text.size(), SQLITE_TRANSIENT,
                               SQLITE_UTF8);
  }
  int operator()(const Blob& blob) const {
    return sqlite3_bind_blob64(statement, at, blob.bytes.data(), blob.bytes.size(),
                               SQLITE_TRANSIENT);
  }
};

std::string BytesAt(sqlite3_stmt* statement, int column) {
  // Null if the value is empty.
  const void* bytes = sqlite3_column_blob(statement, column);
  return bytes == nullptr ? std::string()
                          : std::string(static_cast<const char*>(bytes),
                                        sqlite3_column_bytes(statement, column));
}

SqlRow RowAt(sqlite3_stmt* statement) {
  SqlRow row;
  for (int i = 0; i < sqlite3_column_count(statement); ++i) {
    switch (sqlite3_column_type(statement, i)) {
      case SQLITE_INTEGER: row.emplace_back(int64_t{sqlite3_column_int64(statement, i)}); break;
      case SQLITE_TEXT: row.emplace_back(BytesAt(statement, i)); break;
      case SQLITE_BLOB: row.emplace_back(Blob{BytesAt(statement, i)}); break;
      default: row.emplace_back();
    }
  }
  return row;
}

// Whether a write failed because the file may not grow. SQLite has the same error for that and for
// a device that failed. A file that may not grow is treated like a full disk: the change is undone,
// and other changes may succeed. REQUIRES: errno is as the failed call left it
// (sqlite3_system_errno returns 0 after a failed commit).
bool MayNotGrow(sqlite3* handle) {
  return sqlite3_extended_errcode(handle) == SQLITE_IOERR_WRITE && errno == EFBIG;
}

}  // namespace

absl::Status SqliteDatabase::Open() {
  const int code =
      sqlite3_open_v2(path_.c_str(), &handle_,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

void SqliteDatabase::Close() { sqlite3_close(std::exchange(handle_, nullptr)); }

absl::StatusOr<std::vector<SqlRow>> SqliteDatabase::Run(const std::string& sql,
                                                        const SqlRow& values) {
  sqlite3_stmt* raw = nullptr;
  int code = sqlite3_prepare_v2(handle_, sql.c_str(), -1, &raw, nullptr);
  const Statement statement(raw, sqlite3_finalize);
  for (size_t i = 0; code == SQLITE_OK && i < values.size(); ++i)
    code = std::visit(Bind{raw, static_cast<int>(i) + 1}, values[i]);
  if (code != SQLITE_OK) return Error(code);
  std::vector<SqlRow> rows;
  while ((code = sqlite3_step(raw)) == SQLITE_ROW) rows.push_back(RowAt(raw));
  if (code != SQLITE_DONE) return Error(code);
  return rows;
}

absl::StatusOr<int64_t> SqliteDatabase::Number(const std::string& sql) {
  ASSIGN_OR_RETURN(const std::vector<SqlRow> rows, Run(sql));
  if (rows.empty()) return 0;
  const auto* number = rows[0].empty() ? nullptr : std::get_if<int64_t>(&rows[0][0]);
  if (number == nullptr) return Damaged(absl::StrCat("the result is not a number: ", sql));
  return *number;
}

absl::Status SqliteDatabase::CheckWritable() const {
  if (sqlite3_db_readonly(handle_, "main") == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path_, ": can be read, but not written. ", kWanted));
}

void SqliteDatabase::Rollback() {
  if (sqlite3_get_autocommit(handle_) == 0)
    sqlite3_exec(handle_, "ROLLBACK", nullptr, nullptr, nullptr);
}

absl::Status SqliteDatabase::CarryLogOver() {
  const int code =
      sqlite3_wal_checkpoint_v2(handle_, nullptr, SQLITE_CHECKPOINT_RESTART, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

void SqliteDatabase::ForgetPages() { sqlite3_db_release_memory(handle_); }

void SqliteDatabase::KeepLogOnClose() {
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
}

absl::Status SqliteDatabase::Damaged(const std::string& why) const {
  return absl::DataLossError(absl::StrCat(
      path_, ": ", why,
      ". It cannot be trusted: move it away, or give an empty --state_dir, to begin a new job"));
}

absl::Status SqliteDatabase::Error(int code) {
  const bool may_not_grow = handle_ != nullptr && MayNotGrow(handle_);
  const std::string why = handle_ != nullptr ? sqlite3_errmsg(handle_) : sqlite3_errstr(code);
  const std::string what = absl::StrCat(path_, ": ", why);
  if (may_not_grow)
    return absl::ResourceExhaustedError(
        absl::StrCat(what,
                     ". It is as large as a file may be here: raise the limit (ulimit -f), or move "
                     "--state_dir"));
  device_failed_ |= (code & 0xff) == SQLITE_IOERR;
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::FailedPreconditionError(
          absl::StrCat(path_,
                       ": another coordinator holds this state directory. Stop it, or give this "
                       "one a --state_dir of its own"));
    // Divvy's statements are valid SQL, so the file has other tables, or a format that is not
    // SQLite's.
    case SQLITE_ERROR:
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT: return Damaged(why);
    case SQLITE_IOERR:
      return absl::ResourceExhaustedError(
          absl::StrCat(what, ". The disk of --state_dir has failed"));
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(
          absl::StrCat(what, ". Make room on the disk of --state_dir"));
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM: return absl::FailedPreconditionError(absl::StrCat(what, ". ", kWanted));
    default: return absl::InternalError(what);
  }
}

}  // namespace divvy
