#include <algorithm>
#include <cmath>
#include <vector>

#include "base/status_macros.h"
#include "kernels/duplicates.h"
#include "ops/cpu/cpu_backend.h"
#include "ops/cpu/lanes.h"
#include "ops/cpu/parallel.h"

namespace divvy::internal {
namespace {

template <typename T>
T WeightOf(const RowLists& lists, int64_t row) {
  return lists.weights ? lists.weights->data_as<T>()[row] : T(1);
}

template <typename T>
T DivisorOf(const RowLists& lists, int64_t list) {
  return lists.divisors ? lists.divisors->data_as<T>()[list] : T(1);
}

template <typename T>
void CombineRowsAs(const RowLists& lists, const Tensor& x, Tensor& y) {
  const int64_t batch = y.shape().dim(0), width = y.shape().row_elements();
  const int64_t* const splits = lists.row_splits.data_as<int64_t>();
  const T* const rows = x.data_as<T>();
  T* const sums = y.fresh_data<T>();
  const int64_t elements_each = batch == 0 ? 0 : (splits[batch] / batch + 1) * width;
  InSlices<T>(batch, elements_each, [=, &lists](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* __restrict sum = sums + i * width;
      std::fill_n(sum, width, T(0));
      const T divisor = DivisorOf<T>(lists, i);
      if (divisor == 0) continue;
      for (int64_t j = splits[i]; j < splits[i + 1]; ++j) {
        const T* __restrict row = rows + j * width;
        const T weight = WeightOf<T>(lists, j);
        for (int64_t k = 0; k < width; ++k) sum[k] += weight * row[k];
      }
      if (lists.divisors) {
        for (int64_t k = 0; k < width; ++k) sum[k] /= divisor;
      }
    }
  });
}

template <typename T>
void SpreadRowsAs(const RowLists& lists, const Tensor& y, Tensor& x) {
  const int64_t batch = y.shape().dim(0), width = y.shape().row_elements();
  const int64_t* const splits = lists.row_splits.data_as<int64_t>();
  const T* const rows = y.data_as<T>();
  T* const spread = x.fresh_data<T>();
  const int64_t elements_each = batch == 0 ? 0 : (splits[batch] / batch + 1) * width;
  InSlices<T>(batch, elements_each, [=, &lists](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* __restrict row = rows + i * width;
      const T divisor = DivisorOf<T>(lists, i);
      for (int64_t j = splits[i]; j < splits[i + 1]; ++j) {
        T* __restrict to = spread + j * width;
        const T factor = divisor == 0 ? T(0) : WeightOf<T>(lists, j) / divisor;
        for (int64_t k = 0; k < width; ++k) to[k] = factor * row[k];
      }
    }
  });
}

}  // namespace

// Rows in the order of their ids, and combinations of lists of rows.
absl::StatusOr<IndexedSlices> CpuBackend::SumDuplicates(const IndexedSlices& slices) const {
  const RowGroups groups = GroupById(
      {slices.ids.data_as<int64_t>(), static_cast<size_t>(slices.ids.shape().num_elements())});
  IndexedSlices summed{Tensor::Vector<int64_t>(groups.ids), {}, slices.num_rows};
  ASSIGN_OR_RETURN(Tensor sorted, Tensor::Uninitialized(slices.rows.dtype(), slices.rows.shape()));
  RETURN_IF_ERROR(GatherRows(slices.rows, Tensor::Vector<int64_t>(groups.rows), sorted));
  ASSIGN_OR_RETURN(
      summed.rows,
      Tensor::Uninitialized(sorted.dtype(),
                            sorted.shape().WithRows(static_cast<int64_t>(groups.ids.size()))));
  CombineRows({Tensor::Vector<int64_t>(groups.splits), {}, {}}, sorted, summed.rows);
  return summed;
}

void CpuBackend::CombineRows(const RowLists& lists, const Tensor& x, Tensor& y) const {
  OnFloating(x.dtype(), [&](auto t) { CombineRowsAs<decltype(t)>(lists, x, y); });
}

void CpuBackend::SpreadRows(const RowLists& lists, const Tensor& y, Tensor& x) const {
  OnFloating(x.dtype(), [&](auto t) { SpreadRowsAs<decltype(t)>(lists, y, x); });
}

void CpuBackend::ClipRows(const Tensor& x, double max_norm, Tensor& y) const {
  OnFloating(x.dtype(), [&](auto t) {
    using T = decltype(t);
    const int64_t width = x.shape().row_elements();
    const T* const all_from = x.data_as<T>();
    T* const all_to = y.fresh_data<T>();
    InSlices<T>(x.shape().dim(0), width, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* __restrict from = all_from + i * width;
        T* __restrict to = all_to + i * width;
        const double norm = std::sqrt(Dot(from, from, width));
        const T factor = norm > max_norm ? static_cast<T>(max_norm / norm) : T(1);
        for (int64_t k = 0; k < width; ++k) to[k] = from[k] * factor;
      }
    });
  });
}

void CpuBackend::ClipRowsGradient(const Tensor& x, double max_norm, const Tensor& gradient,
                                  Tensor& dx) const {
  OnFloating(x.dtype(), [&](auto t) {
    using T = decltype(t);
    const int64_t width = x.shape().row_elements();
    const T* const all_from = x.data_as<T>();
    const T* const all_g = gradient.data_as<T>();
    T* const all_to = dx.fresh_data<T>();
    InSlices<T>(x.shape().dim(0), width, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* __restrict from = all_from + i * width;
        const T* __restrict g = all_g + i * width;
        T* __restrict to = all_to + i * width;
        const double norm = std::sqrt(Dot(from, from, width));
        const bool clips = norm > max_norm;
        const double factor = clips ? max_norm / norm : 1;
        // The component of the gradient along the row would only change the row's length, which
        // the clip sets. So this component is removed.
        const double along = clips ? Dot(from, g, width) / (norm * norm) : 0;
        for (int64_t k = 0; k < width; ++k)
          to[k] = static_cast<T>(factor * (g[k] - along * from[k]));
      }
    });
  });
}

}  // namespace divvy::internal
