#include "ps_server/service/served_calls.h"

#include "gtest/gtest.h"
#include "protocol/error.h"

namespace divvy {
namespace {

DataOutcome Commit(uint64_t entry, absl::Duration took) {
  DataOutcome outcome;
  outcome.method = DataMethod::kCommit;
  outcome.entry = EntryId(entry);
  outcome.session = SessionId(3);
  outcome.bytes = 400;
  outcome.rows = 100;
  outcome.took = took;
  return outcome;
}

TEST(ServedCallsTest, ACallIsToldWithItsEntryAndTheWallTime) {
  ServedCalls calls;
  calls.Note(Commit(5, absl::Milliseconds(7)), absl::Seconds(10));
  const absl::Time wall = absl::FromUnixSeconds(1000);
  const v1::GetTracesReply reply = calls.ToProto(JobId(9), absl::Seconds(12), wall);
  EXPECT_EQ(reply.job_id(), 9u);
  ASSERT_EQ(reply.last_calls_size(), 1);
  const v1::ServedCall& call = reply.last_calls(0);
  EXPECT_TRUE(call.commit());
  EXPECT_EQ(call.step(), 5u);
  EXPECT_EQ(call.session(), 3u);
  EXPECT_EQ(call.took_ns(), 7'000'000);
  EXPECT_EQ(call.ended_ns(), int64_t{998} * 1'000'000'000);
  EXPECT_EQ(call.bytes(), 400);
  EXPECT_EQ(call.rows(), 100);
  EXPECT_TRUE(call.refusal().empty());
  ASSERT_EQ(reply.slowest_calls_size(), 1);
  EXPECT_EQ(reply.slowest_calls(0).step(), 5u);
}

// A peer chooses what a refusal quotes.
TEST(ServedCallsTest, ARefusalIsTextThatAnyPageMayShow) {
  ServedCalls calls;
  DataOutcome refused = Commit(6, absl::Milliseconds(1));
  refused.status = MakeError(Reason::kInvalid, "odd \x1b[31m \xff name");
  calls.Note(refused, absl::Seconds(1));
  EXPECT_EQ(calls.ToProto(JobId(1), absl::Seconds(1), absl::UnixEpoch()).last_calls(0).refusal(),
            "odd \\x1b[31m \\xff name");
}

TEST(ServedCallsTest, ARequestThatNeverArrivedWholeIsNotKept) {
  ServedCalls calls;
  calls.Note(Commit(5, absl::ZeroDuration()), absl::Seconds(1));
  EXPECT_EQ(calls.ToProto(JobId(1), absl::Seconds(1), absl::UnixEpoch()).last_calls_size(), 0);
}

TEST(ServedCallsTest, MemoryIsBounded) {
  ServedCalls calls;
  for (int i = 1; i <= 1000; ++i)
    calls.Note(Commit(static_cast<uint64_t>(i), absl::Milliseconds(i)), absl::Milliseconds(i));
  const v1::GetTracesReply reply = calls.ToProto(JobId(1), absl::Seconds(1), absl::UnixEpoch());
  EXPECT_EQ(reply.last_calls_size(), 64);
  EXPECT_EQ(reply.slowest_calls_size(), 32);
  EXPECT_EQ(reply.slowest_calls(0).step(), 1000u);
}

}  // namespace
}  // namespace divvy
