// Numbered meetings. Most tests need no second thread, because a replica with a timeout of zero
// gives up its meeting at once.
#include "strategy/rendezvous.h"

#include <future>

#include "base/executor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy::internal {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kAtOnce = absl::ZeroDuration();

// Meets with a number; the result is the sum of all replicas' numbers.
absl::Status Sum(Rendezvous& rendezvous, int replica, int& number,
                 absl::Duration timeout = absl::InfiniteDuration()) {
  const auto complete = [](absl::Span<void* const> payloads) {
    int sum = 0;
    for (void* const payload : payloads) sum += *static_cast<int*>(payload);
    for (void* const payload : payloads) *static_cast<int*>(payload) = sum;
    return absl::OkStatus();
  };
  return rendezvous.Meet(replica,
                         {"Sum", &typeid(int), &number, complete, absl::OkStatus(), timeout});
}

TEST(RendezvousTest, AMeetingThatWasGivenUpIsOverForWhoComesLate) {
  Rendezvous rendezvous(2);
  int mine = 1, others = 2;
  const absl::Status given_up = Sum(rendezvous, 0, mine, kAtOnce);
  EXPECT_EQ(given_up.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Sum(rendezvous, 1, others), given_up);
  EXPECT_EQ(mine, 1);
  EXPECT_EQ(others, 2);
}

TEST(RendezvousTest, WhoComesLateWithAnErrorOfItsOwnHasThat) {
  Rendezvous rendezvous(2);
  int number = 1;
  EXPECT_FALSE(Sum(rendezvous, 0, number, kAtOnce).ok());
  EXPECT_EQ(rendezvous.Meet(
                1, {"Sum", &typeid(int), &number, nullptr, absl::AbortedError("mine"), kAtOnce}),
            absl::AbortedError("mine"));
}

TEST(RendezvousTest, TheErrorNamesTheCallByNumberWhoWaitedAndWhoWasMissing) {
  Rendezvous rendezvous(3);
  int number = 0;
  EXPECT_FALSE(Sum(rendezvous, 1, number, kAtOnce).ok());
  const absl::Status second = Sum(rendezvous, 1, number, kAtOnce);
  EXPECT_THAT(second.message(), HasSubstr("replica 1 has waited 0 in Sum (collective call 2 of "
                                          "this Run) for replica 0, 2, so the call fails on "
                                          "all replicas"));
}

// Replica 0 gives up two meetings and replica 1 three, in turns. Their fourth calls meet.
TEST(RendezvousTest, ThoseThatCameToDifferentNumbersOfMeetingsInTimeMeetInTheNextOfBoth) {
  Rendezvous rendezvous(2);
  int first = 10, second = 20;
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(Sum(rendezvous, 0, first, kAtOnce).ok());
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(Sum(rendezvous, 1, second, kAtOnce).ok());
  EXPECT_FALSE(Sum(rendezvous, 0, first).ok());  // replica 1 has given it up
  ThreadPoolExecutor executor(1);
  std::promise<absl::Status> met;
  executor.Post([&] { met.set_value(Sum(rendezvous, 1, second)); });
  EXPECT_EQ(Sum(rendezvous, 0, first), absl::OkStatus());
  EXPECT_EQ(met.get_future().get(), absl::OkStatus());
  EXPECT_EQ(first, 30);
  EXPECT_EQ(second, 30);
}

// This replica has no timeout and would wait forever. The other replica's timeout usually lets this
// replica arrive first; the outcome is the same if it does not.
TEST(RendezvousTest, WhoWaitsInAMeetingThatAnotherGivesUpIsToldWithIt) {
  Rendezvous rendezvous(3);
  int first = 1, second = 2;
  ThreadPoolExecutor executor(1);
  std::promise<absl::Status> waiting;
  executor.Post([&] { waiting.set_value(Sum(rendezvous, 0, first)); });
  const absl::Status given_up = Sum(rendezvous, 1, second, absl::Milliseconds(50));
  EXPECT_EQ(given_up.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(waiting.get_future().get(), given_up);
}

TEST(RendezvousTest, AMeetingThatWasGivenUpIsToldEvenWhenWhoGaveItUpHasLeft) {
  Rendezvous rendezvous(2);
  int number = 0;
  const absl::Status given_up = Sum(rendezvous, 0, number, kAtOnce);
  rendezvous.Leave(0, given_up);
  EXPECT_EQ(Sum(rendezvous, 1, number), given_up);
  EXPECT_EQ(Sum(rendezvous, 1, number), given_up);  // the error of the replica that failed
  rendezvous.Leave(1, absl::OkStatus());
  EXPECT_EQ(rendezvous.WaitForAll(), given_up);
}

}  // namespace
}  // namespace divvy::internal
