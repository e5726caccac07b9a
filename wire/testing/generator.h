// Random values of every message, small and valid: FromProto accepts them. They are made from the
// descriptions in wire/fields.h, so a new message or field needs no line here.
#ifndef DIVVY_WIRE_TESTING_GENERATOR_H_
#define DIVVY_WIRE_TESTING_GENERATOR_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/random.h"
#include "protocol/messages.h"
#include "protocol/resumable_stream.h"
#include "wire/fields.h"

namespace divvy::wire::testing {

// The same seed gives the same values. Not thread-safe.
//   const auto request = Generator(seed).Make<SyncRequest>();
class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  template <typename T>
  T Make() {
    T value;
    Fill(value);
    return value;
  }

  // A described message (wire/fields.h): each field is filled by its rules, then Mend makes the
  // fields fit each other.
  template <typename T>
  void Fill(T& out);

  // Types that have no description, or whose fields must fit each other as a whole.
  // may be OK
  void Fill(absl::Status& out);
  void Fill(ErrorDetail& out);
  void Fill(Role& out) { out = Chance() ? Role::kPs : Role::kWorker; }
  void Fill(Tensor& out);
  void Fill(Nest& out) { out = MakeNest(4); }
  void Fill(LearningRate& out);
  void Fill(Optimizer& out);
  void Fill(OptimizerStep& out);
  void Fill(Initializer& out) { out = MakeInitializer(false); }
  void Fill(TableOptions& out);
  void Fill(ShardSpec& out);
  void Fill(VariableLayout& out);
  void Fill(std::shared_ptr<const Layout>& out);
  void Fill(LayoutUpdate& out) { Fill(out.layout); }
  void Fill(PassProgress& out);
  void Fill(SavedSlice& out);
  void Fill(PullPart& out);
  void Fill(PullRequest& out);
  void Fill(CommitPart& out);
  void Fill(CommitRequest& out);
  template <typename Message>
  void Fill(StreamFrame<Message>& out);

  // Replies that fit the request.
  PullReply ReplyTo(const PullRequest& asked);
  CommitReply ReplyTo(const CommitRequest& asked);

  // ---- parts ----
  uint64_t Below(uint64_t bound) { return random_.Below(bound); }
  bool Chance() { return random_.Chance(0.5); }
  // any number, often an edge case
  uint64_t Number();
  // not negative
  int64_t Count() { return static_cast<int64_t>(Number() >> 1); }
  int Index() { return static_cast<int>(Number() & 0xffff); }
  // finite
  double Real();
  // [0, 1)
  float Fraction() { return static_cast<float>(random_.Below(1 << 20)) / (1 << 20); }
  // The name of a variable.
  std::string Name();
  // UTF-8 without control characters, at least one byte
  std::string Text(size_t max_bytes);
  // 0 to a few elements
  Shape MakeShape(int max_rank);
  template <typename Id>
  Id MakeId() {
    return Id(static_cast<typename Id::value_type>(Number()));
  }
  template <typename Id>
  std::vector<Id> RisingIds();

 private:
  Tensor MakeTensor(DType dtype, const Shape& shape);
  Nest MakeNest(int depth);
  // with `constant`: one that every dtype can hold
  Initializer MakeInitializer(bool constant);
  void MakeTable(VariableSpec& out);

  // Makes the fields of a message fit each other: they then pass the checks that its description
  // gives to AfterReading.
  template <typename T>
  void Mend(T&) {}
  void Mend(ProtocolRange& range);
  void Mend(Horizon& horizon);
  void Mend(InputLease& lease);
  void Mend(SnapshotRequest& request);
  void Mend(SyncReply::Load& load);
  void Mend(SyncRequest& request);
  void Mend(WorkerAttachRequest& request);
  void Mend(GradientHistogram& gradient);
  void Mend(Report& report);

  template <typename T>
  void FillAll(std::vector<T>& out) {
    out.resize(Below(4));
    for (T& value : out) Fill(value);
  }

  Random random_;
};

// Visits a description and gives each field a value that its rules allow.
class Filler {
 public:
  static constexpr bool kReads = true;
  explicit Filler(Generator& any) : any_(any) {}

  template <typename F, typename T, typename... Rules>
  void operator()(const F& field, T& value, const Rules&... rules) {
    if constexpr (kIsOptional<T>) {
      if (any_.Chance()) (*this)(field, value.emplace(), rules...);
    } else if constexpr (std::is_same_v<T, absl::Duration>) {
      value = absl::Nanoseconds(any_.Count());
    } else if constexpr (std::is_enum_v<T> && sizeof...(Rules) > 0) {
      value = OneOfTable(rules...);
    } else if constexpr (kIsScalar<T>) {
      value = Scalar<T>(rules...);
    } else if constexpr (kIsRepeated<T>) {
      FillAll(value, rules...);
    } else {
      any_.Fill(value);
    }
  }
  template <typename F, typename T, typename To, typename From, typename... Rules>
  void Via(const F& field, T& value, const To& to, const From& from, const Rules&... rules) {
    std::decay_t<decltype(to(value))> sent{};
    (*this)(field, sent, rules...);
    (void)from(std::move(sent), value);
  }
  template <typename F, typename T, typename KeyRule, typename ValueRule, typename... Rules>
  void Map(const F&, T& map, const KeyRule& key_rule, const ValueRule& value_rule,
           const Rules&...) {
    for (uint64_t i = any_.Below(4); i > 0; --i) {
      auto key = Scalar<typename T::key_type>(key_rule);
      map[std::move(key)] = Scalar<typename T::mapped_type>(value_rule);
    }
  }
  template <typename... Ts, typename... Fs>
  void OneOf(std::optional<std::variant<Ts...>>& value, const Fs&... fields) {
    OneOf(value.emplace(), fields...);
  }
  template <typename... Ts, typename... Fs>
  void OneOf(std::variant<Ts...>& value, const Fs&...) {
    static_assert(!(std::is_same_v<Fs, NeverSent> || ...), "fill it by hand");
    uint64_t left = any_.Below(sizeof...(Ts));
    ((left-- == 0 ? any_.Fill(value.template emplace<Ts>()) : void()), ...);
  }
  template <typename Action>
  void AfterReading(const Action&) {}

 private:
  template <typename E, typename Proto, size_t kSize>
  E OneOfTable(const EnumTable<E, Proto, kSize>& table) {
    return table.rows[any_.Below(kSize)].domain;
  }

  template <typename T>
  T Scalar() {
    return Scalar<T>(Anything());
  }
  template <typename T>
  T Scalar(Anything) {
    if constexpr (std::is_same_v<T, bool>) {
      return any_.Chance();
    } else if constexpr (std::is_same_v<T, std::string>) {
      return any_.Chance() ? any_.Text(100) : std::string("\0\xfe", 2);
    } else if constexpr (std::is_floating_point_v<T>) {
      return static_cast<T>(any_.Real());
    } else {
      return FromPlain<T>(any_.Number());
    }
  }
  template <typename T>
  T Scalar(NotNegative) {
    return static_cast<T>(any_.Number() & static_cast<uint64_t>(std::numeric_limits<T>::max()));
  }
  template <typename T>
  T Scalar(NotZero) {
    const T value = Scalar<T>();
    return value == T() ? T(1) : value;
  }
  template <typename T>
  T Scalar(Index) {
    return static_cast<T>(any_.Index());
  }
  template <typename T>
  T Scalar(Range range) {
    const uint64_t values = static_cast<uint64_t>(range.high - range.low) + 1;
    return static_cast<T>(range.low + static_cast<int64_t>(any_.Number() % values));
  }
  template <typename T>
  T Scalar(Finite) {
    return any_.Real();
  }
  template <typename T>
  T Scalar(Name) {
    return any_.Text(kMaxNameBytes);
  }
  template <typename T>
  T Scalar(NameOrEmpty) {
    return any_.Chance() ? any_.Text(kMaxNameBytes) : "";
  }
  template <typename T>
  T Scalar(Text text) {
    return any_.Chance() ? any_.Text(text.max_bytes) : "";
  }

  template <typename All>
  void FillAll(All& all) {
    FillAll(all, ForEach{Anything()});
  }
  template <typename All, typename... Rules>
  void FillAll(All& all, Counted, const Rules&... rules) {
    FillAll(all, rules...);
  }
  template <typename All>
  void FillAll(All& all, Rising) {
    all = any_.RisingIds<typename All::value_type>();
  }
  template <typename All, typename Rule>
  void FillAll(All& all, ForEach<Rule> each) {
    using T = typename All::value_type;
    for (uint64_t i = any_.Below(4); i > 0; --i) {
      if constexpr (kIsScalar<T>) {
        all.insert(all.end(), Scalar<T>(each.rule));
      } else {
        any_.Fill(all.emplace_back());
      }
    }
  }

  Generator& any_;
};

template <typename T>
void Generator::Fill(T& out) {
  // An empty message (Ping) needs no description.
  if constexpr (!std::is_empty_v<T>) {
    Filler filler(*this);
    Fields(filler, out);
    Mend(out);
  }
}

template <typename Message>
void Generator::Fill(StreamFrame<Message>& out) {
  out = {MakeId<SessionId>(), random_.Chance(0.1), Number(), 0, std::nullopt};
  if (out.resume || random_.Chance(0.1)) return;
  out.number = 1 + Number() / 2;
  Filler filler(*this);
  MessageOf(filler, out.message);
}

template <typename Id>
std::vector<Id> Generator::RisingIds() {
  std::set<Id> ids;
  for (uint64_t i = Below(5); i > 0; --i) ids.insert(MakeId<Id>());
  return {ids.begin(), ids.end()};
}

}  // namespace divvy::wire::testing

#endif  // DIVVY_WIRE_TESTING_GENERATOR_H_
