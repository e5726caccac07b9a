// Whether two values of cluster/messages.h are the same, field by field.
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
#include "cluster/messages.h"
#include "cluster/resumable_stream.h"
#include "wire/layout.h"

namespace divvy::wire::testing {

// The members of each plain struct, found without wire/fields.h: a member that is described nowhere
// must differ after a journey. One that is added and not counted here does not compile;
// wire/fields.h and the generator need it, too.
#define DIVVY_FIELDS(Type, ...)             \
  inline auto FieldsOf(const Type& value) { \
    const auto& [__VA_ARGS__] = value;      \
    return std::tie(__VA_ARGS__);           \
  }
DIVVY_FIELDS(ExponentialDecay, a, b, c, d)
DIVVY_FIELDS(InverseTimeDecay, a, b, c, d)
DIVVY_FIELDS(PolynomialDecay, a, b, c, d)
DIVVY_FIELDS(CosineDecay, a, b, c, d, e)
DIVVY_FIELDS(PiecewiseConstant, a, b)
DIVVY_FIELDS(Sgd, a)
DIVVY_FIELDS(Momentum, a, b, c)
DIVVY_FIELDS(Adagrad, a, b, c)
DIVVY_FIELDS(RowwiseAdagrad, a, b, c)
DIVVY_FIELDS(Adam, a, b, c, d, e, f)
DIVVY_FIELDS(RmsProp, a, b, c, d, e)
DIVVY_FIELDS(Ftrl, a, b, c, d, e, f, g)
DIVVY_FIELDS(OptimizerStep, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)
DIVVY_FIELDS(Constant, a)
DIVVY_FIELDS(RandomUniform, a, b, c)
DIVVY_FIELDS(RandomNormal, a, b, c)
DIVVY_FIELDS(TruncatedNormal, a, b, c)
DIVVY_FIELDS(VarianceScaling, a, b, c, d)
DIVVY_FIELDS(Identity, a)
DIVVY_FIELDS(Orthogonal, a, b)
DIVVY_FIELDS(SlotSpec, a, b, c)
DIVVY_FIELDS(VariableLayout, a, b, c, d, e, f)
DIVVY_FIELDS(ShardSpec, a, b, c, d, e, f, g)
DIVVY_FIELDS(ErrorDetail, a, b, c, d, e, f, g)
DIVVY_FIELDS(Fence, a, b, c, d, e)
DIVVY_FIELDS(ProtocolRange, a, b)
DIVVY_FIELDS(PassProgress, a, b, c, d, e, f, g, h, i)
DIVVY_FIELDS(Horizon, a, b, c, d)
DIVVY_FIELDS(InputLease, a, b, c)
DIVVY_FIELDS(RememberedEntry, a, b, c, d)
DIVVY_FIELDS(ProgramDescription, a, b, c)
DIVVY_FIELDS(RegisterRequest, a, b, c, d, e, f, g, h, i, j)
DIVVY_FIELDS(RegisterReply, a, b, c)
DIVVY_FIELDS(PsAttachRequest, a, b)
DIVVY_FIELDS(PsAttachReply, a, b, c, d, e, f, g, h, i, j)
DIVVY_FIELDS(LoadRequest, a, b, c, d, e, f, g, h, i)
DIVVY_FIELDS(LoadReply, a, b, c)
DIVVY_FIELDS(CheckpointId, a, b)
DIVVY_FIELDS(SnapshotRequest, a, b, c, d, e)
DIVVY_FIELDS(SavedSlice, a, b, c, d, e, f, g, h)
DIVVY_FIELDS(SnapshotReply, a, b, c)
DIVVY_FIELDS(SyncRequest, a, b, c, d, e, f)
DIVVY_FIELDS(SyncReply, a, b, c, d, e)
DIVVY_FIELDS(CreateShardsRequest, a, b, c, d, e)
DIVVY_FIELDS(DeleteShardsRequest, a, b, c, d)
DIVVY_FIELDS(LayoutReply, a)
DIVVY_FIELDS(ShutdownRequest, a, b)
inline auto FieldsOf(const PullPart& value) {
  const auto& [shard, rows, not_sent] = value;
  static_cast<void>(not_sent);
  return std::tie(shard, rows);
}
DIVVY_FIELDS(PullRequest, a, b)
DIVVY_FIELDS(PullPartReply, a, b, c)
DIVVY_FIELDS(PullReply, a)
DIVVY_FIELDS(CommitPart, a, b, c, d, e, f)
DIVVY_FIELDS(CommitRequest, a, b, c, d, e, f, g)
DIVVY_FIELDS(CommitReply, a, b, c)
DIVVY_FIELDS(PsAddress, a, b, c, d)
DIVVY_FIELDS(WorkerAttachRequest, a, b, c, d, e, f)
DIVVY_FIELDS(WorkerAttachReply, a, b, c, d)
DIVVY_FIELDS(LayoutUpdate, a)
DIVVY_FIELDS(Dispatch, a, b, c, d, e, f, g)
DIVVY_FIELDS(CancelSteps, a)
DIVVY_FIELDS(MakeResource, a, b, c, d, e, f)
DIVVY_FIELDS(DropResource, a)
DIVVY_FIELDS(Hold, a)
DIVVY_FIELDS(Release, a)
DIVVY_FIELDS(Held, a)
DIVVY_FIELDS(EndedInput, a, b)
DIVVY_FIELDS(Report, a, b, c, d, e, f, g, h)
DIVVY_FIELDS(ElementDigest, a, b, c)
DIVVY_FIELDS(ResourceReady, a, b, c, d)
DIVVY_FIELDS(NeedSlots, a, b)
DIVVY_FIELDS(Pong, a, b, c, d)
DIVVY_FIELDS(StreamFrame<ToWorker>, a, b, c, d, e)
DIVVY_FIELDS(StreamFrame<FromWorker>, a, b, c, d, e)
#undef DIVVY_FIELDS

template <typename T, typename = void>
constexpr bool kHasFields = false;
template <typename T>
constexpr bool kHasFields<T, std::void_t<decltype(FieldsOf(std::declval<const T&>()))>> = true;

// Same::Of(a, b): floating numbers by their bits, statuses by code, text and detail, layouts by
// their variables.
class Same {
 public:
  static bool Of(const Tensor& a, const Tensor& b) { return BitwiseEqual(a, b); }
  static bool Of(const Nest& a, const Nest& b) { return BitwiseEqual(a, b); }
  static bool Of(const FromRows&, const FromRows&) { return false; }
  static bool Of(const absl::Status& a, const absl::Status& b) {
    return a.code() == b.code() && a.message() == b.message() && Of(DetailOf(a), DetailOf(b));
  }
  static bool Of(const VariableSpec& a, const VariableSpec& b) {
    const auto& [name, shape, initializer, optimizer, dtype, aggregation, partitioner] = a;
    return Of(std::tie(name, shape, initializer, optimizer, dtype, aggregation),
              std::tie(b.name, b.shape, b.initializer, b.optimizer, b.dtype, b.aggregation)) &&
           partitioner.has_value() == b.partitioner.has_value();
  }
  static bool Of(const std::shared_ptr<const Layout>& a, const std::shared_ptr<const Layout>& b) {
    if (a == nullptr || b == nullptr) return a == b;
    return a->version() == b->version() && a->hash() == b->hash() &&
           Of(a->variables(), b->variables());
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
    if constexpr (kHasFields<T>) {
      return Of(FieldsOf(a), FieldsOf(b));
    } else if constexpr (std::is_floating_point_v<T>) {
      return std::memcmp(&a, &b, sizeof(T)) == 0;
    } else if constexpr (std::is_empty_v<T>) {
      return true;
    } else {
      return a == b;
    }
  }

 private:
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
