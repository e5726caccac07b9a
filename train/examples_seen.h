// Whether a pass over data saw any.
#ifndef DIVVY_TRAIN_EXAMPLES_SEEN_H_
#define DIVVY_TRAIN_EXAMPLES_SEEN_H_

#include "absl/status/status.h"
#include "data/dataset.h"
#include "strategy/metrics.h"

namespace divvy {

// A pass that saw nothing is a mistake in the data, not a result of 0: InvalidArgument, which names
// the source and where to look. `metrics`: what a model's step returned for the pass.
absl::Status CheckExamplesSeen(const Metrics& metrics, const BoundDataSource& data);

}  // namespace divvy

#endif  // DIVVY_TRAIN_EXAMPLES_SEEN_H_
