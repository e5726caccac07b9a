// Encoding and decoding by description. A function Fields describes each message once (fields.h),
// and a visitor goes over the description: Encoder writes the fields of a value into a protobuf
// message, Decoder reads and checks them.
//
//   template <typename Visitor>
//   void Fields(Visitor& visit, CheckpointId& checkpoint) {
//     visit(DIVVY_WIRE_FIELD(epoch), checkpoint.epoch, NotZero());
//     visit(DIVVY_WIRE_FIELD(serial), checkpoint.serial);
//   }
//
// A rule of a field says what a decoder refuses. Without a rule it accepts any number and any text,
// a duration that is not negative, an enum value that it knows, and a message that is present. Used
// in wire/ only.
#ifndef DIVVY_WIRE_CODEC_H_
#define DIVVY_WIRE_CODEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/strong_id.h"
#include "wire/decode.h"
#include "wire/status.h"
#include "wire/text.h"
#include "wire/values.h"

namespace divvy::wire {

// ---- fields -------------------------------------------------------------------------------------

// One field. It works for any protobuf message with a field of this name.
template <typename Get, typename Has, typename Set, typename Mutable>
struct Field {
  absl::string_view name;
  Get get;
  Has has;
  Set set;
  Mutable mut;
};
template <typename Get, typename Has, typename Set, typename Mutable>
Field(absl::string_view, Get, Has, Set, Mutable) -> Field<Get, Has, Set, Mutable>;

// A lambda's body is compiled only if the lambda is called, so a field needs only the accessors
// that its type has.
// clang-format off
#define DIVVY_WIRE_FIELD(field)                                                \
  ::divvy::wire::Field {                                                       \
#field,                                                                      \
    [](const auto& message) -> decltype(auto) { return message.field(); },       \
    [](const auto& message) { return message.has_##field(); },                   \
    [](auto& message, auto value) { message.set_##field(std::move(value)); },    \
    [](auto& message) { return message.mutable_##field(); } \
  }
// clang-format on

// Takes the place of a field for an alternative of a variant that is never sent.
struct NeverSent {};

// ---- rules --------------------------------------------------------------------------------------

struct NotNegative {};
struct NotZero {};
// the index of a task: 0 to kMaxIndex
struct Index {};
struct Finite {};
// 1 to kMaxNameBytes bytes without control characters. An encoder escapes and cuts the text.
struct Name {};
// A Name, or an empty text.
struct NameOrEmpty {};
// At most `max_bytes` bytes without control characters. An encoder escapes and cuts the text.
struct Text {
  size_t max_bytes;
};
struct Range {
  int64_t low, high;
};
// A repeated field with at most `most` elements.
struct Counted {
  size_t most = kMaxParts;
};
// A repeated field whose elements rise.
struct Rising {};
template <typename Rule>
// A rule for each element of a repeated field.
struct ForEach {
  Rule rule;
};
template <typename Rule>
ForEach(Rule) -> ForEach<Rule>;
// An absent message is read as an empty one.
struct MayBeAbsent {};
// The shape of values of this dtype.
struct OfType {
  DType dtype;
};

// Converts an integer to int64 for a comparison.
template <typename Value>
int64_t Signed(Value value) {
  static_assert(std::is_integral_v<Value> &&
                (std::is_signed_v<Value> || sizeof(Value) < sizeof(int64_t)));
  return value;
}
template <typename Value>
absl::Status Test(NotNegative, absl::string_view field, Value value) {
  return CheckNotNegative(field, Signed(value));
}
template <typename Value>
absl::Status Test(NotZero, absl::string_view field, Value value) {
  return value == 0 ? Invalid(field, "is 0") : absl::OkStatus();
}
template <typename Value>
absl::Status Test(Index, absl::string_view field, Value value) {
  return CheckIndex(field, Signed(value));
}
inline absl::Status Test(Finite, absl::string_view field, double value) {
  return CheckFinite(field, value);
}
template <typename Value>
absl::Status Test(Range range, absl::string_view field, Value value) {
  return CheckRange(field, Signed(value), range.low, range.high);
}
inline absl::Status Test(Name, absl::string_view field, const std::string& value) {
  return CheckName(field, value);
}
inline absl::Status Test(NameOrEmpty, absl::string_view field, const std::string& value) {
  return value.empty() ? absl::OkStatus() : CheckName(field, value);
}
inline absl::Status Test(Text text, absl::string_view field, const std::string& value) {
  if (Escaped(value, text.max_bytes) == value) return absl::OkStatus();
  return Invalid(field, "is too long, or has control characters");
}
// The rule that accepts any value.
struct Anything {};
template <typename Value>
absl::Status Test(Anything, absl::string_view, const Value&) {
  return absl::OkStatus();
}

// The text that an encoder sends for a text with this rule.
inline std::string Sent(const std::string& text, Name) { return Escaped(text, kMaxNameBytes); }
inline std::string Sent(const std::string& text, NameOrEmpty) {
  return Escaped(text, kMaxNameBytes);
}
inline std::string Sent(const std::string& text, Text rule) {
  return Escaped(text, rule.max_bytes);
}
template <typename Value, typename Rule>
const Value& Sent(const Value& value, const Rule&) {
  return value;
}

// ---- kinds of members ---------------------------------------------------------------------------

template <typename T>
constexpr bool kIsId = false;
template <typename Tag, typename Int>
constexpr bool kIsId<StrongId<Tag, Int>> = true;
template <typename T>
constexpr bool kIsOptional = false;
template <typename T>
constexpr bool kIsOptional<std::optional<T>> = true;
// True for std::vector and std::set, which are repeated fields.
template <typename T, typename = void>
constexpr bool kIsRepeated = false;
template <typename T>
constexpr bool
    kIsRepeated<T, std::void_t<typename T::value_type, decltype(std::declval<T&>().end())>> = true;
template <typename T>
constexpr bool kIsScalar = std::is_arithmetic_v<T> || kIsId<T> || std::is_same_v<T, std::string>;

template <typename T>
auto Plain(const T& value) {
  if constexpr (kIsId<T>) {
    return value.value();
  } else {
    return value;
  }
}
template <typename T, typename Proto>
T FromPlain(const Proto& sent) {
  if constexpr (kIsId<T>) {
    return T(static_cast<typename T::value_type>(sent));
  } else {
    return static_cast<T>(sent);
  }
}

// ---- out ----------------------------------------------------------------------------------------

template <typename Proto>
class Encoder;

// Writes `value` into the fields of `out`. `value` is only read.
template <typename T, typename Proto>
void Write(const T& value, Proto& out) {
  if constexpr (std::is_same_v<T, Nest>) {
    ToProto(value, &out);
  } else {
    Encoder<Proto> encoder(out);
    Fields(encoder, const_cast<T&>(value));
  }
}

template <typename Proto>
class Encoder {
 public:
  static constexpr bool kReads = false;
  explicit Encoder(Proto& out) : out_(out) {}

  template <typename F, typename T, typename... Rules>
  void operator()(const F& field, const T& value, const Rules&... rules) {
    if constexpr (kIsOptional<T>) {
      if (value) (*this)(field, *value, rules...);
    } else if constexpr (std::is_same_v<T, absl::Status>) {
      if (!value.ok()) *field.mut(out_) = ToProto(value);
    } else if constexpr (std::is_same_v<T, absl::Duration>) {
      field.set(out_, absl::ToInt64Nanoseconds(value));
    } else if constexpr (std::is_same_v<T, Shape>) {
      ToProto(value, field.mut(out_));
    } else if constexpr (std::is_enum_v<T>) {
      field.set(out_, EnumToProto(value, rules...));
    } else if constexpr (kIsScalar<T>) {
      SetScalar(field, value, rules...);
    } else if constexpr (kIsRepeated<T>) {
      AddAll(*field.mut(out_), value, RuleOfElements(rules...));
    } else {
      Write(value, *field.mut(out_));
    }
  }
  // A repeated field of messages, made from what `project` returns for each element of `all`.
  // Encoder only.
  template <typename F, typename All, typename Project>
  void Each(const F& field, const All& all, const Project& project) {
    auto& out = *field.mut(out_);
    out.Reserve(static_cast<int>(all.size()));
    for (const auto& one : all) Write(project(one), *out.Add());
  }
  // A member that is sent as another type. The encoder sends what `to` returns. The decoder calls
  // `from` with the received value and the member.
  template <typename F, typename T, typename To, typename From, typename... Rules>
  void Via(const F& field, const T& value, const To& to, const From&, const Rules&... rules) {
    (*this)(field, to(value), rules...);
  }
  // A map, with a rule for keys and a rule for values. Counted works as for a repeated field.
  template <typename F, typename T, typename KeyRule, typename ValueRule, typename... Rules>
  void Map(const F& field, const T& map, const KeyRule& key_rule, const ValueRule& value_rule,
           const Rules&...) {
    auto& out = *field.mut(out_);
    for (const auto& [key, value] : map) out[Sent(key, key_rule)] = Sent(value, value_rule);
  }
  // A variant, sent as the field of its alternative. The fields are those of the alternatives, in
  // order.
  template <typename... Ts, typename... Fs>
  void OneOf(const std::variant<Ts...>& value, const Fs&... fields) {
    static_assert(sizeof...(Ts) == sizeof...(Fs));
    size_t index = 0;
    ((index++ == value.index() ? PutAlternative<Ts>(fields, value) : void()), ...);
  }
  template <typename... Ts, typename... Fs>
  void OneOf(const std::optional<std::variant<Ts...>>& value, const Fs&... fields) {
    if (value) OneOf(*value, fields...);
  }
  // The decoder calls the action after it has read all fields before it. The action checks them
  // together, or completes the value.
  template <typename Action>
  void AfterReading(const Action&) {}

 private:
  template <typename E>
  static auto EnumToProto(E value) {
    return ToProto(value);
  }
  template <typename E, typename Table>
  static auto EnumToProto(E value, const Table& table) {
    return table.ToWire(value);
  }
  template <typename F, typename T>
  void SetScalar(const F& field, const T& value) {
    field.set(out_, Plain(value));
  }
  template <typename F, typename T, typename Rule>
  void SetScalar(const F& field, const T& value, const Rule& rule) {
    field.set(out_, Plain(Sent(value, rule)));
  }
  static Anything RuleOfElements() { return {}; }
  static Anything RuleOfElements(Rising) { return {}; }
  template <typename Rule>
  static Rule RuleOfElements(ForEach<Rule> each) {
    return each.rule;
  }
  template <typename... Rules>
  static auto RuleOfElements(Counted, const Rules&... rules) {
    return RuleOfElements(rules...);
  }
  template <typename Repeated, typename All, typename Rule>
  static void AddAll(Repeated& out, const All& all, const Rule& rule) {
    out.Reserve(static_cast<int>(all.size()));
    for (const auto& one : all) {
      if constexpr (std::is_same_v<std::decay_t<decltype(one)>, std::string>) {
        *out.Add() = Sent(one, rule);
      } else if constexpr (kIsScalar<std::decay_t<decltype(one)>>) {
        out.Add(Plain(one));
      } else {
        Write(one, *out.Add());
      }
    }
  }
  template <typename T, typename F, typename Variant>
  void PutAlternative(const F& field, const Variant& value) {
    if constexpr (std::is_same_v<F, NeverSent>) {
    } else if constexpr (std::is_empty_v<T>) {
      field.mut(out_);
    } else {
      (*this)(field, std::get<T>(value));
    }
  }

  Proto& out_;
};

// ---- in -----------------------------------------------------------------------------------------

template <typename Proto>
class Decoder;

template <typename Proto, typename T>
absl::Status Read(const Proto& from, T& to) {
  if constexpr (std::is_same_v<T, Nest>) {
    DIVVY_ASSIGN_OR_RETURN(to, FromProto(from));
    return absl::OkStatus();
  } else {
    Decoder<Proto> decoder(from);
    Fields(decoder, to);
    return decoder.status();
  }
}

// Reads fields until one is refused; status() names it. After that each visit does nothing.
template <typename Proto>
class Decoder {
 public:
  static constexpr bool kReads = true;
  explicit Decoder(const Proto& from) : from_(from) {}

  const absl::Status& status() const { return status_; }

  template <typename F, typename T, typename... Rules>
  void operator()(const F& field, T& value, const Rules&... rules) {
    if (status_.ok()) status_ = Take(field, value, rules...);
  }
  template <typename F, typename T, typename To, typename From, typename... Rules>
  void Via(const F& field, T& value, const To& to, const From& from, const Rules&... rules) {
    if (!status_.ok()) return;
    std::decay_t<decltype(to(value))> sent{};
    status_ = Take(field, sent, rules...);
    if (status_.ok()) status_ = In(field.name, from(std::move(sent), value));
  }
  template <typename F, typename T, typename KeyRule, typename ValueRule>
  void Map(const F& field, T& map, const KeyRule& key_rule, const ValueRule& value_rule) {
    if (status_.ok()) status_ = TakeMap(field, map, key_rule, value_rule);
  }
  template <typename F, typename T, typename KeyRule, typename ValueRule>
  void Map(const F& field, T& map, const KeyRule& key_rule, const ValueRule& value_rule,
           Counted counted) {
    if (status_.ok()) status_ = CheckCount(field.name, field.get(from_).size(), counted.most);
    Map(field, map, key_rule, value_rule);
  }
  template <typename... Ts, typename... Fs>
  void OneOf(std::variant<Ts...>& value, const Fs&... fields) {
    bool found = false;
    (TakeAlternative<Ts>(fields, value, found), ...);
    if (status_.ok() && !found) status_ = Invalid("", "has no kind, or one of a newer protocol");
  }
  template <typename... Ts, typename... Fs>
  void OneOf(std::optional<std::variant<Ts...>>& value, const Fs&... fields) {
    std::variant<Ts...> message;
    bool found = false;
    (TakeAlternative<Ts>(fields, message, found), ...);
    if (found) value = std::move(message);
  }
  template <typename Action>
  void AfterReading(const Action& action) {
    if (status_.ok()) status_ = action();
  }

 private:
  template <typename F, typename T, typename... Rules>
  absl::Status Take(const F& field, T& value, const Rules&... rules) {
    if constexpr (kIsOptional<T>) {
      if (!field.has(from_)) return absl::OkStatus();
      return Take(field, value.emplace(), rules...);
    } else if constexpr (std::is_same_v<T, absl::Status>) {
      static_assert(sizeof...(Rules) == 0);
      value = FromProto(field.get(from_));
      return absl::OkStatus();
    } else if constexpr (std::is_same_v<T, absl::Duration>) {
      static_assert(sizeof...(Rules) == 0);
      DIVVY_RETURN_IF_ERROR(CheckNotNegative(field.name, field.get(from_)));
      value = absl::Nanoseconds(field.get(from_));
      return absl::OkStatus();
    } else if constexpr (std::is_same_v<T, Shape>) {
      return TakeShape(field, value, rules...);
    } else if constexpr (std::is_enum_v<T>) {
      return TakeEnum(field, value, rules...);
    } else if constexpr (kIsScalar<T>) {
      absl::Status tested;
      ((tested.ok() ? void(tested = Test(rules, field.name, field.get(from_))) : void()), ...);
      DIVVY_RETURN_IF_ERROR(tested);
      value = FromPlain<T>(field.get(from_));
      return absl::OkStatus();
    } else if constexpr (kIsRepeated<T>) {
      return TakeAll(field, value, rules...);
    } else {
      constexpr bool may_be_absent = (std::is_same_v<Rules, MayBeAbsent> || ...);
      static_assert(sizeof...(Rules) == (may_be_absent ? 1 : 0), "a message has no other rule");
      if (!may_be_absent && !field.has(from_)) return Invalid(field.name, "is missing");
      return In(field.name, Read(field.get(from_), value));
    }
  }
  template <typename F>
  absl::Status TakeShape(const F& field, Shape& value, OfType type) {
    DIVVY_ASSIGN_OR_RETURN(value, In(field.name, ShapeFromProto(field.get(from_), type.dtype)));
    return absl::OkStatus();
  }
  template <typename F, typename E>
  absl::Status TakeEnum(const F& field, E& value) {
    DIVVY_ASSIGN_OR_RETURN(value, In(field.name, FromProto(field.get(from_))));
    return absl::OkStatus();
  }
  template <typename F, typename E, typename Table>
  absl::Status TakeEnum(const F& field, E& value, const Table& table) {
    DIVVY_ASSIGN_OR_RETURN(value, In(field.name, table.ToDomain(field.get(from_))));
    return absl::OkStatus();
  }

  template <typename F, typename All>
  absl::Status TakeAll(const F& field, All& all) {
    return TakeAll(field, all, ForEach{Anything()});
  }
  template <typename F, typename All>
  absl::Status TakeAll(const F& field, All& all, Counted counted) {
    return TakeAll(field, all, counted, ForEach{Anything()});
  }
  template <typename F, typename All, typename Rule>
  absl::Status TakeAll(const F& field, All& all, Counted counted, ForEach<Rule> each) {
    DIVVY_RETURN_IF_ERROR(
        CheckCount(field.name, static_cast<size_t>(field.get(from_).size()), counted.most));
    return TakeAll(field, all, each);
  }
  template <typename F, typename All>
  absl::Status TakeAll(const F& field, All& all, Rising) {
    DIVVY_RETURN_IF_ERROR(TakeAll(field, all));
    return CheckRising(field.name, all);
  }
  template <typename F, typename All, typename Rule>
  absl::Status TakeAll(const F& field, All& all, ForEach<Rule> each) {
    using T = typename All::value_type;
    const auto& repeated = field.get(from_);
    if constexpr (std::is_same_v<All, std::vector<T>>) all.reserve(repeated.size());
    size_t number = 0;
    for (const auto& sent : repeated) {
      if constexpr (kIsScalar<T>) {
        if (absl::Status bad = Test(each.rule, "", sent); !bad.ok())
          return In(Element(field.name, number), bad);
        all.insert(all.end(), FromPlain<T>(sent));
      } else {
        if (absl::Status bad = Read(sent, all.emplace_back()); !bad.ok())
          return In(Element(field.name, number), bad);
      }
      ++number;
    }
    return absl::OkStatus();
  }
  template <typename F, typename T, typename KeyRule, typename ValueRule>
  absl::Status TakeMap(const F& field, T& map, const KeyRule& key_rule,
                       const ValueRule& value_rule) {
    for (const auto& [key, value] : field.get(from_)) {
      DIVVY_RETURN_IF_ERROR(Test(key_rule, field.name, key));
      DIVVY_RETURN_IF_ERROR(Test(value_rule, field.name, value));
      map.emplace(key, value);
    }
    return absl::OkStatus();
  }
  template <typename T, typename F, typename Variant>
  void TakeAlternative(const F& field, Variant& value, bool& found) {
    if constexpr (!std::is_same_v<F, NeverSent>) {
      if (!status_.ok() || !field.has(from_)) return;
      found = true;
      if constexpr (std::is_empty_v<T>) {
        value.template emplace<T>();
      } else {
        status_ = Take(field, value.template emplace<T>());
      }
    }
  }

  const Proto& from_;
  absl::Status status_;
};

// ---- both ways ----------------------------------------------------------------------------------

template <typename Proto, typename T>
Proto Encoded(const T& value) {
  Proto out;
  Write(value, out);
  return out;
}
template <typename T, typename Proto>
absl::StatusOr<T> Decoded(const Proto& from) {
  T value{};
  DIVVY_RETURN_IF_ERROR(Read(from, value));
  return value;
}

// Defines both conversions between `Type` and v1::`Type`.
#define DIVVY_WIRE_CONVERSIONS(Type)                                       \
  v1::Type ToProto(const Type& value) { return Encoded<v1::Type>(value); } \
  absl::StatusOr<Type> FromProto(const v1::Type& from) { return Decoded<Type>(from); }

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_CODEC_H_
