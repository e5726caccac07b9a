// A connection to a file of SQLite's, with errors that say what an operator does about them.
#ifndef DIVVY_COORDINATOR_STORE_SQLITE_DATABASE_H_
#define DIVVY_COORDINATOR_STORE_SQLITE_DATABASE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct sqlite3;

namespace divvy {

struct Blob {
  std::string bytes;
};
inline bool operator==(const Blob& a, const Blob& b) { return a.bytes == b.bytes; }

// monostate: NULL or a REAL, of which we write none.
using SqlValue = std::variant<std::monostate, int64_t, std::string, Blob>;
using SqlRow = std::vector<SqlValue>;

// Used by one thread at a time. Every method but Close blocks on the disk.
//   FailedPrecondition  another process holds the file, or it cannot be opened or written
//   ResourceExhausted   no space, or the device failed (DeviceFailed tells)
//   DataLoss            the file is no database, is damaged, or holds other tables than the
//                       statements name
//   Internal            others: a mistake of ours
class SqliteDatabase {
 public:
  explicit SqliteDatabase(std::string path) : path_(std::move(path)) {}
  ~SqliteDatabase() { Close(); }
  SqliteDatabase(const SqliteDatabase&) = delete;

  // Opens the file, made if it is missing.
  absl::Status Open();
  // Ends the connection and its lock. A second one does nothing.
  void Close();

  // Runs one statement with `values` bound in order; returns its rows.
  absl::StatusOr<std::vector<SqlRow>> Run(const std::string& sql, const SqlRow& values = {});
  // The one integer that `sql` asks for; 0 if it has no row.
  absl::StatusOr<int64_t> Number(const std::string& sql);
  // FailedPrecondition: the file can only be read.
  absl::Status CheckWritable() const;
  // Ends a transaction that could not be carried through. Nothing is to be done about an error: the
  // file is as if it had never begun.
  void Rollback();
  // Brings all that the write-ahead log holds into the file, and syncs it. The log keeps its bytes
  // (a file that keeps its length is synced sooner) until they are written over from its beginning.
  absl::Status CarryLogOver();
  // What is read next is read from the disk.
  void ForgetPages();
  // As a process that is killed does: Close will leave the write-ahead log as it is.
  void KeepLogOnClose();

  // Whether the device has failed (and not for lack of space): what was being written may be on the
  // disk or not, and a sync that is tried again may report success for what the first one dropped.
  bool DeviceFailed() const { return device_failed_; }
  const std::string& path() const { return path_; }
  absl::Status Damaged(const std::string& why) const;  // DataLoss, with the remedy

 private:
  absl::Status Error(int code);

  const std::string path_;
  sqlite3* handle_ = nullptr;
  bool device_failed_ = false;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_STORE_SQLITE_DATABASE_H_
