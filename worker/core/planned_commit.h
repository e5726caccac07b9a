// Plans the commits of a step: which writes go to which parameter server. Planning needs no lock,
// because sorting, summing and copying a gigabyte of rows takes seconds.
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
#include "absl/types/span.h"
#include "base/executor.h"
#include "protocol/messages.h"
#include "variables/layout.h"
#include "variables/transfer_plan.h"
#include "worker/core/step_transaction.h"

namespace divvy {

// Everything that a plan is made from. Immutable.
struct CommitWork {
  std::shared_ptr<const Layout> layout;
  std::shared_ptr<const SessionLinks> links;
  std::vector<StagedWrite> writes;  // their slots are in the layout
  int64_t ordinal = 0;
  double learning_rate_scale = 1;
  // Check the sums of gradient rows with equal ids, too: finite rows may have a sum that is not
  // finite.
  bool check_numerics = false;
  // Make histograms of the gradients.
  bool want_gradients = false;
};

struct PlannedCommit {
  // The layout that the commit was planned for. Under another layout the plan is useless.
  uint64_t layout_version = 0, layout_hash = 0;
  // The parts of the commit, by ps, or the error with which the step fails. NotFound: a variable
  // was deleted. InvalidArgument (marked as the user's): an invalid learning rate, a commit that is
  // too large, or a sum that is not finite. Internal: the session does not know a ps.
  absl::StatusOr<std::map<int, std::vector<CommitPart>>> parts;
  // As Report::gradients. Empty if they are not wanted.
  std::vector<GradientHistogram> gradients = {};

  bool IsFor(const Layout& layout) const {
    return layout_version == layout.version() && layout_hash == layout.hash();
  }
};

// Whether the write replaces values, of the whole variable or of some rows.
bool Assigns(const StagedWrite& write);

// The elements that histograms of gradients among `writes` are made from, if they are wanted.
// Reading 64 Ki of them, far from each other, takes a tenth of a millisecond to a millisecond.
int64_t SampledElements(absl::Span<const StagedWrite> writes);

// Plans on the caller's thread.
PlannedCommit PlanCommit(const CommitWork& work);

// Plans on threads of its own, several shards at a time. Then calls `done` once, on one of these
// threads. If the executor is stopped before, `done` is not called.
void PlanCommitOn(Executor& executor, std::shared_ptr<const CommitWork> work,
                  std::function<void(PlannedCommit)> done);

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_PLANNED_COMMIT_H_
