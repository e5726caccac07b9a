#include "rpc/frame_queue.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/divvy.pb.h"
#include "protocol/error.h"
#include "protocol/messages.h"

namespace divvy {
namespace {

using Frame = v1::FromWorkerFrame;

StreamFrame<FromWorker> Numbered(uint64_t number) {
  StreamFrame<FromWorker> frame;
  frame.session = SessionId(7);
  frame.number = number;
  frame.message = Draining{};
  return frame;
}
Frame Encoded(uint64_t number) { return wire::ToProto(Numbered(number)); }
v1::ToWorkerFrame ResumeOfOther(bool reads_more) {
  v1::ToWorkerFrame frame;
  frame.set_resume(true);
  frame.set_reads_more(reads_more);
  return frame;
}

std::vector<uint64_t> NumbersIn(const Frame& message) {
  std::vector<uint64_t> numbers{message.number()};
  for (const Frame& frame : message.more()) numbers.push_back(frame.number());
  return numbers;
}

TEST(FrameQueueTest, FramesThatComeWhileOneIsWrittenTravelTogether) {
  FrameQueue<Frame> queue;
  queue.OnRead(ResumeOfOther(true));
  ASSERT_NE(queue.Add(Encoded(1)), nullptr) << "nothing is being written";
  EXPECT_EQ(queue.Add(Encoded(2)), nullptr);
  EXPECT_EQ(queue.Add(Encoded(3)), nullptr);
  const Frame* const message = queue.Next();
  ASSERT_NE(message, nullptr);
  EXPECT_EQ(NumbersIn(*message), (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(queue.Next(), nullptr);
  EXPECT_NE(queue.Add(Encoded(4)), nullptr);
}

TEST(FrameQueueTest, APeerThatDoesNotReadSeveralGetsThemOneByOne) {
  FrameQueue<Frame> queue;
  queue.OnRead(ResumeOfOther(false));
  for (uint64_t number = 1; number <= 3; ++number) queue.Add(Encoded(number));
  EXPECT_EQ(NumbersIn(*queue.Next()), std::vector<uint64_t>{2});
  EXPECT_EQ(NumbersIn(*queue.Next()), std::vector<uint64_t>{3});
  EXPECT_EQ(queue.Next(), nullptr);
}

TEST(FrameQueueTest, AMessageHasALimitOfFramesAndOfBytes) {
  FrameQueue<Frame> queue;
  queue.OnRead(ResumeOfOther(true));
  for (uint64_t number = 0; number <= 100; ++number) queue.Add(Encoded(number));
  EXPECT_EQ(NumbersIn(*queue.Next()).size(), static_cast<size_t>(FrameQueue<Frame>::kMostFrames));
  EXPECT_EQ(NumbersIn(*queue.Next()).size(), 100u - FrameQueue<Frame>::kMostFrames);
  Frame large = Encoded(1);
  large.mutable_report()->mutable_error()->set_message(std::string(40 << 10, 'x'));
  queue.Next();
  queue.Add(large);
  for (int i = 0; i < 3; ++i) queue.Add(large);
  EXPECT_EQ(NumbersIn(*queue.Next()).size(), 1u) << "two of them have more than 64 KiB";
}

TEST(FrameQueueTest, AResumeSaysThatThisSideReadsSeveral) {
  FrameQueue<Frame> queue;
  Frame resume;
  resume.set_resume(true);
  EXPECT_TRUE(queue.Add(resume)->reads_more());
  queue.Next();
  EXPECT_FALSE(queue.Add(Encoded(1))->reads_more());
}

TEST(FrameQueueTest, ClearDropsWhatWaits) {
  FrameQueue<Frame> queue;
  queue.Add(Encoded(1));
  queue.Add(Encoded(2));
  queue.Clear();
  EXPECT_EQ(queue.Next(), nullptr);
}

TEST(FramesOfTest, AreInTheOrderOfSending) {
  Frame message = Encoded(1);
  *message.add_more() = Encoded(2);
  *message.add_more() = Encoded(3);
  const auto frames = FramesOf<FromWorker>(message);
  ASSERT_TRUE(frames.ok()) << frames.status();
  ASSERT_EQ(frames->size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ((*frames)[i].number, i + 1);
}

TEST(FramesOfTest, OneInvalidFrameRefusesAll) {
  Frame message = Encoded(1);
  *message.add_more() = Encoded(0);  // a message without a number
  EXPECT_EQ(ReasonOf(FramesOf<FromWorker>(message).status()), Reason::kInvalid);
}

TEST(FramesOfTest, FramesWithinFramesWithinAMessageAreRefused) {
  Frame inner = Encoded(2);
  *inner.add_more() = Encoded(3);
  Frame message = Encoded(1);
  *message.add_more() = inner;
  const absl::Status refused = FramesOf<FromWorker>(message).status();
  EXPECT_EQ(ReasonOf(refused), Reason::kInvalid);
  EXPECT_EQ(refused.message(), "more: a frame of this field has frames of its own");
}

TEST(FramesOfTest, AResumeMayNotComeBehindOtherFrames) {
  Frame resume;
  resume.set_session(7);
  resume.set_resume(true);
  Frame message = Encoded(1);
  *message.add_more() = resume;
  const absl::Status refused = FramesOf<FromWorker>(message).status();
  EXPECT_EQ(ReasonOf(refused), Reason::kInvalid);
  EXPECT_EQ(refused.message(), "more: a frame of this field is a resume");
}

TEST(FramesOfTest, MoreFramesThanAPeerSendsAreRefused) {
  Frame message = Encoded(1);
  for (int i = 2; i <= FrameQueue<Frame>::kMostFrames; ++i) *message.add_more() = Encoded(i);
  EXPECT_TRUE(FramesOf<FromWorker>(message).ok());
  *message.add_more() = Encoded(100);
  EXPECT_EQ(ReasonOf(FramesOf<FromWorker>(message).status()), Reason::kInvalid);
}

}  // namespace
}  // namespace divvy
