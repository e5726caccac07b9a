// Error messages of a backend for bad data. The CPU returns them at once. A GPU reports them with
// the next copy to the CPU, in the same words followed by the name of the GPU.
#ifndef DIVVY_OPS_DATA_ERRORS_H_
#define DIVVY_OPS_DATA_ERRORS_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace divvy::internal {

// `position` counts all ids in row-major order. REQUIRES: the table's rank >= 1.
inline std::string IdOutOfRange(int64_t id, int64_t position, DType dtype, const Shape& table) {
  return absl::StrCat("Gather: id ", id, " at ", position, " is outside [0, ", table.dim(0),
                      "), the rows of ", DTypeName(dtype), " ", table.ToString());
}

// logits: [examples, classes].
inline std::string LabelOutOfRange(int64_t label, int64_t example, DType dtype,
                                   const Shape& logits) {
  return absl::StrCat("SoftmaxCrossEntropy: label ", label, " of example ", example,
                      " is outside [0, ", logits.dim(1), "): the logits, ", DTypeName(dtype), " ",
                      logits.ToString(), ", have ", logits.dim(1), " classes");
}

// `position` counts all elements of [examples, classes] in row-major order.
inline std::string ProbabilityOutOfRange(double probability, int64_t position, DType dtype,
                                         const Shape& logits) {
  const int64_t classes = logits.dim(1);
  return absl::StrCat("SoftmaxCrossEntropy: probability ", probability, " of example ",
                      position / classes, ", class ", position % classes,
                      ", is outside [0, 1]: labels of the shape of the logits, ", DTypeName(dtype),
                      " ", logits.ToString(),
                      ", are probabilities; numbers of classes are integers [batch]");
}

// For a label that should be 0, 1 or a probability. `position` counts all elements of `labels`, an
// array of examples, in row-major order. `operation` may also be a metric.
inline std::string LabelNotInUnit(absl::string_view operation, double label, int64_t position,
                                  const Shape& labels) {
  const int64_t rows = labels.rank() == 0 ? 1 : labels.dim(0);
  return absl::StrCat(
      operation, ": label ", label, " of example ", position / (labels.num_elements() / rows),
      " is outside [0, 1]: make the labels 0 and 1. Dataset::Libsvm does for files with -1 and +1 "
      "(LibsvmLabels::kBinary) or 1 and 2 (kOneTwo); "
      "else Map the data, or write Maximum(labels, 0) for -1 and +1, labels - 1 for 1 and 2");
}

// The index of the first of n numbers that is outside [0, 1] (a NaN is), or -1 if there is none.
template <typename T>
int64_t FirstOutsideUnit(const T* numbers, int64_t n) {
  int64_t outside = 0;
  // Without a branch, because it nearly always finds nothing.
  for (int64_t i = 0; i < n; ++i) outside += !(numbers[i] >= T(0)) | !(numbers[i] <= T(1));
  if (outside == 0) return -1;
  int64_t first = 0;
  while (numbers[first] >= T(0) && numbers[first] <= T(1)) ++first;
  return first;
}

}  // namespace divvy::internal

#endif  // DIVVY_OPS_DATA_ERRORS_H_
