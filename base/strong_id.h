// Integer ids of distinct types, which cannot be confused.
//
//   DIVVY_STRONG_ID(StepId, uint64_t);
//   StepId id(7);   id.value() == 7;   id == StepId(7);   StepId next = id.next();
#ifndef DIVVY_BASE_STRONG_ID_H_
#define DIVVY_BASE_STRONG_ID_H_

#include <cstdint>
#include <functional>
#include <ostream>

namespace divvy {

// A value type over the integer `Int`. `Tag` distinguishes kinds of ids: different kinds neither
// compare nor convert, and an integer becomes an id only explicitly. Default-constructed ids are 0.
// Ordered, hashable (std and Abseil), and printed as a number. next() wraps around as the integer
// does.
template <typename Tag, typename Int>
class StrongId {
 public:
  using value_type = Int;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Int value) : value_(value) {}
  constexpr Int value() const { return value_; }
  constexpr StrongId next() const { return StrongId(value_ + 1); }

  friend constexpr bool operator==(StrongId a, StrongId b) { return a.value_ == b.value_; }
  friend constexpr bool operator!=(StrongId a, StrongId b) { return a.value_ != b.value_; }
  friend constexpr bool operator<(StrongId a, StrongId b) { return a.value_ < b.value_; }
  friend constexpr bool operator<=(StrongId a, StrongId b) { return a.value_ <= b.value_; }
  friend constexpr bool operator>(StrongId a, StrongId b) { return a.value_ > b.value_; }
  friend constexpr bool operator>=(StrongId a, StrongId b) { return a.value_ >= b.value_; }
  friend std::ostream& operator<<(std::ostream& out, StrongId id) { return out << +id.value_; }
  template <typename H>
  friend H AbslHashValue(H h, StrongId id) {
    return H::combine(std::move(h), id.value_);
  }

 private:
  Int value_ = 0;
};

}  // namespace divvy

template <typename Tag, typename Int>
struct std::hash<divvy::StrongId<Tag, Int>> {
  size_t operator()(divvy::StrongId<Tag, Int> id) const { return std::hash<Int>()(id.value()); }
};

// Declares the id type `name` in the enclosing namespace.
#define DIVVY_STRONG_ID(name, type) \
  struct name##Tag;                 \
  using name = ::divvy::StrongId<struct name##Tag, type>

#endif  // DIVVY_BASE_STRONG_ID_H_
