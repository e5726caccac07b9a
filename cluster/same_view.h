// Whether two tasks mean the same cluster.
#ifndef DIVVY_CLUSTER_SAME_VIEW_H_
#define DIVVY_CLUSTER_SAME_VIEW_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "protocol/messages.h"

namespace divvy {

// CLUSTER_MISMATCH, naming the contradictions and the fix, unless what two tasks know of the
// cluster agrees: what both name has one address, and no address has two names. Knowing less is no
// contradiction. `who` is the owner of `theirs` ("worker 1"). Pure.
absl::Status CheckSameView(const ClusterView& own, const ClusterView& theirs,
                           absl::string_view who);

}  // namespace divvy

#endif  // DIVVY_CLUSTER_SAME_VIEW_H_
