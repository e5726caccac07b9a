#include "coordinator/core/store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace divvy {
namespace {

VariableId IdOf(const VariableRow& row) { return row.layout.id; }
CheckpointId IdOf(const CheckpointRow& row) { return row.id; }

// Puts and deletes rows. `rows` are in the order of their ids.
template <typename Row, typename Id>
void ApplyRows(const std::vector<Row>& put, const std::vector<Id>& deleted,
               std::vector<Row>& rows) {
  const auto find = [&rows](Id id) {
    return std::lower_bound(rows.begin(), rows.end(), id,
                            [](const Row& row, Id wanted) { return IdOf(row) < wanted; });
  };
  for (const Id id : deleted) {
    const auto at = find(id);
    if (at != rows.end() && IdOf(*at) == id) rows.erase(at);
  }
  for (const Row& row : put) {
    const auto at = find(IdOf(row));
    if (at != rows.end() && IdOf(*at) == IdOf(row))
      *at = row;
    else
      rows.insert(at, row);
  }
}

}  // namespace

void Apply(const StoreChange& change, StoredJob& job) {
  if (change.job) job.job = *change.job;
  if (change.state) job.state = change.state;
  ApplyRows(change.put_variables, change.deleted_variables, job.variables);
  ApplyRows(change.put_checkpoints, change.deleted_checkpoints, job.checkpoints);
}

absl::StatusOr<StoredJob> MemoryStore::Load() {
  MutexLock lock(mu_);
  return job_;
}

void MemoryStore::Put(StoreChange change, std::function<void(absl::Status)> done) {
  {
    MutexLock lock(mu_);
    Apply(change, job_);
  }
  executor_.Post([done = std::move(done)] { done(absl::OkStatus()); });
}

}  // namespace divvy
