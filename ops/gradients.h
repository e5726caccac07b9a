// Gradients by variable name: the result of a tape, and the input of ApplyGradients.
#ifndef DIVVY_OPS_GRADIENTS_H_
#define DIVVY_OPS_GRADIENTS_H_

#include <map>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensor/nest.h"
#include "tensor/tensor.h"

namespace divvy {

// The gradient of one variable: dense, or by rows for a variable that was looked up.
using GradientValue = std::variant<Tensor, IndexedSlices>;

// Gradients by variable name. Any library may fill one. A value: a copy shares the tensors, but
// changing one copy does not change the other. Not thread-safe. The arithmetic takes the same
// dtypes as ops/ops.h; for another dtype it returns InvalidArgument, which names the variable.
class Gradients {
 public:
  // Sets the gradient of `variable`, replacing an earlier one.
  void Set(absl::string_view variable, GradientValue gradient);
  const std::map<std::string, GradientValue>& entries() const { return entries_; }

  // The l2 norm of all gradients together: the square root of the sum of the squares of all
  // elements, in double. Duplicate rows of IndexedSlices are not merged (as in
  // tf.linalg.global_norm). Infinite or NaN if an element is. Waits for the device.
  absl::StatusOr<double> GlobalNorm() const;
  // Scales all gradients by norm / GlobalNorm() if that is below 1. InvalidArgument, and nothing
  // changes: `norm` is not above 0, or the global norm is not finite. The message names a variable
  // at fault (TensorFlow would turn every gradient into NaN). Waits for the device.
  absl::Status ClipByGlobalNorm(double norm);
  // Multiplies all elements by `factor`.
  absl::Status Scale(double factor);

 private:
  std::map<std::string, GradientValue> entries_;
};

// Travels as a dict of tensors and IndexedSlices by variable. So replicas can reduce gradients
// (AllReduce) before they apply them.
template <>
struct NestCodec<Gradients> {
  static Nest Encode(const Gradients& gradients);
  static absl::StatusOr<Gradients> Decode(const Nest& nest);
};

// Sums the rows that have equal ids; in the result ids rise and are unique. Rows are added in the
// order in which they stand. On a GPU, rows whose ids a tape has looked up are added in any order,
// unless --deterministic is set.
//
// The rows stay on their device; the ids are on the CPU. The call waits for the device unless the
// ids come from a tape. Slices whose ids already rise without duplicates are returned as they are.
// InvalidArgument: the device does not compute with the dtype, or there is not one id for each row.
absl::StatusOr<IndexedSlices> SumDuplicates(const IndexedSlices& slices);

}  // namespace divvy

#endif  // DIVVY_OPS_GRADIENTS_H_
