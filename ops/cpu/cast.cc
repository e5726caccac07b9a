#include <type_traits>

#include "ops/convert.h"
#include "ops/cpu/cpu_backend.h"
#include "ops/cpu/parallel.h"

namespace divvy::internal {
namespace {

template <typename From, typename To>
void CastAs(const Tensor& x, Tensor& y) {
  const From* const all_from = x.data_as<From>();
  To* const all_to = y.fresh_data<To>();
  constexpr bool kHasFloat = std::is_same_v<To, float> || std::is_same_v<From, float>;
  InSlices<std::conditional_t<kHasFloat, float, To>>(y.shape().num_elements(), 1,
                                                     [=](int64_t begin, int64_t end) {
                                                       const From* __restrict from = all_from;
                                                       To* __restrict to = all_to;
                                                       for (int64_t i = begin; i < end; ++i)
                                                         to[i] = Convert<To>(from[i]);
                                                     });
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
