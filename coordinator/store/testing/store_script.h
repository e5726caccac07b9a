// A short version of the changes that a coordinator stores in its life, for tests that interrupt it
// at every point.
#ifndef DIVVY_COORDINATOR_STORE_TESTING_STORE_SCRIPT_H_
#define DIVVY_COORDINATOR_STORE_TESTING_STORE_SCRIPT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/executor.h"
#include "coordinator/core/store.h"
#include "coordinator/store/sqlite_database.h"

namespace divvy {

// Runs every task immediately on the caller's thread, so the order of writes is known.
class InlineExecutor : public Executor {
 public:
  void Post(Task task) override { task(); }
  void PostAfter(absl::Duration, Task task) override { task(); }
  void PostBlocking(std::string, Task task) override { task(); }
};

// Puts `change` and returns the status that `done` got. REQUIRES: the store is on an
// InlineExecutor.
absl::Status PutInline(Store& store, StoreChange change);

// The whole content of a store, for comparison.
struct StoreContent {
  SqlRow job;
  std::vector<SqlRow> variables, checkpoints;
  SqlRow state;
};
bool operator==(const StoreContent& a, const StoreContent& b);
// The content as rows, without checksums.
StoreContent ContentOf(const StoredJob& stored);

// Sample rows.
JobRow JobOfEpoch(uint64_t epoch);
// With some 1000 shards or more, its row is larger than a page.
VariableRow VariableOf(uint32_t id, int shards = 1);
StateRow StateRowOf(StateRow::Held held, int64_t finished_steps, std::string program_state);
CheckpointRow CheckpointOf(uint64_t serial, CheckpointRow::State state);

// Changes in which rows of every table are added, changed and removed.
std::vector<StoreChange> StoreScript();
// Element i is the content of a store after the first i changes of `script`.
std::vector<StoreContent> StatesOf(const std::vector<StoreChange>& script);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_STORE_TESTING_STORE_SCRIPT_H_
