// The durable state of a coordinator in SQLite: <state_dir>/divvy.db. docs/formats/state.md
// describes the file.
//
// journal_mode=WAL, synchronous=EXTRA, locking_mode=EXCLUSIVE. The file identifies itself:
// application_id is "DVVY", and user_version is the version of the schema. The lock belongs to the
// operating system and ends with the process, however the process ends. Do not use a directory on a
// network file system, because file locks are not reliable there.
//
// A crash at any moment leaves the rows as they were after the last Put whose `done` got OK, or
// after a later Put. `done` gets OK only when the change is in divvy.db itself. The log beside it
// (divvy.db-wal) then holds at most a second copy of that one change. So divvy.db alone is a
// complete copy, and no damage to the log can undo an acknowledged change. There is one exception:
// while the disk has no room for divvy.db to grow, a change is also acknowledged when only the log
// has it.
//
// Every row has a checksum, and the store has one over all rows. A flipped bit anywhere is
// detected, or changes no row. A whole but older file that replaces a newer one cannot be detected.
#ifndef DIVVY_COORDINATOR_STORE_SQLITE_STORE_H_
#define DIVVY_COORDINATOR_STORE_SQLITE_STORE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "coordinator/core/store.h"

namespace divvy {

// Thread-safe. One blocking task of the executor writes the changes in order and calls each `done`.
class SqliteStore : public Store {
 public:
  // Opens the store, and makes the directory and the file if they are missing. A file of an older
  // version is converted to this version for good. Scrubs the content. Blocks. Errors name the
  // directory and the remedy:
  //   FailedPrecondition  another coordinator holds the store; it cannot be written; a later
  //                       version of Divvy wrote it; or the file is another program's database
  //   DataLoss            the file is no database, or is damaged
  //   ResourceExhausted   no space, or the device failed
  //   others              the directory cannot be made
  // REQUIRES: `executor` outlives the store.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& state_dir,
                                                     Executor& executor);
  ~SqliteStore() override { Close(); }

  absl::StatusOr<StoredJob> Load() override;
  void Put(StoreChange change, std::function<void(absl::Status)> done) override;
  void Close() override;
  absl::Status Scrub() override;

 private:
  struct State;
  explicit SqliteStore(std::shared_ptr<State> state) : state_(std::move(state)) {}

  const std::shared_ptr<State> state_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_STORE_SQLITE_STORE_H_
