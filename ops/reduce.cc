// Sums, means and maxima.
#include "ops/operation.h"

namespace divvy {
namespace {

using internal::Backend;
using internal::BinaryOp;
using internal::GradientList;
using internal::InvalidOperands;

// The shape with 1 in place of each reduced axis, and the shape without them.
struct Reduced {
  Shape kept;
  Shape dropped;
};

absl::StatusOr<Reduced> ReducedShape(absl::string_view operation, const Shape& shape,
                                     const std::vector<int>& axes) {
  std::vector<bool> reduced(shape.rank(), false);
  for (int axis : axes) {
    ASSIGN_OR_RETURN(const int index, internal::AxisOf(operation, shape, axis));
    if (reduced[index])
      return InvalidOperands(operation, "axis ", axis, " of ", shape.ToString(), " is named twice");
    reduced[index] = true;
  }
  std::vector<int64_t> kept, dropped;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    kept.push_back(reduced[axis] ? 1 : shape.dim(axis));
    if (!reduced[axis]) dropped.push_back(shape.dim(axis));
  }
  return Reduced{Shape(kept), Shape(dropped)};
}

std::vector<int> AllAxes(const Var& x) {
  std::vector<int> axes(x.shape().rank());
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int>(i);
  return axes;
}

enum class Reduction { kSum, kMean };

absl::StatusOr<Var> TryReduce(absl::string_view operation, Reduction reduction, const Var& x,
                              const std::vector<int>& axes) {
  ASSIGN_OR_RETURN(const Backend* backend, internal::Prepare(operation, {x}));
  const Tensor& value = internal::ValueOf(x);
  RETURN_IF_ERROR(internal::CheckComputedWith(operation, value));
  if (axes.empty()) return x;
  ASSIGN_OR_RETURN(const Reduced shapes, ReducedShape(operation, value.shape(), axes));
  double scale = 1;
  if (reduction == Reduction::kMean)
    scale = static_cast<double>(shapes.kept.num_elements()) /
            static_cast<double>(value.shape().num_elements());
  ASSIGN_OR_RETURN(Tensor sum, internal::NewLike(value, shapes.kept));
  backend->SumTo(value, scale, sum);
  ASSIGN_OR_RETURN(Tensor y, sum.Reshape(shapes.dropped));
  return internal::Result(std::move(y), {x},
                          [backend, shape = value.shape(), kept = shapes.kept,
                           scale](const Tensor& g) -> absl::StatusOr<GradientList> {
                            ASSIGN_OR_RETURN(const Tensor aligned, g.Reshape(kept));
                            ASSIGN_OR_RETURN(Tensor dx, internal::NewLike(g, shape));
                            backend->Broadcast(aligned, scale, dx);
                            return GradientList{std::move(dx)};
                          });
}

// The gradient of a maximum is shared evenly by all that equal it, as TensorFlow's reduce_max does.
absl::StatusOr<Tensor> MaxGradient(const Backend& backend, const Tensor& x, const Tensor& max,
                                   const Tensor& gradient) {
  ASSIGN_OR_RETURN(Tensor chosen, internal::NewLike(x));
  backend.Binary(BinaryOp::kEqual, x, max, chosen);
  ASSIGN_OR_RETURN(const Tensor count, internal::SummedTo(backend, chosen, max.shape()));
  ASSIGN_OR_RETURN(Tensor share, internal::NewLike(max));
  backend.Binary(BinaryOp::kDivide, gradient, count, share);
  ASSIGN_OR_RETURN(Tensor dx, internal::NewLike(x));
  backend.Binary(BinaryOp::kMultiply, chosen, share, dx);
  return dx;
}

absl::StatusOr<Var> TryReduceMax(const Var& x, const std::vector<int>& axes) {
  ASSIGN_OR_RETURN(const Backend* backend, internal::Prepare("ReduceMax", {x}));
  const Tensor value = internal::ValueOf(x);
  RETURN_IF_ERROR(internal::CheckComputedWith("ReduceMax", value));
  if (axes.empty()) return x;
  ASSIGN_OR_RETURN(const Reduced shapes, ReducedShape("ReduceMax", value.shape(), axes));
  ASSIGN_OR_RETURN(Tensor max, internal::NewLike(value, shapes.kept));
  backend->MaxTo(value, max);
  ASSIGN_OR_RETURN(Tensor y, max.Reshape(shapes.dropped));
  return internal::Result(
      std::move(y), {x},
      [backend, value, max](const Tensor& gradient) -> absl::StatusOr<GradientList> {
        ASSIGN_OR_RETURN(const Tensor aligned, gradient.Reshape(max.shape()));
        ASSIGN_OR_RETURN(Tensor dx, MaxGradient(*backend, value, max, aligned));
        return GradientList{std::move(dx)};
      });
}

}  // namespace

Var ReduceSum(const Var& x) {
  return internal::OrFailed(TryReduce("ReduceSum", Reduction::kSum, x, AllAxes(x)));
}
Var ReduceSum(const Var& x, const Axes& axes) {
  return internal::OrFailed(TryReduce("ReduceSum", Reduction::kSum, x, axes.values()));
}
Var ReduceMean(const Var& x) {
  return internal::OrFailed(TryReduce("ReduceMean", Reduction::kMean, x, AllAxes(x)));
}
Var ReduceMean(const Var& x, const Axes& axes) {
  return internal::OrFailed(TryReduce("ReduceMean", Reduction::kMean, x, axes.values()));
}
Var ReduceMax(const Var& x, const Axes& axes) {
  return internal::OrFailed(TryReduceMax(x, axes.values()));
}

}  // namespace divvy
