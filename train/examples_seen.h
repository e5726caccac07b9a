// Checks that a pass over data saw any examples.
#ifndef DIVVY_TRAIN_EXAMPLES_SEEN_H_
#define DIVVY_TRAIN_EXAMPLES_SEEN_H_

#include "absl/status/status.h"
#include "data/dataset.h"
#include "strategy/metrics.h"

namespace divvy {

// InvalidArgument: a pass over `data` saw no examples. This is a mistake in the data, not a result
// of 0. The message names the source and suggests causes. `metrics` are the metrics that the
// model's step returned for the pass.
absl::Status CheckExamplesSeen(const Metrics& metrics, const BoundDataSource& data);

}  // namespace divvy

#endif  // DIVVY_TRAIN_EXAMPLES_SEEN_H_
