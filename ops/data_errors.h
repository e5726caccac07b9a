// What a backend says of data that it finds wrong: at once on the CPU, on a GPU with the next value that it brings. In the same words, after which a GPU names
// itself.
#ifndef DIVVY_OPS_DATA_ERRORS_H_
#define DIVVY_OPS_DATA_ERRORS_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace divvy::internal {

// The id at `position`, all of them counted in one row. REQUIRES: the table's rank >= 1.
inline std::string IdOutOfRange(int64_t id, int64_t position, DType dtype, const Shape& table) {
  return absl::StrCat("Gather: id ", id, " at ", position, " is outside [0, ", table.dim(0), "), the rows of ", DTypeName(dtype), " ", table.ToString());
}

// logits: [examples, classes].
inline std::string LabelOutOfRange(int64_t label, int64_t example, DType dtype, const Shape& logits) {
  return absl::StrCat("SoftmaxCrossEntropy: label ", label, " of example ", example, " is outside [0, ", logits.dim(1), "): the logits, ", DTypeName(dtype),
                      " ", logits.ToString(), ", have ", logits.dim(1), " classes");
}

}  // namespace divvy::internal

#endif  // DIVVY_OPS_DATA_ERRORS_H_
