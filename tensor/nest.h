// Structured values (trees of tensors), and the conversion of C++ types to and from them.
#ifndef DIVVY_TENSOR_NEST_H_
#define DIVVY_TENSOR_NEST_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "tensor/tensor.h"

namespace divvy {

// Names an object that was created once on every worker (an iterator): `id` is its number there. It
// travels inside a Nest and means nothing to a program.
struct PerWorkerHandle {
  uint64_t id = 0;
};

// A tree of lists and dicts. Its leaves are tensors, indexed slices, strings or per-worker handles;
// the keys of a dict are sorted, as in tf.nest. A Nest is the one type that crosses process
// boundaries, and the type of a dataset's elements. Immutable, cheap to copy, thread-safe.
//
// A wrong path gives a *failed* Nest, which remembers the reason. So batch["imgae"] never crashes:
// it gives an error that lists the existing keys, and one check at the end of the path suffices.
//
//   Nest batch = {{"image", images}, {"history", SparseIds{ids, row_splits}}};
//   ASSIGN_OR_RETURN(Tensor image, batch["image"].tensor());  // the one check
//   batch["history"]["ids"].tensor();                         // SparseIds are a dict
//
// A failed element does not make its container fail: status() of a list is OK whatever its elements
// are. MapLeaves, Flatten and PackAs return the first error that they meet. After a move a Nest may
// only be assigned to or destroyed. wire/values.h limits the depth of a Nest that travels.
class Nest {
 public:
  // The contents of a list and of a dict.
  using List = std::vector<Nest>;
  using Dict = std::map<std::string, Nest>;

  // Leaves and containers. Nothing is checked. A Tensor leaf shares the tensor's buffer. SparseIds
  // become a dict with the keys "ids", "row_splits" and, if there are any, "weights".
  Nest();  // the empty list
  Nest(Tensor tensor);
  Nest(IndexedSlices slices);
  Nest(SparseIds ids);
  Nest(std::string text);
  Nest(const char* text) : Nest(std::string(text)) {}
  Nest(PerWorkerHandle handle);
  Nest(List list);
  Nest(Dict dict);
  template <typename T, typename = std::enable_if_t<std::is_arithmetic_v<T>>>
  // A number as a tensor of one element. NestCodec<T> below gives its dtype.
  Nest(T scalar);
  // A dict. If a key occurs twice, the first entry counts.
  Nest(std::initializer_list<std::pair<const std::string, Nest>> dict);
  // A failed Nest with this reason. REQUIRES: `reason` is not OK
  static Nest Failed(absl::Status reason);

  // The child with this key or index. The result is failed if there is no such key (the message
  // lists the existing ones) or index, if this Nest is not a dict or list, or if this Nest is
  // failed.
  Nest operator[](absl::string_view key) const;
  Nest operator[](const char* key) const { return (*this)[absl::string_view(key)]; }
  Nest operator[](size_t index) const;
  Nest operator[](int index) const;

  // The value of this leaf. InvalidArgument: this Nest is of another kind, which the message names.
  // A failed Nest returns its own reason, with that reason's code. indexed_slices() returns the
  // slices as they were put in, without a check.
  absl::StatusOr<Tensor> tensor() const;
  absl::StatusOr<IndexedSlices> indexed_slices() const;
  // From a dict with "ids", "row_splits" and optionally "weights"; other keys are ignored. The
  // result has passed Validate, so ids and row_splits are on the CPU. Errors as above, or those of
  // Validate.
  absl::StatusOr<SparseIds> sparse_ids() const;
  absl::StatusOr<std::string> text() const;
  absl::StatusOr<PerWorkerHandle> handle() const;
  absl::Status status() const;  // OK unless failed

  // The kind of this Nest. SparseIds are a kDict.
  enum class Kind { kFailed, kTensor, kIndexedSlices, kText, kHandle, kList, kDict };
  Kind kind() const;
  size_t size() const;       // number of elements of a list or dict, else 0
  const List* list() const;  // null if it is not a list; valid while this Nest lives
  const Dict* dict() const;

  // tf.nest.flatten: all tensors, depth first, the keys of a dict in order. InvalidArgument: a leaf
  // is not a tensor. A failed Nest returns its reason.
  absl::StatusOr<std::vector<Tensor>> Flatten() const;
  // tf.nest.pack_sequence_as, the inverse of Flatten: this structure with the given tensors as its
  // leaves. A tensor replaces a leaf of any kind. InvalidArgument: the number of tensors is not the
  // number of leaves.
  absl::StatusOr<Nest> PackAs(absl::Span<const Tensor> leaves) const;
  // tf.nest.map_structure: this structure with `fn` applied to each leaf, in the order of Flatten,
  // on the calling thread. The first error stops the traversal and is returned. An IndexedSlices is
  // one leaf; the parts of a SparseIds are separate leaves.
  absl::StatusOr<Nest> MapLeaves(
      const std::function<absl::StatusOr<Nest>(const Nest& leaf)>& fn) const;

  // An estimate of its size in a message: the bytes of its leaves and keys, plus 32 bytes for each
  // leaf, list and dict.
  int64_t size_bytes() const;

  // For error messages: "{"image": uint8 [64, 28, 28], "label": int64 [64]}".
  std::string ToString() const;

 private:
  struct Node;
  explicit Nest(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  absl::Status KindError(absl::string_view wanted) const;
  std::shared_ptr<const Node> node_;
};

// Whether both have the same structure and their leaves are bitwise equal.
bool BitwiseEqual(const Nest& a, const Nest& b);

// Converts a C++ type to and from a Nest, so that it can travel. Provided for arithmetic types,
// std::string, Tensor, IndexedSlices, SparseIds, Nest, std::monostate, and vector, map<string, .>,
// optional, pair and tuple of these. Metrics and Iterator have theirs beside their definitions.
// Specialise it for a type of your own; Decode must refuse every Nest that Encode cannot produce.
//
//   bool, int32_t, float, double    a tensor of one element of that dtype
//   other integers                  a tensor of one int64
//   std::string                     a text
//   vector, pair, tuple             a list with one Nest for each element; use a Tensor for many
//                                   numbers
//   map<string, .>                  a dict
//   optional                        a list of zero or one element
//   monostate                       the empty list
//
// Decode returns InvalidArgument if the Nest has another form or the type cannot hold the number;
// the message says what was wanted and what was found. A failed Nest returns its reason.
//
//   template <>
//   struct divvy::NestCodec<Window> {
//     static Nest Encode(const Window& window) {
//       return {{"first", window.first}, {"last", window.last}};
//     }
//     static absl::StatusOr<Window> Decode(const Nest& nest) {
//       ASSIGN_OR_RETURN(const int64_t first, NestCodec<int64_t>::Decode(nest["first"]));
//       ASSIGN_OR_RETURN(const int64_t last, NestCodec<int64_t>::Decode(nest["last"]));
//       return Window{first, last};
//     }
//   };
//
// Each specialisation has these two functions:
//
//   static Nest Encode(const T& value);
//   static absl::StatusOr<T> Decode(const Nest& nest);
template <typename T, typename Enable = void>
struct NestCodec;

template <>
struct NestCodec<Nest> {
  static Nest Encode(const Nest& value) { return value; }
  static absl::StatusOr<Nest> Decode(const Nest& nest) {
    DIVVY_RETURN_IF_ERROR(nest.status());
    return nest;
  }
};
template <>
struct NestCodec<Tensor> {
  static Nest Encode(const Tensor& value) { return Nest(value); }
  static absl::StatusOr<Tensor> Decode(const Nest& nest) { return nest.tensor(); }
};
template <>
struct NestCodec<IndexedSlices> {
  static Nest Encode(const IndexedSlices& value) { return Nest(value); }
  static absl::StatusOr<IndexedSlices> Decode(const Nest& nest) { return nest.indexed_slices(); }
};
template <>
struct NestCodec<SparseIds> {
  static Nest Encode(const SparseIds& value) { return Nest(value); }
  static absl::StatusOr<SparseIds> Decode(const Nest& nest) { return nest.sparse_ids(); }
};
template <>
struct NestCodec<std::string> {
  static Nest Encode(const std::string& value) { return Nest(value); }
  static absl::StatusOr<std::string> Decode(const Nest& nest) { return nest.text(); }
};
template <>
struct NestCodec<std::monostate> {
  static Nest Encode(std::monostate) { return Nest(); }
  static absl::StatusOr<std::monostate> Decode(const Nest& nest) {
    DIVVY_RETURN_IF_ERROR(nest.status());
    if (nest.kind() != Nest::Kind::kList || nest.size() != 0)
      return absl::InvalidArgumentError(absl::StrCat("wanted nothing, not ", nest.ToString()));
    return std::monostate{};
  }
};

namespace internal {
// The C++ type in which an arithmetic type travels: the type itself where it is bool, float, double
// or int32_t, else the 64-bit type of its kind (double or int64_t).
template <typename T>
using WireArithmetic =
    std::conditional_t<std::is_same_v<T, bool> || std::is_same_v<T, float> ||
                           std::is_same_v<T, double> || std::is_same_v<T, int32_t>,
                       T, std::conditional_t<std::is_floating_point_v<T>, double, int64_t>>;
// InvalidArgument: `nest` is not a list of `elements` elements.
absl::Status WantElements(const Nest& nest, size_t elements);
absl::Status OutOfRangeScalar(const Nest& nest);
}  // namespace internal

template <typename T>
struct NestCodec<T, std::enable_if_t<std::is_arithmetic_v<T>>> {
  using Wire = internal::WireArithmetic<T>;
  static Nest Encode(T value) { return Nest(Tensor::Scalar<Wire>(static_cast<Wire>(value))); }
  static absl::StatusOr<T> Decode(const Nest& nest) {
    DIVVY_ASSIGN_OR_RETURN(Tensor tensor, nest.tensor());
    DIVVY_ASSIGN_OR_RETURN(Wire value, tensor.scalar<Wire>());
    if (static_cast<Wire>(static_cast<T>(value)) != value && value == value)
      return internal::OutOfRangeScalar(nest);
    return static_cast<T>(value);
  }
};
template <typename T>
struct NestCodec<std::vector<T>> {
  static Nest Encode(const std::vector<T>& values) {
    Nest::List list;
    for (const T& value : values) list.push_back(NestCodec<T>::Encode(value));
    return Nest(std::move(list));
  }
  static absl::StatusOr<std::vector<T>> Decode(const Nest& nest) {
    DIVVY_RETURN_IF_ERROR(internal::WantElements(nest, nest.size()));
    std::vector<T> values;
    for (size_t i = 0; i < nest.size(); ++i) {
      DIVVY_ASSIGN_OR_RETURN(T value, NestCodec<T>::Decode(nest[i]));
      values.push_back(std::move(value));
    }
    return values;
  }
};
template <typename T>
struct NestCodec<std::map<std::string, T>> {
  static Nest Encode(const std::map<std::string, T>& values) {
    Nest::Dict dict;
    for (const auto& [key, value] : values) dict.emplace(key, NestCodec<T>::Encode(value));
    return Nest(std::move(dict));
  }
  static absl::StatusOr<std::map<std::string, T>> Decode(const Nest& nest) {
    DIVVY_RETURN_IF_ERROR(nest.status());
    if (nest.dict() == nullptr)
      return absl::InvalidArgumentError(absl::StrCat("wanted a dict, not ", nest.ToString()));
    std::map<std::string, T> values;
    for (const auto& [key, child] : *nest.dict()) {
      DIVVY_ASSIGN_OR_RETURN(T value, NestCodec<T>::Decode(child));
      values.emplace(key, std::move(value));
    }
    return values;
  }
};
template <typename T>
struct NestCodec<std::optional<T>> {  // a list of zero or one element
  static Nest Encode(const std::optional<T>& value) {
    return value ? Nest(Nest::List{NestCodec<T>::Encode(*value)}) : Nest();
  }
  static absl::StatusOr<std::optional<T>> Decode(const Nest& nest) {
    if (nest.kind() == Nest::Kind::kList && nest.size() == 0) return std::optional<T>();
    DIVVY_RETURN_IF_ERROR(internal::WantElements(nest, 1));
    DIVVY_ASSIGN_OR_RETURN(T value, NestCodec<T>::Decode(nest[size_t{0}]));
    return std::optional<T>(std::move(value));
  }
};
template <typename A, typename B>
struct NestCodec<std::pair<A, B>> {
  static Nest Encode(const std::pair<A, B>& value) {
    return Nest(Nest::List{NestCodec<A>::Encode(value.first), NestCodec<B>::Encode(value.second)});
  }
  static absl::StatusOr<std::pair<A, B>> Decode(const Nest& nest) {
    DIVVY_RETURN_IF_ERROR(internal::WantElements(nest, 2));
    DIVVY_ASSIGN_OR_RETURN(A a, NestCodec<A>::Decode(nest[size_t{0}]));
    DIVVY_ASSIGN_OR_RETURN(B b, NestCodec<B>::Decode(nest[size_t{1}]));
    return std::pair<A, B>(std::move(a), std::move(b));
  }
};
template <typename... Ts>
struct NestCodec<std::tuple<Ts...>> {
  static Nest Encode(const std::tuple<Ts...>& value) {
    return std::apply(
        [](const Ts&... elements) { return Nest(Nest::List{NestCodec<Ts>::Encode(elements)...}); },
        value);
  }
  static absl::StatusOr<std::tuple<Ts...>> Decode(const Nest& nest) {
    DIVVY_RETURN_IF_ERROR(internal::WantElements(nest, sizeof...(Ts)));
    return DecodeAll(nest, std::index_sequence_for<Ts...>());
  }

 private:
  template <size_t... I>
  static absl::StatusOr<std::tuple<Ts...>> DecodeAll([[maybe_unused]] const Nest& nest,
                                                     std::index_sequence<I...>) {
    [[maybe_unused]] std::tuple<absl::StatusOr<Ts>...> decoded{NestCodec<Ts>::Decode(nest[I])...};
    absl::Status first;
    (first.Update(std::get<I>(decoded).status()), ...);
    DIVVY_RETURN_IF_ERROR(first);
    return std::tuple<Ts...>(*std::move(std::get<I>(decoded))...);
  }
};

template <typename T, typename>
Nest::Nest(T scalar) : Nest(NestCodec<T>::Encode(scalar)) {}

}  // namespace divvy

#endif  // DIVVY_TENSOR_NEST_H_
