#include "wire/region.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace divvy::wire {

absl::StatusOr<Tensor> Region::Next(DType dtype, Shape shape) {
  ASSIGN_OR_RETURN(Tensor tensor, Tensor::Borrow(dtype, std::move(shape), data_ + used_, Device(),
                                                 [keeper = keeper_] {}));
  const int64_t size = tensor.size_bytes();
  if (size > bytes_ - used_)
    return absl::ResourceExhaustedError(absl::StrCat("a region of ", bytes_, " bytes has only ",
                                                     bytes_ - used_, " left for ", size));
  used_ = std::min(bytes_, used_ + RoomFor(size));
  return tensor;
}

void Region::Fill(absl::Span<const Tensor> tensors) {
  char* to = data_;
  for (const Tensor& tensor : tensors) {
    const int64_t size = tensor.size_bytes();
    if (size > 0) std::memcpy(to, tensor.data(), static_cast<size_t>(size));
    to += RoomFor(size);
  }
}

bool Region::Holds(absl::Span<const Tensor> tensors) const {
  const char* at = data_;
  for (const Tensor& tensor : tensors) {
    if (tensor.size_bytes() > 0 && tensor.data() != at) return false;
    at += RoomFor(tensor.size_bytes());
  }
  return true;
}

}  // namespace divvy::wire
