// What a coordinator must not forget.
#ifndef DIVVY_COORDINATOR_CORE_STORE_H_
#define DIVVY_COORDINATOR_CORE_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "base/executor.h"
#include "cluster/ids.h"

namespace divvy {

// The one row of a job. What is in it was durable before anybody was told.
struct JobRow {
  enum class State : uint8_t { kNew, kRunning, kComplete, kFailed };
  JobId job;
  State state = State::kNew;
  Epoch epoch;                    // the last one begun
  Epoch lineage;                  // in which the ps' state was last loaded or cleared
  uint64_t id_block_end = 1;      // entry ids below are given or lost: a restart begins here
  uint32_t next_variable_id = 1;  // likewise
  int32_t exit_code = 0;          // kComplete and kFailed: what the job ended with
};

// Where the row is kept. Thread-safe. Writes take effect in the order they are given; one that fails took no effect.
class Store {
 public:
  virtual ~Store() = default;

  // The last row written; a new job's (kNew, job id 0) if there is none. Called once, before the coordinator serves: may block.
  virtual absl::StatusOr<JobRow> Load() = 0;

  // Makes `row` durable, then calls `done`, not from within. Does not block.
  virtual void Put(const JobRow& row, std::function<void(absl::Status)> done) = 0;
};

// Keeps the row for the life of the object: for embedded mode, and where no state directory is given. A coordinator that comes after another on the same
// MemoryStore finds its job again.
class MemoryStore : public Store {
 public:
  // REQUIRES: `executor` outlives every `done`.
  explicit MemoryStore(Executor& executor) : executor_(executor) {}
  absl::StatusOr<JobRow> Load() override {
    MutexLock lock(mu_);
    return row_;
  }
  void Put(const JobRow& row, std::function<void(absl::Status)> done) override {
    {
      MutexLock lock(mu_);
      row_ = row;
    }
    executor_.Post([done = std::move(done)] { done(absl::OkStatus()); });
  }

 private:
  Executor& executor_;
  Mutex mu_;
  JobRow row_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_STORE_H_
