// Operations on rows: selection by id, sums of lists, pairwise products.
#include "ops/operation.h"

namespace divvy {
namespace {

using internal::Backend;
using internal::GradientList;
using internal::InvalidOperands;
using internal::MatMulArgs;

absl::StatusOr<Var> TryGather(const Var& x, const Var& ids) {
  ASSIGN_OR_RETURN(const Backend* backend, internal::Prepare("Gather", {x, ids}));
  const Tensor& value = internal::ValueOf(x);
  const Shape& asked = internal::ValueOf(ids).shape();
  if (value.shape().rank() == 0) return InvalidOperands("Gather", value.ToString(), " has no rows");
  ASSIGN_OR_RETURN(const Tensor flat,
                   internal::FlatIds("Gather", *backend, internal::ValueOf(ids)));
  ASSIGN_OR_RETURN(Tensor rows, internal::NewLike(value, value.shape().WithRowsOf(asked.dims())));
  RETURN_IF_ERROR(backend->GatherRows(value, flat, rows));
  if (!IsFloating(value.dtype())) return Var(std::move(rows));
  return internal::Result(
      std::move(rows), {x},
      [backend, flat,
       shape = value.shape()](const Tensor& gradient) -> absl::StatusOr<GradientList> {
        ASSIGN_OR_RETURN(const Tensor rows, internal::CastTo(*backend, gradient,
                                                             internal::SummedIn(gradient.dtype())));
        ASSIGN_OR_RETURN(Tensor sums, internal::NewLike(rows, shape));
        backend->ScatterAddRows(flat, rows, sums);
        ASSIGN_OR_RETURN(Tensor dx, internal::CastTo(*backend, sums, gradient.dtype()));
        return GradientList{std::move(dx)};
      });
}

absl::StatusOr<Var> TrySegmentSum(const Var& rows, const Tensor& row_splits) {
  ASSIGN_OR_RETURN(const Backend* backend, internal::Prepare("SegmentSum", {rows}));
  const Tensor& value = internal::ValueOf(rows);
  RETURN_IF_ERROR(internal::CheckComputedWith("SegmentSum", value));
  if (value.shape().rank() == 0)
    return InvalidOperands("SegmentSum", value.ToString(), " has no rows");
  if (absl::Status status = ValidateRowSplits(row_splits, value.shape().dim(0)); !status.ok()) {
    return InvalidOperands("SegmentSum", status.message(), ", for rows ", value.ToString());
  }
  internal::RowLists lists;
  ASSIGN_OR_RETURN(lists.row_splits, row_splits.To(value.device()));
  ASSIGN_OR_RETURN(Tensor sums,
                   internal::NewLike(value, value.shape().WithRows(row_splits.shape().dim(0) - 1)));
  backend->CombineRows(lists, value, sums);
  return internal::Result(std::move(sums), {rows},
                          [backend, lists, shape = value.shape()](
                              const Tensor& gradient) -> absl::StatusOr<GradientList> {
                            ASSIGN_OR_RETURN(Tensor dx, internal::NewLike(gradient, shape));
                            backend->SpreadRows(lists, gradient, dx);
                            return GradientList{std::move(dx)};
                          });
}

// The lower half of x x^T for each example. Its gradient is dx = S x, where the symmetric matrix S
// has the result's gradient on both sides of its diagonal.
absl::StatusOr<Var> TryDotInteraction(const Var& features) {
  ASSIGN_OR_RETURN(const Backend* backend, internal::Prepare("DotInteraction", {features}));
  const Tensor x = internal::ValueOf(features);
  RETURN_IF_ERROR(internal::CheckComputedWith("DotInteraction", x));
  if (x.shape().rank() != 3)
    return InvalidOperands("DotInteraction", x.ToString(), " is not [batch, features, width]");
  const int64_t batch = x.shape().dim(0), f = x.shape().dim(1), k = x.shape().dim(2);
  RETURN_IF_ERROR(internal::CheckFitsBlas("DotInteraction", x, {f, k}));
  ASSIGN_OR_RETURN(Tensor products, internal::NewLike(x, {batch, f, f}));
  backend->MatMul(MatMulArgs{false, true, batch, f, f, k}, x, x, products);
  ASSIGN_OR_RETURN(Tensor y, internal::NewLike(x, {batch, f * (f - 1) / 2}));
  backend->LowerTriangles(products, y);
  return internal::Result(
      std::move(y), {features}, [=](const Tensor& gradient) -> absl::StatusOr<GradientList> {
        ASSIGN_OR_RETURN(Tensor symmetric, internal::NewLike(x, {batch, f, f}));
        backend->SymmetricFromTriangles(gradient, symmetric);
        ASSIGN_OR_RETURN(Tensor dx, internal::NewLike(x));
        backend->MatMul(MatMulArgs{false, false, batch, f, k, f}, symmetric, x, dx);
        return GradientList{std::move(dx)};
      });
}

}  // namespace

Var Gather(const Var& x, const Var& ids) { return internal::OrFailed(TryGather(x, ids)); }
Var SegmentSum(const Var& rows, const Tensor& row_splits) {
  return internal::OrFailed(TrySegmentSum(rows, row_splits));
}
Var DotInteraction(const Var& features) { return internal::OrFailed(TryDotInteraction(features)); }

}  // namespace divvy
