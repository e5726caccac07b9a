// Parameters of a function that runs in another process. An argument must arrive with the value
// that the caller gave.
#ifndef DIVVY_TENSOR_ARGUMENT_H_
#define DIVVY_TENSOR_ARGUMENT_H_

#include <cstddef>
#include <limits>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace divvy::internal {

template <typename To, typename From>
constexpr bool NumberKeepsItsValue() {
  using ToLimits = std::numeric_limits<To>;
  using FromLimits = std::numeric_limits<From>;
  if constexpr (std::is_same_v<To, From>) {
    return true;
  } else if constexpr (std::is_same_v<To, bool> || std::is_same_v<From, bool>) {
    return false;
  } else if constexpr (std::is_integral_v<To>) {
    return std::is_integral_v<From> && (ToLimits::is_signed || !FromLimits::is_signed) &&
           ToLimits::digits >= FromLimits::digits;
  } else {
    return ToLimits::digits >= FromLimits::digits &&
           (std::is_integral_v<From> || ToLimits::max_exponent >= FromLimits::max_exponent);
  }
}

// Whether every value of `From` keeps its value when it is converted to `To`. True for int to
// int64_t or double; false for double, bool or size_t to int64_t, and for a pointer to bool. The
// elements of an optional, a pair or a tuple are checked one by one. If `To` is not a number, any
// conversion is accepted.
template <typename To, typename From>
struct KeepsItsValue {
  static constexpr bool Check() {
    if constexpr (!std::is_arithmetic_v<To>) {
      return true;
    } else if constexpr (std::is_enum_v<From> && std::is_integral_v<To>) {
      // The range of an enumeration is unknown: compilers use unsigned for {kRed, kGreen}. So only
      // the size is compared.
      return !std::is_same_v<To, bool> && sizeof(To) >= sizeof(From);
    } else if constexpr (std::is_enum_v<From>) {
      return NumberKeepsItsValue<To, std::underlying_type_t<From>>();
    } else if constexpr (std::is_arithmetic_v<From>) {
      return NumberKeepsItsValue<To, From>();
    } else {
      return std::is_class_v<From>;
    }
  }
  static constexpr bool value = Check();
};
template <typename To, typename From>
struct KeepsItsValue<std::optional<To>, From> : KeepsItsValue<To, From> {};
template <typename To, typename From>
struct KeepsItsValue<std::optional<To>, std::optional<From>> : KeepsItsValue<To, From> {};
template <typename To>
struct KeepsItsValue<std::optional<To>, std::nullopt_t> : std::true_type {};
template <typename... To, typename... From>
struct KeepsItsValue<std::pair<To...>, std::pair<From...>>
    : std::conjunction<KeepsItsValue<To, From>...> {};
template <typename... To, typename... From>
struct KeepsItsValue<std::tuple<To...>, std::tuple<From...>>
    : std::conjunction<KeepsItsValue<To, From>...> {};
template <typename... To, typename... From>
struct KeepsItsValue<std::pair<To...>, std::tuple<From...>>
    : std::conjunction<KeepsItsValue<To, From>...> {};
template <typename... To, typename... From>
struct KeepsItsValue<std::tuple<To...>, std::pair<From...>>
    : std::conjunction<KeepsItsValue<To, From>...> {};

#define DIVVY_ARGUMENT_MAY_CHANGE                                                               \
  "this argument may change on its way to the step or data source, which takes a parameter of " \
  "another type (a number that is cut or rounded, a bool, a pointer as a bool): give a value "  \
  "of the parameter's own type, as in int64_t{2}, 2.0f or static_cast<int64_t>(n)"

// An argument for a parameter of type T, where T is a number or contains numbers. It accepts a
// value that converts to T and keeps its value. A value that does not convert at all is no match in
// overload resolution. A value that might change is a compile error that explains the problem.
template <typename T>
class Argument {
 public:
  Argument() = default;  // of {}
  template <typename From, typename = std::enable_if_t<std::is_convertible_v<const From&, T>>>
  Argument(const From& value) : value_(Converted(value)) {
    static_assert(KeepsItsValue<T, std::decay_t<From>>::value, DIVVY_ARGUMENT_MAY_CHANGE);
  }
  // From {a, b}: the elements of a pair or a tuple.
  template <typename First, typename... Rest,
            typename = std::enable_if_t<(sizeof...(Rest) > 0) &&
                                        std::is_constructible_v<T, const First&, const Rest&...>>>
  Argument(const First& first, const Rest&... rest) : value_(first, rest...) {
    static_assert(KeepsItsValue<T, std::tuple<std::decay_t<First>, std::decay_t<Rest>...>>::value,
                  DIVVY_ARGUMENT_MAY_CHANGE);
  }
  operator const T&() const { return value_; }

 private:
  template <typename From>
  static T Converted(const From& value) {
    if constexpr (std::is_arithmetic_v<T> && std::is_arithmetic_v<From>) {
      return static_cast<T>(value);
    } else {
      return value;
    }
  }

  T value_{};
};

// The type with which a function declares a parameter that travels as a T. It is Argument<T> only
// where T is a number or contains numbers, since only numbers can change in a conversion.
template <typename T>
struct ParameterFor {
  using type = std::conditional_t<std::is_arithmetic_v<T>, Argument<T>, T>;
};
template <typename T>
struct ParameterFor<std::optional<T>> {
  using type = Argument<std::optional<T>>;
};
template <typename... T>
struct ParameterFor<std::pair<T...>> {
  using type = Argument<std::pair<T...>>;
};
template <typename... T>
struct ParameterFor<std::tuple<T...>> {
  using type = Argument<std::tuple<T...>>;
};
template <typename T>
using Parameter = typename ParameterFor<std::decay_t<T>>::type;

#undef DIVVY_ARGUMENT_MAY_CHANGE

}  // namespace divvy::internal

#endif  // DIVVY_TENSOR_ARGUMENT_H_
