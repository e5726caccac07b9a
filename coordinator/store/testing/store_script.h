// The changes that a coordinator puts in its life, in small: for tests that end it at every point.
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

// Runs every task at once, on the caller's thread: so it is known which write follows which.
class InlineExecutor : public Executor {
 public:
  void Post(Task task) override { task(); }
  void PostAfter(absl::Duration, Task task) override { task(); }
  void PostBlocking(std::string, Task task) override { task(); }
};

// Puts and says what became of it. REQUIRES: the store is on an InlineExecutor.
absl::Status PutInline(Store& store, StoreChange change);

// All that a store says it holds, to be compared.
struct StoreContent {
  SqlRow job;
  std::vector<SqlRow> variables, checkpoints;
  SqlRow state;
};
bool operator==(const StoreContent& a, const StoreContent& b);
StoreContent ContentOf(const StoredJob& stored);

// Rows to put.
JobRow JobOfEpoch(uint64_t epoch);
// From some 1000 shards on its row does not fit a page.
VariableRow VariableOf(uint32_t id, VariableRow::State state, int shards = 1);
StateRow StateRowOf(StateRow::Held held, int64_t finished_steps, std::string program_state);
CheckpointRow CheckpointOf(uint64_t serial, CheckpointRow::State state);

// Rows of every table that come, change and go.
std::vector<StoreChange> StoreScript();
// [i]: what a store holds after the first i changes of `script`.
std::vector<StoreContent> StatesOf(const std::vector<StoreChange>& script);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_STORE_TESTING_STORE_SCRIPT_H_
