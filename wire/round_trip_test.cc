// Every kind of message: what is sent is what arrives, and whatever arrives is refused or makes
// sense.
#include <cstdint>
#include <string>

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
