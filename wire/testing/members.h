// The members of a plain struct, found without a list of them. They do not come from wire/fields.h,
// so a test also sees a member that the description lacks.
#ifndef DIVVY_WIRE_TESTING_MEMBERS_H_
#define DIVVY_WIRE_TESTING_MEMBERS_H_

#include <cstddef>
#include <tuple>
#include <type_traits>

namespace divvy::wire::testing {

namespace internal {

constexpr size_t kMostMembers = 17;

// Converts to a member of any type. Declared only.
struct AnyMember {
  template <typename T>
  operator T&() const& noexcept;
  template <typename T>
  operator T&() const&& noexcept;
};

template <typename T, typename Initializers, typename = void>
struct Takes : std::false_type {};
template <typename T, typename... Initializers>
struct Takes<T, std::tuple<Initializers...>, std::void_t<decltype(T{Initializers()...})>>
    : std::true_type {};

// The number of initializers that T takes, which is its number of members.
template <typename T, typename... Initializers>
constexpr size_t CountMembers() {
  static_assert(sizeof...(Initializers) <= kMostMembers, "add a line to MembersOf");
  if constexpr (sizeof...(Initializers) > kMostMembers) {
    return 0;
  } else if constexpr (Takes<T, std::tuple<Initializers..., AnyMember>>::value) {
    return CountMembers<T, Initializers..., AnyMember>();
  } else {
    return sizeof...(Initializers);
  }
}

}  // namespace internal

template <typename T>
constexpr bool kIsPlain = std::is_class_v<T>&& std::is_aggregate_v<T>;

// References to all members of `value`, in their order. A structured binding with another number of
// members does not compile. REQUIRES: kIsPlain<T>.
template <typename T>
auto MembersOf(const T& value) {
  static_assert(kIsPlain<T>);
  constexpr size_t count = std::is_empty_v<T> ? 0 : internal::CountMembers<T>();
#define DIVVY_BIND(number, ...)        \
  if constexpr (count == number) {     \
    const auto& [__VA_ARGS__] = value; \
    return std::tie(__VA_ARGS__);      \
  } else
  DIVVY_BIND(1, a)
  DIVVY_BIND(2, a, b)
  DIVVY_BIND(3, a, b, c)
  DIVVY_BIND(4, a, b, c, d)
  DIVVY_BIND(5, a, b, c, d, e)
  DIVVY_BIND(6, a, b, c, d, e, f)
  DIVVY_BIND(7, a, b, c, d, e, f, g)
  DIVVY_BIND(8, a, b, c, d, e, f, g, h)
  DIVVY_BIND(9, a, b, c, d, e, f, g, h, i)
  DIVVY_BIND(10, a, b, c, d, e, f, g, h, i, j)
  DIVVY_BIND(11, a, b, c, d, e, f, g, h, i, j, k)
  DIVVY_BIND(12, a, b, c, d, e, f, g, h, i, j, k, l)
  DIVVY_BIND(13, a, b, c, d, e, f, g, h, i, j, k, l, m)
  DIVVY_BIND(14, a, b, c, d, e, f, g, h, i, j, k, l, m, n)
  DIVVY_BIND(15, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o)
  DIVVY_BIND(16, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)
  DIVVY_BIND(17, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q)
#undef DIVVY_BIND
  return std::tuple<>();
}

}  // namespace divvy::wire::testing

#endif  // DIVVY_WIRE_TESTING_MEMBERS_H_
