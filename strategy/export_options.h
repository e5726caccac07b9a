// What Coordinator::Export writes.
#ifndef DIVVY_STRATEGY_EXPORT_OPTIONS_H_
#define DIVVY_STRATEGY_EXPORT_OPTIONS_H_

namespace divvy {

// By name in C++20, else field by field.
struct ExportOptions {
  // Also export the optimizers' slots, which another program needs to continue training. Without
  // slots the export has what prediction needs: for Adam, a third of the tensors.
  bool slots = true;
};

}  // namespace divvy

#endif  // DIVVY_STRATEGY_EXPORT_OPTIONS_H_
