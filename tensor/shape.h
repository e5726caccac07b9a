// The extents of a tensor.
#ifndef DIVVY_TENSOR_SHAPE_H_
#define DIVVY_TENSOR_SHAPE_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace divvy {

// Up to 8 dimensions; the element count is a checked product. -1 stands for "infer" or "varies"
// where a function says so. A value type: a shape that cannot be (a dimension below -1, too many
// dimensions, an element count past int64) is *invalid*: it has rank 0 and a status, and is refused
// by whatever is given it. The product is that of all dimensions above 0: a 0 beside them does not
// save a shape.
//
//   Shape images{64, 28, 28};     images.rows() == 64;   images.row_elements() == 784;
//                                 images.dim(-1) == 28
//   Shape(absl::MakeConstSpan(dims))    of dimensions known at run time; look at status() before it
//                                       is used for arithmetic
class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;  // rank 0: one element
  Shape(std::initializer_list<int64_t> dims)
      : Shape(absl::MakeConstSpan(dims.begin(), dims.size())) {}
  explicit Shape(absl::Span<const int64_t> dims);

  // 0 of an invalid shape, too
  int rank() const { return rank_; }
  // REQUIRES: -rank() <= axis < rank()
  int64_t dim(int axis) const { return dims_[axis < 0 ? axis + rank_ : axis]; }
  // Valid while this shape lives and is not assigned to.
  absl::Span<const int64_t> dims() const { return absl::MakeConstSpan(dims_.data(), rank_); }
  int64_t num_elements() const { return num_elements_; }  // -1 if some dimension is -1
  absl::Status status() const;                            // InvalidArgument: an invalid shape
  std::string ToString() const;                           // "[64, 10]", "[]", "[invalid]"

  // along axis 0, -1 if that varies; a scalar is one row
  int64_t rows() const { return rank_ == 0 ? 1 : dims_[0]; }
  // Elements of one row (a slice along axis 0); 1 for rank 0. REQUIRES: no dimension behind axis 0
  // is -1.
  int64_t row_elements() const;
  // The same shape with `rows` rows: invalid if it then has too many elements. REQUIRES: rank() >=
  // 1.
  Shape WithRows(int64_t rows) const;

  // -1 equals -1 alone; all invalid shapes are equal.
  friend bool operator==(const Shape& a, const Shape& b) {
    return a.valid_ == b.valid_ && a.dims() == b.dims();
  }
  friend bool operator!=(const Shape& a, const Shape& b) { return !(a == b); }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int64_t num_elements_ = 1;
  int8_t rank_ = 0;
  bool valid_ = true;
};

}  // namespace divvy

#endif  // DIVVY_TENSOR_SHAPE_H_
