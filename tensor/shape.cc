#include "tensor/shape.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace divvy {

Shape::Shape(absl::Span<const int64_t> dims) {
  if (dims.size() > kMaxRank) {
    valid_ = false;
    return;
  }
  bool unknown = false;
  for (const int64_t dim : dims) {
    if (dim < -1 || (dim > 0 && __builtin_mul_overflow(num_elements_, dim, &num_elements_))) {
      valid_ = false;
      rank_ = 0;
      num_elements_ = 1;
      return;
    }
    unknown = unknown || dim == -1;
    dims_[rank_++] = dim;
  }
  if (unknown) {
    num_elements_ = -1;
  } else if (std::find(dims.begin(), dims.end(), 0) != dims.end()) {
    num_elements_ = 0;
  }
}

absl::Status Shape::status() const {
  if (valid_) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "invalid shape: a dimension below -1, more than 8 dimensions, or more than 2^63 elements");
}

std::string Shape::ToString() const {
  if (!valid_) return "[invalid]";
  return absl::StrCat("[", absl::StrJoin(dims(), ", "), "]");
}

int64_t Shape::row_elements() const {
  int64_t elements = 1;
  for (int axis = 1; axis < rank_; ++axis) elements *= dims_[axis];
  return elements;
}

Shape Shape::WithRows(int64_t rows) const {
  std::array<int64_t, kMaxRank> dims = dims_;
  dims[0] = rows;
  return Shape(absl::MakeConstSpan(dims.data(), rank_));
}

Shape Shape::WithRowsOf(absl::Span<const int64_t> ids) const {
  std::vector<int64_t> dims(ids.begin(), ids.end());
  dims.insert(dims.end(), dims_.begin() + 1, dims_.begin() + rank_);
  return Shape(absl::MakeConstSpan(dims));
}

}  // namespace divvy
