// Operations that move or convert elements.
#include "ops/operation.h"

namespace divvy {
namespace {

using internal::Backend;
using internal::GradientList;
using internal::InvalidOperands;

absl::StatusOr<Var> TryReshape(const Var& x, const Shape& shape) {
  RETURN_IF_ERROR(x.status());
  const Tensor& value = internal::ValueOf(x);
  absl::StatusOr<Tensor> y = value.Reshape(shape);
  if (!y.ok())
    return InvalidOperands("Reshape", value.shape().ToString(), " to ", shape.ToString(), ": ",
                           y.status().message());
  return internal::Result(
      *std::move(y), {x},
      [from = value.shape()](const Tensor& gradient) -> absl::StatusOr<GradientList> {
        ASSIGN_OR_RETURN(Tensor dx, gradient.Reshape(from));
        return GradientList{std::move(dx)};
      });
}

// A tensor as `rows` blocks: a block is the slice from `axis` on under one index of the axes before
// it.
struct Blocks {
  int64_t rows = 1;
  int64_t bytes = 0;  // of one block
  Blocks(const Tensor& x, int axis) {
    for (int i = 0; i < axis; ++i) rows *= x.shape().dim(i);
    bytes = rows == 0 ? 0 : x.size_bytes() / rows;
  }
};

absl::StatusOr<Shape> ConcatShape(absl::Span<const Var> parts, int axis) {
  const Tensor& first = internal::ValueOf(parts[0]);
  std::vector<int64_t> dims(first.shape().dims().begin(), first.shape().dims().end());
  dims[axis] = 0;
  for (const Var& var : parts) {
    const Tensor& part = internal::ValueOf(var);
    bool fits = part.dtype() == first.dtype() && part.shape().rank() == first.shape().rank();
    for (int i = 0; fits && i < first.shape().rank(); ++i)
      fits = i == axis || part.shape().dim(i) == first.shape().dim(i);
    if (!fits)
      return InvalidOperands("Concat", first.ToString(), " and ", part.ToString(),
                             " do not join along axis ", axis);
    dims[axis] += part.shape().dim(axis);
  }
  return Shape(dims);
}

absl::StatusOr<GradientList> ConcatGradient(const Backend& backend,
                                            const std::vector<Shape>& shapes, int axis,
                                            const Tensor& gradient) {
  const Blocks from(gradient, axis);
  GradientList gradients(shapes.size());
  const char* data = static_cast<const char*>(gradient.data());
  int64_t offset = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    ASSIGN_OR_RETURN(Tensor dx, internal::NewLike(gradient, shapes[i]));
    const Blocks to(dx, axis);
    backend.CopyBlocks(dx.device(), data + offset, from.bytes, dx.fresh_data<char>(), to.bytes,
                       to.bytes, to.rows);
    offset += dx.size_bytes() == 0 ? 0 : to.bytes;
    gradients[i] = std::move(dx);
  }
  return gradients;
}

absl::StatusOr<Var> TryConcat(absl::Span<const Var> parts, int axis) {
  if (parts.empty()) return InvalidOperands("Concat", "nothing to join");
  ASSIGN_OR_RETURN(const Backend* backend, internal::Prepare("Concat", parts));
  const Tensor& first = internal::ValueOf(parts[0]);
  ASSIGN_OR_RETURN(axis, internal::AxisOf("Concat", first.shape(), axis));
  ASSIGN_OR_RETURN(const Shape shape, ConcatShape(parts, axis));
  ASSIGN_OR_RETURN(Tensor y, internal::NewLike(first, shape));
  const Blocks to(y, axis);
  char* data = y.fresh_data<char>();
  std::vector<Shape> shapes;
  for (const Var& var : parts) {
    const Tensor& part = internal::ValueOf(var);
    const Blocks from(part, axis);
    backend->CopyBlocks(y.device(), part.data(), from.bytes, data, to.bytes, from.bytes, from.rows);
    data += part.size_bytes() == 0 ? 0 : from.bytes;
    shapes.push_back(part.shape());
  }
  return internal::Result(std::move(y), parts, [backend, shapes, axis](const Tensor& gradient) {
    return ConcatGradient(*backend, shapes, axis, gradient);
  });
}

absl::StatusOr<Var> TrySlice(const Var& x, int axis, int64_t begin, int64_t end) {
  ASSIGN_OR_RETURN(const Backend* backend, internal::Prepare("Slice", {x}));
  const Tensor& value = internal::ValueOf(x);
  const Shape& shape = value.shape();
  ASSIGN_OR_RETURN(axis, internal::AxisOf("Slice", shape, axis));
  if (begin < 0 || end < begin || end > shape.dim(axis))
    return InvalidOperands("Slice", "[", begin, ", ", end, ") of axis ", axis, " of ",
                           shape.ToString());
  std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
  dims[axis] = end - begin;
  ASSIGN_OR_RETURN(Tensor y, internal::NewLike(value, Shape(dims)));
  const Blocks whole(value, axis), part(y, axis);
  const int64_t offset = y.size_bytes() == 0 ? 0 : part.bytes / (end - begin) * begin;
  backend->CopyBlocks(y.device(), static_cast<const char*>(value.data()) + offset, whole.bytes,
                      y.fresh_data<char>(), part.bytes, part.bytes, part.rows);
  return internal::Result(
      std::move(y), {x}, [=](const Tensor& gradient) -> absl::StatusOr<GradientList> {
        ASSIGN_OR_RETURN(Tensor dx, internal::NewLike(gradient, shape));
        backend->Zero(dx);
        backend->CopyBlocks(dx.device(), gradient.data(), part.bytes,
                            dx.fresh_data<char>() + offset, whole.bytes, part.bytes, part.rows);
        return GradientList{std::move(dx)};
      });
}

absl::StatusOr<Tensor> Permuted(const Backend& backend, const Tensor& x,
                                const std::vector<int>& axes) {
  std::vector<int64_t> dims;
  for (int axis : axes) dims.push_back(x.shape().dim(axis));
  ASSIGN_OR_RETURN(Tensor y, internal::NewLike(x, Shape(dims)));
  backend.Permute(x, axes, y);
  return y;
}

absl::StatusOr<Var> TryPermute(const Var& x, absl::Span<const int> axes) {
  ASSIGN_OR_RETURN(const Backend* backend, internal::Prepare("Permute", {x}));
  const Tensor& value = internal::ValueOf(x);
  const int rank = value.shape().rank();
  std::vector<int> order, inverse(rank, -1);
  for (int axis : axes) {
    ASSIGN_OR_RETURN(const int index, internal::AxisOf("Permute", value.shape(), axis));
    if (inverse[index] != -1)
      return InvalidOperands("Permute", "axis ", axis, " of ", value.shape().ToString(),
                             " is named twice");
    inverse[index] = static_cast<int>(order.size());
    order.push_back(index);
  }
  if (static_cast<int>(order.size()) != rank)
    return InvalidOperands("Permute", order.size(), " axes for ", value.shape().ToString(),
                           "; name each of its ", rank);
  ASSIGN_OR_RETURN(Tensor y, Permuted(*backend, value, order));
  return internal::Result(
      std::move(y), {x},
      [backend, inverse](const Tensor& gradient) -> absl::StatusOr<GradientList> {
        ASSIGN_OR_RETURN(Tensor dx, Permuted(*backend, gradient, inverse));
        return GradientList{std::move(dx)};
      });
}

absl::StatusOr<Var> TryCast(const Var& x, DType dtype) {
  ASSIGN_OR_RETURN(const Backend* backend, internal::Prepare("Cast", {x}));
  const Tensor& value = internal::ValueOf(x);
  if (value.dtype() == dtype) return x;
  absl::StatusOr<Tensor> y = internal::CastTo(*backend, value, dtype);
  if (!y.ok())
    return InvalidOperands("Cast", value.ToString(), " to ", DTypeName(dtype), ": ",
                           y.status().message());
  if (!IsFloating(dtype) || !IsFloating(value.dtype())) return Var(*std::move(y));
  return internal::Result(
      *std::move(y), {x},
      [backend, from = value.dtype()](const Tensor& gradient) -> absl::StatusOr<GradientList> {
        ASSIGN_OR_RETURN(Tensor dx, internal::CastTo(*backend, gradient, from));
        return GradientList{std::move(dx)};
      });
}

}  // namespace

Var Reshape(const Var& x, const Shape& shape) { return internal::OrFailed(TryReshape(x, shape)); }
Var Concat(absl::Span<const Var> parts, int axis) {
  return internal::OrFailed(TryConcat(parts, axis));
}
Var Slice(const Var& x, int axis, int64_t begin, int64_t end) {
  return internal::OrFailed(TrySlice(x, axis, begin, end));
}
Var Permute(const Var& x, std::initializer_list<int> axes) {
  return internal::OrFailed(TryPermute(x, axes));
}
Var Cast(const Var& x, DType dtype) { return internal::OrFailed(TryCast(x, dtype)); }

Var StopGradient(const Var& x) {
  if (absl::Status status = x.status(); !status.ok()) return internal::FailedVar(std::move(status));
  return Var(internal::ValueOf(x));
}

Var Range(int64_t n) {
  if (n < 0) return internal::FailedVar(InvalidOperands("Range", n, " elements"));
  std::vector<int64_t> values(n);
  for (int64_t i = 0; i < n; ++i) values[i] = i;
  return Var(Tensor::Vector<int64_t>(values));
}

}  // namespace divvy
