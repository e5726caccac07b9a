// For every kind of message: decoding an encoded value gives an equal value, and any other message
// is refused or gives a valid value.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/random.h"
#include "gtest/gtest.h"
#include "wire/testing/conversion.h"

namespace divvy::wire::testing {
namespace {

constexpr uint64_t kMessages = 2000, kMutated = 1000, kMutations = 4;

template <typename T>
void ExpectRoundTrips() {
  for (uint64_t seed = 1; seed <= kMessages; ++seed) {
    const T sent = Generator(seed).Make<T>();
    typename Kind<T>::Wire message;
    ASSERT_TRUE(message.ParseFromString(Bytes(Kind<T>::Encode(sent)))) << "seed " << seed;
    const absl::StatusOr<T> arrived = Kind<T>::Decode(message);
    ASSERT_TRUE(arrived.ok()) << "seed " << seed << ": " << arrived.status() << "\n"
                              << message.DebugString();
    ASSERT_TRUE(Same::Of(sent, *arrived))
        << "seed " << seed << ": another value arrived than was sent\n"
        << message.DebugString();
  }
}

template <>
void ExpectRoundTrips<AnyStatus>() {
  for (uint64_t seed = 1; seed <= kMessages; ++seed) {
    const auto sent = Generator(seed).Make<absl::Status>();
    const absl::Status arrived = FromProto(ToProto(sent));
    ASSERT_TRUE(Same::Of(sent, arrived))
        << "seed " << seed << ": sent " << sent << ", arrived " << arrived;
  }
}

template <typename T>
void ExpectMutationsAreHarmless() {
  for (uint64_t seed = 1; seed <= kMutated; ++seed) {
    const std::string bytes = RandomBytes<T>(seed);
    Random random(seed);
    for (uint64_t i = 0; i < kMutations; ++i) {
      const std::string mutated = Mutated(bytes, random);
      ASSERT_EQ(Fault<T>(mutated), "")
          << "seed " << seed << ", mutation " << i << ": " << absl::CHexEscape(mutated);
    }
  }
}

template <typename... Ts>
void RoundTripAll(Kinds<Ts...>) {
  (ExpectRoundTrips<Ts>(), ...);
}
template <typename... Ts>
void MutateAll(Kinds<Ts...>) {
  (ExpectMutationsAreHarmless<Ts>(), ...);
}

// Checks for each member, in T and in all its parts, that some generated value differs from the
// default. The generator fills the members that wire/fields.h describes, and Same compares all
// members. So this test finds a member that a description lacks. RoundTripAll finds a member that
// is lost on the way.
class EveryMember {
 public:
  template <typename T>
  static void IsFilledIn(const T*) {
    if constexpr (kIsPlain<T> && !std::is_empty_v<T>) {
      using Members = decltype(MembersOf(std::declval<const T&>()));
      IsFilledIn<T, Members>(std::make_index_sequence<std::tuple_size_v<Members>>());
    }
  }
  template <typename T>
  static void IsFilledIn(const std::vector<T>*) {
    IsFilledIn(static_cast<const T*>(nullptr));
  }
  template <typename T>
  static void IsFilledIn(const std::optional<T>*) {
    IsFilledIn(static_cast<const T*>(nullptr));
  }
  template <typename A, typename B>
  static void IsFilledIn(const std::pair<A, B>*) {
    IsFilledIn(static_cast<const A*>(nullptr));
    IsFilledIn(static_cast<const B*>(nullptr));
  }
  template <typename... Ts>
  static void IsFilledIn(const std::variant<Ts...>*) {
    (IsFilledIn(static_cast<const Ts*>(nullptr)), ...);
  }
  // These are generated as a whole: not all of their members are sent.
  static void IsFilledIn(const Initializer*) {}
  static void IsFilledIn(const VariableLayout*) {}
  static void IsFilledIn(const PullPart*) {}
  // Its members are fields of the message that has it.
  static void IsFilledIn(const ValueHistogram*) {}
  // Any status is accepted.
  static void IsFilledIn(const AnyStatus*) {}

 private:
  // Memory of one end of a connection; not sent.
  template <typename T>
  static constexpr bool kIsLocal =
      std::is_same_v<std::decay_t<T>, std::shared_ptr<PullTarget>> ||
      std::is_same_v<std::decay_t<T>, std::shared_ptr<const ScatteredTensor>>;
  template <typename T, typename Members, size_t... I>
  static void IsFilledIn(std::index_sequence<I...>) {
    const T none{};
    bool filled[] = {kIsLocal<std::tuple_element_t<I, Members>>...};
    for (uint64_t seed = 1; seed <= 200; ++seed) {
      const T value = Generator(seed).Make<T>();
      ((filled[I] |= !Same::Of(std::get<I>(MembersOf(value)), std::get<I>(MembersOf(none)))), ...);
    }
    for (size_t i = 0; i < sizeof...(I); ++i) {
      EXPECT_TRUE(filled[i]) << "nothing fills member " << i << " (from 0) of " << typeid(T).name()
                             << ": is it described in wire/fields.h?";
    }
    (IsFilledIn(static_cast<const std::decay_t<std::tuple_element_t<I, Members>>*>(nullptr)), ...);
  }
};
template <typename... Ts>
void ExpectEveryMemberIsFilled(Kinds<Ts...>) {
  (EveryMember::IsFilledIn(static_cast<const Ts*>(nullptr)), ...);
}

TEST(DescriptionTest, NoMemberOfAMessageIsForgotten) {
  ExpectEveryMemberIsFilled(RequestKinds());
  ExpectEveryMemberIsFilled(ReplyKinds());
  ExpectEveryMemberIsFilled(StepsKinds());
  ExpectEveryMemberIsFilled(ValueKinds());
  ExpectEveryMemberIsFilled(Kinds<PullRequest, CommitRequest>());
}

TEST(RoundTripTest, ARequestArrivesAsItWasSent) { RoundTripAll(RequestKinds()); }
TEST(RoundTripTest, AReplyArrivesAsItWasSent) { RoundTripAll(ReplyKinds()); }
TEST(RoundTripTest, AFrameOfTheStepsStreamArrivesAsItWasSent) { RoundTripAll(StepsKinds()); }
TEST(RoundTripTest, AValueArrivesAsItWasSent) { RoundTripAll(ValueKinds()); }

TEST(MutationTest, ADamagedRequestIsRefusedOrMakesSense) { MutateAll(RequestKinds()); }
TEST(MutationTest, ADamagedReplyIsRefusedOrMakesSense) { MutateAll(ReplyKinds()); }
TEST(MutationTest, ADamagedFrameIsRefusedOrMakesSense) { MutateAll(StepsKinds()); }
TEST(MutationTest, ADamagedValueIsRefusedOrMakesSense) { MutateAll(ValueKinds()); }

}  // namespace
}  // namespace divvy::wire::testing
