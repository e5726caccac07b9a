// Compares two values of protocol/messages.h member by member. The members are found without
// wire/fields.h (members.h), so a member that the description lacks differs after encoding and
// decoding.
#ifndef DIVVY_WIRE_TESTING_SAME_H_
#define DIVVY_WIRE_TESTING_SAME_H_

#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "protocol/messages.h"
#include "protocol/resumable_stream.h"
#include "wire/layout.h"
#include "wire/testing/members.h"

namespace divvy::wire::testing {

// Same::Of(a, b) compares floating numbers by their bits, statuses by code, text and detail,
// layouts by their variables.
class Same {
 public:
  static bool Of(const Tensor& a, const Tensor& b) { return BitwiseEqual(a, b); }
  static bool Of(const Nest& a, const Nest& b) { return BitwiseEqual(a, b); }
  static bool Of(const FromRows&, const FromRows&) { return false; }
  static bool Of(const absl::Status& a, const absl::Status& b) {
    return a.code() == b.code() && a.message() == b.message() && Of(DetailOf(a), DetailOf(b));
  }
  // PullPart::reply_bytes and may_lend are not sent.
  static bool Of(const PullPart& a, const PullPart& b) {
    const auto& [shard, rows, reply_bytes, as_bfloat16, may_lend, want] = a;
    static_cast<void>(reply_bytes);
    static_cast<void>(may_lend);
    return Of(std::tie(shard, rows, as_bfloat16, want),
              std::tie(b.shard, b.rows, b.as_bfloat16, b.want));
  }
  // Values may arrive in pieces.
  static bool Of(const PullPartReply& a, const PullPartReply& b) {
    const auto& [values, version, torn, lent] = a;
    return Of(std::tie(version, torn), std::tie(b.version, b.torn)) &&
           Of(Whole(values, lent), Whole(b.values, b.lent));
  }
  static bool Of(const CommitPart& a, const CommitPart& b) {
    const auto& [shard, op, rows, values, arrived, optimizer, slots] = a;
    return Of(std::tie(shard, op, rows, optimizer, slots),
              std::tie(b.shard, b.op, b.rows, b.optimizer, b.slots)) &&
           Of(Whole(values, arrived), Whole(b.values, b.arrived));
  }
  static bool Of(const VariableSpec& a, const VariableSpec& b) {
    const auto& [name, shape, initializer, optimizer, dtype, aggregation, partitioner, wire,
                 table] = a;
    return Of(std::tie(name, shape, initializer, optimizer, dtype, aggregation, wire, table),
              std::tie(b.name, b.shape, b.initializer, b.optimizer, b.dtype, b.aggregation, b.wire,
                       b.table)) &&
           partitioner.has_value() == b.partitioner.has_value();
  }
  static bool Of(const std::shared_ptr<const Layout>& a, const std::shared_ptr<const Layout>& b) {
    if (a == nullptr || b == nullptr) return a == b;
    return a->version() == b->version() && a->hash() == b->hash() &&
           Of(a->variables(), b->variables());
  }
  static bool Of(const VariableTable& a, const VariableTable& b) {
    return a.size() == b.size() &&
           std::equal(a.begin(), a.end(), b.begin(), [](const auto& one, const auto& other) {
             return one.first == other.first && Of(one.second, other.second);
           });
  }
  template <typename A, typename B>
  static bool Of(const std::pair<A, B>& a, const std::pair<A, B>& b) {
    return Of(a.first, b.first) && Of(a.second, b.second);
  }
  template <typename T>
  static bool Of(const std::optional<T>& a, const std::optional<T>& b) {
    return a.has_value() == b.has_value() && (!a || Of(*a, *b));
  }
  template <typename T>
  static bool Of(const std::vector<T>& a, const std::vector<T>& b) {
    return OfRange(a, b);
  }
  template <typename K, typename V>
  static bool Of(const std::map<K, V>& a, const std::map<K, V>& b) {
    return OfRange(a, b);
  }
  template <typename... Ts>
  static bool Of(const std::tuple<Ts...>& a, const std::tuple<Ts...>& b) {
    return OfTuple(a, b, std::index_sequence_for<Ts...>());
  }
  template <typename... Ts>
  static bool Of(const std::variant<Ts...>& a, const std::variant<Ts...>& b) {
    if (a.index() != b.index()) return false;
    return std::visit(
        [&b](const auto& value) { return Of(value, std::get<std::decay_t<decltype(value)>>(b)); },
        a);
  }
  template <typename T>
  static bool Of(const T& a, const T& b) {
    if constexpr (kIsPlain<T>) {
      return Of(MembersOf(a), MembersOf(b));
    } else if constexpr (std::is_floating_point_v<T>) {
      return std::memcmp(&a, &b, sizeof(T)) == 0;
    } else {
      return a == b;
    }
  }

 private:
  static Tensor Whole(const Tensor& values, const std::shared_ptr<const ScatteredTensor>& pieces) {
    return pieces == nullptr ? values : *pieces->Joined();
  }
  template <typename Range>
  static bool OfRange(const Range& a, const Range& b) {
    if (a.size() != b.size()) return false;
    auto other = b.begin();
    for (const auto& value : a) {
      if (!Of(value, *other++)) return false;
    }
    return true;
  }
  template <typename Tuple, size_t... I>
  static bool OfTuple(const Tuple& a, const Tuple& b, std::index_sequence<I...>) {
    return (Of(std::get<I>(a), std::get<I>(b)) && ...);
  }
};

}  // namespace divvy::wire::testing

#endif  // DIVVY_WIRE_TESTING_SAME_H_
