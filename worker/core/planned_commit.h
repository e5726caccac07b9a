// What a step's writes mean for each parameter server: planned without a lock, for a gigabyte of
// rows takes seconds to sort, sum and copy.
#ifndef DIVVY_WORKER_CORE_PLANNED_COMMIT_H_
#define DIVVY_WORKER_CORE_PLANNED_COMMIT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/executor.h"
#include "protocol/messages.h"
#include "variables/layout.h"
#include "variables/transfer_plan.h"
#include "worker/core/row_cache.h"
#include "worker/core/step_transaction.h"

namespace divvy {

// Everything that a plan is made from. Immutable.
struct CommitWork {
  std::shared_ptr<const Layout> layout;
  std::shared_ptr<const SessionLinks> links;
  std::vector<StagedWrite> writes;  // their slots are in the layout
  int64_t ordinal = 0;
  double learning_rate_scale = 1;
  // Of the rows of gradients once they are summed: each may be finite, and their sum not.
  bool check_numerics = false;
  // forgets the rows that are written; null: none are kept
  std::shared_ptr<RowCache> rows;
};

struct PlannedCommit {
  uint64_t layout_version = 0, layout_hash = 0;  // that it was planned for: of no use under another
  // By ps. Else why the step fails: NotFound (a variable was deleted), InvalidArgument (a learning
  // rate that cannot be, a commit too large, a sum that is not finite; marked as the user's),
  // Internal (a ps that the session does not know).
  absl::StatusOr<std::map<int, std::vector<CommitPart>>> parts;

  bool IsFor(const Layout& layout) const {
    return layout_version == layout.version() && layout_hash == layout.hash();
  }
};

// Whether the write replaces values, in part or whole.
bool Assigns(const StagedWrite& write);

// Plans on the caller's thread.
PlannedCommit PlanCommit(const CommitWork& work);

// Plans on threads of its own, a few shards at the same time; then `done` is called once, on one of
// them. Nothing is called if the executor is stopped before.
void PlanCommitOn(Executor& executor, std::shared_ptr<const CommitWork> work,
                  std::function<void(PlannedCommit)> done);

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_PLANNED_COMMIT_H_
