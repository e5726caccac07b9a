// The shape of a tensor: its extent along each axis.
#ifndef DIVVY_TENSOR_SHAPE_H_
#define DIVVY_TENSOR_SHAPE_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace divvy {

// The dimensions of a tensor: up to 8. The number of elements is computed with overflow checks. A
// dimension of -1 means "infer" or "varies", where a function says so. A plain value.
//
// A shape is *invalid* if it has a dimension below -1, too many dimensions, or too many elements
// for an int64. An invalid shape has rank 0 and an error in status(), and every function that takes
// a shape refuses it. The overflow check multiplies all dimensions above 0, so a dimension of 0
// does not make a shape valid whose other dimensions overflow.
//
//   Shape images{64, 28, 28};     images.rows() == 64;   images.row_elements() == 784;
//                                 images.dim(-1) == 28
//   // Dimensions known at run time: check status() before computing with the shape.
//   Shape shape(absl::MakeConstSpan(dims));
class Shape {
 public:
  static constexpr int kMaxRank = 8;

  // Never fails: check status() of a shape whose dimensions come from outside the program.
  Shape() = default;  // rank 0: one element
  Shape(std::initializer_list<int64_t> dims)
      : Shape(absl::MakeConstSpan(dims.begin(), dims.size())) {}
  explicit Shape(absl::Span<const int64_t> dims);

  // Also 0 for an invalid shape.
  int rank() const { return rank_; }
  // The extent of one axis; a negative axis counts from the end. REQUIRES: -rank() <= axis < rank()
  int64_t dim(int axis) const { return dims_[axis < 0 ? axis + rank_ : axis]; }
  // All extents. The span is valid while this shape lives and is not assigned to.
  absl::Span<const int64_t> dims() const { return absl::MakeConstSpan(dims_.data(), rank_); }
  int64_t num_elements() const { return num_elements_; }  // -1 if some dimension is -1
  absl::Status status() const;                            // InvalidArgument: the shape is invalid
  std::string ToString() const;                           // "[64, 10]", "[]", "[invalid]"

  // The extent of axis 0, or -1 if it varies. A scalar has one row.
  int64_t rows() const { return rank_ == 0 ? 1 : dims_[0]; }
  // The number of elements of one row (a slice along axis 0); 1 for rank 0. REQUIRES: no dimension
  // after axis 0 is -1.
  int64_t row_elements() const;
  // The same shape with `rows` rows. The result is invalid if it has too many elements. REQUIRES:
  // rank() >= 1.
  Shape WithRows(int64_t rows) const;
  // The shape of rows of this one that ids of shape `ids` name: `ids`, then the dimensions of a
  // row. Invalid if it has too many dimensions or elements. REQUIRES: rank() >= 1.
  Shape WithRowsOf(absl::Span<const int64_t> ids) const;

  // A dimension of -1 equals only -1. All invalid shapes are equal.
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
