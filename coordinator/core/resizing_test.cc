#include "coordinator/core/resizing.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

class ResizingTest : public testing::Test {
 protected:
  ResizingTest() : resizing_(absl::Seconds(60), outbox_) {}

  void Begin(int servers, int goal) {
    resizing_.Begin(servers, goal, absl::Hours(1),
                    [this](const absl::Status& status) { answers_.push_back(status); });
  }
  void Defer() {
    resizing_.Defer([this] { ++made_again_; });
  }
  // The answer to the resize, of which there must be exactly one.
  absl::Status Answer() {
    outbox_.Drain();
    EXPECT_EQ(answers_.size(), 1u);
    return answers_.empty() ? absl::UnknownError("no answer") : answers_.back();
  }

  Outbox outbox_;
  Resizing resizing_;
  std::vector<absl::Status> answers_;
  int made_again_ = 0;
};

TEST_F(ResizingTest, WaitsForThoseThatAreToJoin) {
  EXPECT_FALSE(resizing_.is_under_way());
  Begin(2, 4);
  EXPECT_EQ(resizing_.goal(), 4);
  EXPECT_FALSE(resizing_.IsJoining(1));
  EXPECT_TRUE(resizing_.IsJoining(2));
  EXPECT_FALSE(resizing_.Admit(1, "one:1"));
  EXPECT_TRUE(resizing_.Admit(3, "three:1"));
  EXPECT_FALSE(resizing_.HaveAllJoined());
  EXPECT_TRUE(resizing_.Admit(2, "two:1"));
  EXPECT_TRUE(resizing_.HaveAllJoined());
  EXPECT_EQ(resizing_.joining().at(2), "two:1");
}

TEST_F(ResizingTest, WithFewerServersNobodyHasToJoin) {
  Begin(4, 2);
  EXPECT_TRUE(resizing_.HaveAllJoined());
  EXPECT_TRUE(resizing_.CheckTime(absl::Hours(9)).ok());
}

TEST_F(ResizingTest, AServerThatDoesNotComeIsNamed) {
  Begin(2, 4);
  EXPECT_TRUE(resizing_.Admit(2, "two:1"));
  EXPECT_TRUE(resizing_.CheckTime(absl::Hours(1) + absl::Seconds(60)).ok());
  const absl::Status late = resizing_.CheckTime(absl::Hours(1) + absl::Seconds(61));
  EXPECT_TRUE(absl::IsUnavailable(late));
  EXPECT_TRUE(absl::StrContains(late.message(),
                                "ps 3 has not registered for 1m1s (--ps_timeout): start it, with "
                                "--task_type=ps --task_index=3"))
      << late;
}

TEST_F(ResizingTest, WhenItIsCancelledTheCallerIsAnsweredAndWhatWaitsIsMadeAgain) {
  Begin(2, 3);
  Defer();
  Defer();
  resizing_.Cancel(absl::CancelledError("the job ends"));
  EXPECT_EQ(made_again_, 0) << "calls are made again only when the outbox is drained";
  EXPECT_EQ(Answer().message(), "the job ends");
  EXPECT_EQ(made_again_, 2);
  EXPECT_FALSE(resizing_.is_under_way());
  EXPECT_FALSE(resizing_.IsJoining(2));
}

TEST_F(ResizingTest, CancelDoesNothingWhereNoChangeIsUnderWay) {
  resizing_.Cancel(absl::CancelledError("the job ends"));
  outbox_.Drain();
  EXPECT_TRUE(answers_.empty());
}

TEST_F(ResizingTest, ARefusalKeepsTheCodeAndSaysWhichServersToStartAgain) {
  Begin(2, 3);
  resizing_.Refuse(2, absl::InvalidArgumentError("too few rows"));
  EXPECT_TRUE(absl::IsInvalidArgument(Answer()));
  EXPECT_EQ(Answer().message(),
            "the number of parameter servers stays 2: too few rows. Fix this, start ps 2 again "
            "(it exits, because the job does not wait for it any more), and repeat the resize");
}

TEST_F(ResizingTest, ARefusalNamesAllThatWereToJoinAndNoneWhereServersLeave) {
  Begin(2, 5);
  resizing_.Refuse(2, absl::InvalidArgumentError("too few rows"));
  EXPECT_TRUE(
      absl::StrContains(Answer().message(),
                        "start ps 2 to 4 again (they exit, because the job does not wait for "
                        "them any more)"));
  answers_.clear();
  Begin(3, 1);
  resizing_.Refuse(3, absl::InvalidArgumentError("too many rows"));
  EXPECT_EQ(
      Answer().message(),
      "the number of parameter servers stays 3: too many rows. Fix this, and repeat the resize");
}

TEST_F(ResizingTest, AFailedJobTakesTheAnswerAndTheDeferredCalls) {
  Begin(2, 3);
  Defer();
  std::vector<Task> calls;
  resizing_.FailAll(absl::InternalError("lost"), calls);
  ASSERT_EQ(calls.size(), 2u);
  for (const Task& call : calls) call();
  EXPECT_EQ(Answer().message(), "lost");
  EXPECT_EQ(made_again_, 1);
}

TEST_F(ResizingTest, ACompleteChangeGivesTheCallerWhatWaitsAndAnotherMayBegin) {
  Begin(2, 3);
  EXPECT_TRUE(resizing_.Admit(2, "two:1"));
  Defer();
  const Resizing::Waiting waiting = resizing_.Complete();
  outbox_.Drain();
  EXPECT_TRUE(answers_.empty()) << "the caller of Complete answers";
  waiting.done(absl::OkStatus());
  EXPECT_TRUE(Answer().ok());
  EXPECT_EQ(waiting.deferred.size(), 1u);
  Begin(3, 4);
  EXPECT_TRUE(resizing_.IsJoining(3));
  EXPECT_FALSE(resizing_.IsJoining(2));
}

}  // namespace
}  // namespace divvy
