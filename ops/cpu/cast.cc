#include "ops/convert.h"
#include "ops/cpu/cpu_backend.h"

namespace divvy::internal {
namespace {

template <typename From, typename To>
void CastAs(const Tensor& x, Tensor& y) {
  const From* __restrict from = x.data_as<From>();
  To* __restrict to = y.fresh_data<To>();
  const int64_t n = y.shape().num_elements();
  for (int64_t i = 0; i < n; ++i) to[i] = Convert<To>(from[i]);
}

}  // namespace

void CpuBackend::Cast(const Tensor& x, Tensor& y) const {
  DispatchDType(
      x.dtype(),
      [&](auto from) {
        return DispatchDType(
            y.dtype(), [&](auto to) { return CastAs<decltype(from), decltype(to)>(x, y), 0; }, 0);
      },
      0);
}

}  // namespace divvy::internal
