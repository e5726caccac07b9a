// Helpers of the decoders: refusals that name the field, and checks. Used in wire/ only.
//
// A refusal names the whole path of its field, because each enclosing decoder puts its own field's
// name first. "open[3]: does not rise" of a Horizon becomes "horizon.open[3]: does not rise" of the
// SyncRequest that contains it.
#ifndef DIVVY_WIRE_DECODE_H_
#define DIVVY_WIRE_DECODE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace divvy::wire {

// the most shards, parts or tasks in one message
constexpr int kMaxParts = 100000;
// The greatest index of a task: `participants` and the parts of a variable fit into 16 bits.
constexpr int kMaxIndex = 65535;

// InvalidArgument with Reason::kInvalid: "horizon.open[3]: does not rise". An empty field means the
// message itself; In() puts the field's name before it.
absl::Status Invalid(absl::string_view field, absl::string_view why);
// The same refusal, seen from the message that contains `field`. OK stays OK.
absl::Status In(absl::string_view field, const absl::Status& status);
template <typename T>
absl::StatusOr<T> In(absl::string_view field, absl::StatusOr<T> value) {
  if (value.ok()) return value;
  return In(field, value.status());
}
// Turns an error of a domain type's own Validate into a refusal of the message. OK stays OK.
absl::Status AsInvalid(const absl::Status& status);
inline std::string Element(absl::string_view field, size_t index) {
  return absl::StrCat(field, "[", index, "]");
}

// Each check returns OK, or an Invalid status with the value and what is allowed. Ranges are
// inclusive.
absl::Status CheckRange(absl::string_view field, int64_t value, int64_t low, int64_t high);
inline absl::Status CheckNotNegative(absl::string_view field, int64_t value) {
  return CheckRange(field, value, 0, std::numeric_limits<int64_t>::max());
}
inline absl::Status CheckIndex(absl::string_view field, int64_t value) {
  return CheckRange(field, value, 0, kMaxIndex);
}
// 1 to kMaxNameBytes bytes, no control characters
absl::Status CheckName(absl::string_view field, absl::string_view name);
absl::Status CheckFinite(absl::string_view field, double value);
absl::Status CheckCount(absl::string_view field, size_t count, size_t most = kMaxParts);

// Reads each element of `from` with `read`, which returns a StatusOr. Returns the first refusal,
// with the element's index. REQUIRES: the number of elements has been checked, if a decoded element
// is larger than an encoded one.
template <typename Repeated, typename Read>
auto ReadAll(absl::string_view field, const Repeated& from, Read read) -> absl::StatusOr<
    std::vector<typename std::decay_t<decltype(read(*from.begin()))>::value_type>> {
  std::vector<typename std::decay_t<decltype(read(*from.begin()))>::value_type> values;
  values.reserve(from.size());
  for (const auto& element : from) {
    auto value = read(element);
    if (!value.ok()) return In(Element(field, values.size()), value.status());
    values.push_back(*std::move(value));
  }
  return values;
}

// Checks that each element is greater than the one before it. REQUIRES: random access.
template <typename Ordered>
absl::Status CheckRising(absl::string_view field, const Ordered& values) {
  for (size_t i = 1; i < values.size(); ++i) {
    if (!(values[i - 1] < values[i])) return Invalid(Element(field, i), "does not rise");
  }
  return absl::OkStatus();
}

// The values of a domain enum and of its wire enum, in pairs. A wire value without a row is
// refused. A domain value without a row is sent as "not set", which never happens in a correct
// program.
template <typename Domain, typename Wire, size_t kRows>
struct EnumTable {
  struct Row {
    Domain domain;
    Wire wire;
  } rows[kRows];

  Wire ToWire(Domain value) const {
    for (const Row& row : rows) {
      if (row.domain == value) return row.wire;
    }
    return static_cast<Wire>(0);
  }
  absl::StatusOr<Domain> ToDomain(Wire value) const {
    for (const Row& row : rows) {
      if (row.wire == value) return row.domain;
    }
    return Invalid("", value == 0
                           ? "is not set"
                           : absl::StrCat("has the unknown value ", static_cast<int64_t>(value)));
  }
};

// `target` = the sub-message `field` of `from`, which must be present.
#define DIVVY_WIRE_READ(target, from, field)                       \
  if (!(from).has_##field()) return Invalid(#field, "is missing"); \
  DIVVY_ASSIGN_OR_RETURN(target, In(#field, FromProto((from).field())))

// `target` = the enum `field` of `from`.
#define DIVVY_WIRE_READ_ENUM(target, from, field) \
  DIVVY_ASSIGN_OR_RETURN(target, In(#field, FromProto((from).field())))

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_DECODE_H_
