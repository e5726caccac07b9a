// What Coordinator::Export writes.
#ifndef DIVVY_STRATEGY_EXPORT_OPTIONS_H_
#define DIVVY_STRATEGY_EXPORT_OPTIONS_H_

#include "absl/time/time.h"

namespace divvy {

// By name in C++20, else field by field.
struct ExportOptions {
  // Also export the optimizers' slots, which another program needs to continue training. Without
  // slots the export has what prediction needs: for Adam, a third of the tensors.
  bool slots = true;
  // The longest time that the export may take. It is looked at before each block of rows, so a slow
  // disk may add the time of one block.
  absl::Duration timeout = absl::InfiniteDuration();
};

}  // namespace divvy

#endif  // DIVVY_STRATEGY_EXPORT_OPTIONS_H_
