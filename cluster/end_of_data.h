// The end of a dataset, as a step and its program see it.
#ifndef DIVVY_CLUSTER_END_OF_DATA_H_
#define DIVVY_CLUSTER_END_OF_DATA_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace divvy {

// OutOfRange of Reason::kEndOfData (cluster/error.h), by which it is known among others of its
// code. Both are pure and thread-safe.
absl::Status EndOfData(absl::string_view message);
bool IsEndOfData(const absl::Status& status);

}  // namespace divvy

#endif  // DIVVY_CLUSTER_END_OF_DATA_H_
