// What a coordinator must not forget, in SQLite: <state_dir>/divvy.db.
//
// One table `job` of one row (the fields of JobRow), journal_mode=WAL, synchronous=FULL, locking_mode=EXCLUSIVE. The file says what it is: application_id
// "DVVY", user_version the version of the schema. A crash at any moment leaves the row of the last Put whose `done` was OK, or one given after it. The lock is
// the operating system's: it goes with the process, however that ends. Not for a directory on a network file system, whose locks do not hold.
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

// Thread-safe. Load blocks; Put does not: rows are written in their order by one blocking task of the executor, which also calls each `done`. A row that could
// not be written took no effect: ResourceExhausted (no space, or the device failed).
class SqliteStore : public Store {
 public:
  // Makes directory and file where they are missing. Blocks. Errors name the directory and what to do:
  //   FailedPrecondition  another coordinator holds it; it may not be written; it is of another version of Divvy; the file is another program's database
  //   DataLoss            the file is no database, or is damaged
  //   ResourceExhausted   no space, or the device failed
  //   others              the directory cannot be made
  // REQUIRES: `executor` outlives the store.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& state_dir, Executor& executor);
  // Waits for the rows given to Put, then lets the directory go.
  ~SqliteStore() override;

  absl::StatusOr<JobRow> Load() override;
  void Put(const JobRow& row, std::function<void(absl::Status)> done) override;

 private:
  struct State;
  explicit SqliteStore(std::shared_ptr<State> state) : state_(std::move(state)) {}

  const std::shared_ptr<State> state_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_STORE_SQLITE_STORE_H_
