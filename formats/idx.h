// IDX, the format of the MNIST files: 0, 0, type, rank, then rank extents (uint32), then the
// elements, row-major; all big-endian. Types: 8 uint8, 9 int8, 11 int16, 12 int32, 13 float32, 14
// float64.
#ifndef DIVVY_FORMATS_IDX_H_
#define DIVVY_FORMATS_IDX_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensor/tensor.h"

namespace divvy {

// The array in `bytes`, which is copied. int16 becomes int32, since tensors have no 16-bit
// integers; the other types stay. Pure. DataLoss, with the offset: a head that is none, a rank
// above Shape::kMaxRank, fewer or more bytes than the head says.
absl::StatusOr<Tensor> ParseIdx(absl::string_view bytes);

}  // namespace divvy

#endif  // DIVVY_FORMATS_IDX_H_
