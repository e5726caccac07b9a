// Compares the views that two tasks have of the cluster.
#ifndef DIVVY_CLUSTER_SAME_VIEW_H_
#define DIVVY_CLUSTER_SAME_VIEW_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "protocol/messages.h"

namespace divvy {

// Returns OK if the views of two tasks agree: a task that both views have has the same address in
// both, and no address belongs to two tasks. A view may have fewer tasks. Otherwise
// CLUSTER_MISMATCH, with the contradictions and the fix. `who` is the owner of `theirs` ("worker
// 1"). Pure.
absl::Status CheckSameView(const ClusterView& own, const ClusterView& theirs,
                           absl::string_view who);

}  // namespace divvy

#endif  // DIVVY_CLUSTER_SAME_VIEW_H_
