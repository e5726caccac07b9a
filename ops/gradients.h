// Derivatives by variable name: what a tape gives and a replica applies.
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

using GradientValue = std::variant<Tensor, IndexedSlices>;

// Gradients by variable name. Any library may fill one. A value: copying shares the tensors, and
// what is changed here is not changed there. Not thread-safe. The arithmetic takes the dtypes of
// ops.h; another tensor is InvalidArgument and names its variable.
class Gradients {
 public:
  // Replaces what stood under this name.
  void Set(absl::string_view variable, GradientValue gradient);
  const std::map<std::string, GradientValue>& entries() const { return entries_; }

  // sqrt of the sum of the squares of all elements, in double. Rows of IndexedSlices count as they
  // stand, duplicates not merged (as tf.linalg.global_norm). Infinite or NaN where an element is.
  absl::StatusOr<double> GlobalNorm() const;
  // Scales all by norm / GlobalNorm() where that is below 1. InvalidArgument: norm is not above 0,
  // or the global norm is not finite; the message names a variable at fault (TensorFlow would turn
  // every gradient into NaN). Nothing is changed then.
  absl::Status ClipByGlobalNorm(double norm);
  // Multiplies all elements.
  absl::Status Scale(double factor);

 private:
  std::map<std::string, GradientValue> entries_;
};

// A dict of tensors and IndexedSlices by variable: so replicas may reduce gradients (AllReduce)
// before they use them.
template <>
struct NestCodec<Gradients> {
  static Nest Encode(const Gradients& gradients);
  static absl::StatusOr<Gradients> Decode(const Nest& nest);
};

// Rows with equal ids summed, in the order in which they stand (on a GPU, of ids that a tape has
// looked up: in any order, unless --deterministic): ids rising, each once. The rows stay on their
// device, whose sums are waited for where the ids come from elsewhere than a tape; the ids are on
// the CPU. What has no duplicates and rises is given back as it is. InvalidArgument: a dtype that
// is not computed with there, or not one id for each row.
absl::StatusOr<IndexedSlices> SumDuplicates(const IndexedSlices& slices);

}  // namespace divvy

#endif  // DIVVY_OPS_GRADIENTS_H_
