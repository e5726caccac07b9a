// What Coordinator::Export writes.
#ifndef DIVVY_STRATEGY_EXPORT_OPTIONS_H_
#define DIVVY_STRATEGY_EXPORT_OPTIONS_H_

namespace divvy {

struct ExportOptions {
  // Of optimizers, too, for another program that trains on. Without them it is what predicts: of an
  // Adam's tensors a third.
  bool slots = true;
};

}  // namespace divvy

#endif  // DIVVY_STRATEGY_EXPORT_OPTIONS_H_
