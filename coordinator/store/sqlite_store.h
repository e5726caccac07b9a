// What a coordinator must not forget, in SQLite: <state_dir>/divvy.db. docs/formats/state.md
// describes the file.
//
// journal_mode=WAL, synchronous=EXTRA, locking_mode=EXCLUSIVE. The file says what it is:
// application_id "DVVY", user_version the version of the schema. The lock is the operating
// system's: it goes with the process, however that ends. Not for a directory on a network file
// system, whose locks do not hold.
//
// A crash at any moment leaves the rows as they were after the last Put whose `done` was OK, or
// after one given later. A change is told to be done when it is in divvy.db itself: the log beside
// it (divvy.db-wal) then holds that one change at most, once more, so divvy.db alone is a whole
// copy, and no damage to the log can take back what was told. (With one exception: while the disk
// has no room for the file to grow, what the log alone holds is told, too.) Every row has its
// checksum, and the store one over all: a flipped bit anywhere is found, or changes no row. What
// cannot be found is a file that is whole and older: a copy put in place of a newer one.
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

// Thread-safe. Changes are written in their order by one blocking task of the executor, which also
// calls each `done`.
class SqliteStore : public Store {
 public:
  // Makes directory and file where they are missing; a file of an older version is made one of this
  // version, for good. Scrubs. Blocks. Errors name the directory and what to do:
  //   FailedPrecondition  another coordinator holds it; it may not be written; it is of a later
  //   version of Divvy; the file is another program's database DataLoss            the file is no
  //   database, or is damaged
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
