// Options of Coordinator::Export.
#ifndef DIVVY_STRATEGY_EXPORT_OPTIONS_H_
#define DIVVY_STRATEGY_EXPORT_OPTIONS_H_

#include "absl/time/time.h"

namespace divvy {

// Set the fields by name in C++20, else one by one.
struct ExportOptions {
  // Also export the optimizers' slots, which another program needs to continue training. Prediction
  // does not need them; with Adam they are two thirds of the tensors.
  bool slots = true;
  // The longest time that the export may take. It is checked before each block of rows, so a slow
  // disk may add the time of one block.
  absl::Duration timeout = absl::InfiniteDuration();
};

}  // namespace divvy

#endif  // DIVVY_STRATEGY_EXPORT_OPTIONS_H_
