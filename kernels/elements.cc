#include "kernels/elements.h"

#include <cstring>
#include <type_traits>

#include "kernels/element.h"

namespace divvy {
namespace {

using internal::Element;

template <typename T>
T Quotient(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) return 0;
    // The smallest integer has no positive counterpart, so dividing it by -1 would overflow.
    if (std::is_signed_v<T> && b == static_cast<T>(-1))
      return Element<T>::Store(typename Element<T>::Computed{0} - Element<T>::Load(a));
  }
  return a / b;
}

template <typename T>
T Combine(WriteOp op, T a, T b) {
  const typename Element<T>::Computed x = Element<T>::Load(a), y = Element<T>::Load(b);
  switch (op) {
    case WriteOp::kAdd:
    case WriteOp::kScatterAdd: return Element<T>::Store(x + y);
    case WriteOp::kSub:
    case WriteOp::kScatterSub: return Element<T>::Store(x - y);
    case WriteOp::kScatterMul: return Element<T>::Store(x * y);
    case WriteOp::kScatterDiv: return Quotient(a, b);
    case WriteOp::kScatterMin: return b < a ? b : a;
    case WriteOp::kScatterMax: return a < b ? b : a;
    default: return b;
  }
}

template <typename T>
T CombineStored(WriteOp op, T a, T b) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return Element<T>::Store(Combine(op, Element<T>::Load(a), Element<T>::Load(b)));
  } else if constexpr (std::is_same_v<T, bool>) {
    return b;  // TakesElements allows no other operation
  } else {
    return Combine(op, a, b);
  }
}

// The operation is a constant within the loop, so that it becomes vector code.
template <WriteOp op, typename T>
void Loop(T* target, const T* update, int64_t n) {
  for (int64_t i = 0; i < n; ++i) target[i] = CombineStored(op, target[i], update[i]);
}

template <typename T>
void Apply(WriteOp op, T* target, const T* update, int64_t n) {
  switch (op) {
    case WriteOp::kAdd:
    case WriteOp::kScatterAdd: return Loop<WriteOp::kAdd>(target, update, n);
    case WriteOp::kSub:
    case WriteOp::kScatterSub: return Loop<WriteOp::kSub>(target, update, n);
    case WriteOp::kScatterMul: return Loop<WriteOp::kScatterMul>(target, update, n);
    case WriteOp::kScatterDiv: return Loop<WriteOp::kScatterDiv>(target, update, n);
    case WriteOp::kScatterMin: return Loop<WriteOp::kScatterMin>(target, update, n);
    case WriteOp::kScatterMax: return Loop<WriteOp::kScatterMax>(target, update, n);
    default: break;
  }
  if (n > 0) std::memcpy(target, update, static_cast<size_t>(n) * sizeof(T));
}

bool Replaces(WriteOp op) { return op == WriteOp::kAssign || op == WriteOp::kScatterUpdate; }

}  // namespace

bool TakesElements(WriteOp op, DType dtype) {
  if (op > WriteOp::kScatterMax || DTypeSize(dtype) == 0) return false;
  return Replaces(op) || IsFloating(dtype) || IsInteger(dtype);
}

void ApplyElements(WriteOp op, DType dtype, void* target, const void* update, int64_t n) {
  DispatchDType(
      dtype,
      [&](auto element) {
        using T = decltype(element);
        Apply(op, static_cast<T*>(target), static_cast<const T*>(update), n);
        return true;
      },
      false);
}

void DivideElements(DType dtype, void* values, int64_t n, double divisor) {
  DispatchDType(
      dtype,
      [&](auto element) {
        using T = decltype(element);
        if constexpr (!std::is_integral_v<T>) {
          using Computed = typename Element<T>::Computed;
          T* const at = static_cast<T*>(values);
          for (int64_t i = 0; i < n; ++i)
            at[i] = Element<T>::Store(static_cast<Computed>(Element<T>::Load(at[i]) / divisor));
        }
        return true;
      },
      false);
}

}  // namespace divvy
