// IDX, the format of the MNIST files. A file is 0, 0, type, rank, then one extent for each axis
// (uint32), then the elements, row-major. All numbers are big-endian. Types: 8 uint8, 9 int8, 11
// int16, 12 int32, 13 float32, 14 float64.
#ifndef DIVVY_FORMATS_IDX_H_
#define DIVVY_FORMATS_IDX_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensor/tensor.h"

namespace divvy {

// The array in `bytes`, as a copy. int16 becomes int32, since tensors have no 16-bit integers; the
// other types stay. Pure. DataLoss, with the offset: the header is invalid, the rank is above
// Shape::kMaxRank, or there are fewer or more bytes than the header says.
absl::StatusOr<Tensor> ParseIdx(absl::string_view bytes);

}  // namespace divvy

#endif  // DIVVY_FORMATS_IDX_H_
