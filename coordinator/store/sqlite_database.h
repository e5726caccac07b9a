// A connection to an SQLite file. Error messages say what an operator should do.
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

// A value of type BLOB.
struct Blob {
  std::string bytes;
};
inline bool operator==(const Blob& a, const Blob& b) { return a.bytes == b.bytes; }

// monostate: NULL or a REAL. Divvy writes neither.
using SqlValue = std::variant<std::monostate, int64_t, std::string, Blob>;
using SqlRow = std::vector<SqlValue>;

// Used by one thread at a time. A method that reads or writes the file blocks on the disk. Errors:
//   FailedPrecondition  another process holds the file, or it cannot be opened or written
//   ResourceExhausted   no space, or the device failed (DeviceFailed tells which)
//   DataLoss            the file is no database, is damaged, or has other tables than the
//                       statements name
//   Internal            any other error: a bug in Divvy
class SqliteDatabase {
 public:
  explicit SqliteDatabase(std::string path) : path_(std::move(path)) {}
  ~SqliteDatabase() { Close(); }
  SqliteDatabase(const SqliteDatabase&) = delete;

  // Opens the file, and makes it if it is missing.
  absl::Status Open();
  // Ends the connection and releases its lock. A second call does nothing.
  void Close();

  // Runs one statement with `values` bound in order, and returns its rows.
  absl::StatusOr<std::vector<SqlRow>> Run(const std::string& sql, const SqlRow& values = {});
  // The integer that `sql` selects; 0 if there is no row.
  absl::StatusOr<int64_t> Number(const std::string& sql);
  // FailedPrecondition: the file is read-only.
  absl::Status CheckWritable() const;
  // Ends a transaction that could not be completed. An error needs no handling: the file is as if
  // the transaction had never begun.
  void Rollback();
  // Copies everything in the write-ahead log into the file, and syncs the file. The log keeps its
  // length, because a file that keeps its length syncs faster. Later changes overwrite the log from
  // its beginning.
  absl::Status CarryLogOver();
  // The next read comes from the disk and not from SQLite's cache.
  void ForgetPages();
  // Close will leave the write-ahead log in place, as a killed process does.
  void KeepLogOnClose();

  // Whether the device has failed for a reason other than a lack of space. The data that was being
  // written may or may not be on the disk. Do not write again: a second sync may report success for
  // data that the first sync has dropped.
  bool DeviceFailed() const { return device_failed_; }
  const std::string& path() const { return path_; }
  // DataLoss with the remedy.
  absl::Status Damaged(const std::string& why) const;

 private:
  absl::Status Error(int code);

  const std::string path_;
  sqlite3* handle_ = nullptr;
  bool device_failed_ = false;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_STORE_SQLITE_DATABASE_H_
