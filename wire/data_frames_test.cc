#include "wire/data_frames.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "wire/testing/conversion.h"
#include "wire/testing/frames.h"
#include "wire/testing/generator.h"
#include "wire/testing/same.h"

namespace divvy::wire {
namespace {

using testing::Arrived;
using testing::Generator;
using ::testing::HasSubstr;
using testing::MessagesOf;
using testing::Opened;
using testing::Same;

CommitRequest OnePart(Tensor values) {
  CommitRequest request;
  request.parts.resize(1);
  request.parts[0].values = std::move(values);
  return request;
}

template <typename T>
void ExpectRefused(const absl::StatusOr<T>& value, absl::string_view words) {
  ASSERT_FALSE(value.ok());
  EXPECT_EQ(ReasonOf(value.status()), Reason::kInvalid);
  EXPECT_THAT(std::string(value.status().message()), HasSubstr(std::string(words)));
}

// ---- round trips --------------------------------------------------------------------------------

template <typename Request>
void ExpectRoundTrips() {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    Generator generator(seed);
    const auto sent = generator.Make<Request>();
    const std::vector<std::string> messages =
        MessagesOf(ToTransfer(seed, sent), 1 + static_cast<int64_t>(generator.Below(64)));
    const PayloadFiller::KeptSizes kept{static_cast<int64_t>(generator.Below(64)),
                                        static_cast<size_t>(generator.Below(64))};
    for (PayloadFiller filler : {PayloadFiller(), PayloadFiller(kept)}) {
      const auto arrived = Arrived<Request>(messages, std::move(filler));
      ASSERT_TRUE(arrived.ok()) << "seed " << seed << ": " << arrived.status();
      ASSERT_TRUE(Same::Of(sent, *arrived)) << "seed " << seed;
      // What has arrived in pieces can be sent on.
      const auto again = Arrived<Request>(MessagesOf(ToTransfer(seed, *arrived), kMessageBytes));
      ASSERT_TRUE(again.ok() && Same::Of(sent, *again)) << "seed " << seed;
    }
  }
}

TEST(DataFramesTest, APullArrivesAsItWasSentHoweverItIsCut) { ExpectRoundTrips<PullRequest>(); }
TEST(DataFramesTest, ACommitArrivesAsItWasSentHoweverItIsCut) { ExpectRoundTrips<CommitRequest>(); }

TEST(DataFramesTest, RepliesArriveAsTheyWereSent) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    Generator generator(seed);
    const auto asked = generator.Make<PullRequest>();
    const PullReply sent = generator.ReplyTo(asked);
    const std::vector<std::string> messages =
        MessagesOf(ToTransfer(seed, absl::StatusOr<PullReply>(sent)), kMessageBytes);
    ASSERT_EQ(messages.size(), 1u);
    absl::string_view payload;
    PayloadFiller filler(PayloadFiller::KeptSizes{static_cast<int64_t>(generator.Below(64)),
                                                  static_cast<size_t>(generator.Below(64))});
    const auto arrived = FromHeader(Opened(messages[0], payload)->pull_reply(), asked, filler);
    ASSERT_TRUE(arrived.ok()) << "seed " << seed << ": " << arrived.status();
    for (size_t i = 0; i < asked.parts.size(); ++i)
      ASSERT_TRUE(arrived->parts[i].lent == nullptr || asked.parts[i].may_lend) << "seed " << seed;
    ASSERT_TRUE(filler.Take(payload, std::make_shared<int>()).ok() && filler.left() == 0)
        << "seed " << seed;
    ASSERT_TRUE(Same::Of(sent, *arrived)) << "seed " << seed;

    const auto committed = generator.Make<CommitRequest>();
    const CommitReply reply = generator.ReplyTo(committed);
    const v1::FrameHeader header = ToTransfer(seed, absl::StatusOr<CommitReply>(reply)).header;
    const auto answer = FromHeader(header.commit_reply(), committed, filler);
    ASSERT_TRUE(answer.ok() && Same::Of(reply, *answer)) << "seed " << seed;
  }
}

// Without this check a faulty server could make its client allocate any amount of memory.
TEST(DataFramesTest, AReplyThatAnnouncesMoreThanWasAskedForIsRefusedBeforeItsMemoryIsTaken) {
  PullRequest asked;
  asked.parts.resize(1);
  PullReply reply;
  reply.parts.push_back({*Tensor::Zeros(DType::kFloat32, Shape{4, 4}), 1, false});
  for (const int64_t bytes : {60, 64, 68}) {
    asked.parts[0].reply_bytes = bytes;
    PayloadFiller filler;
    const auto arrived = FromHeader(
        ToTransfer(1, absl::StatusOr<PullReply>(reply)).header.pull_reply(), asked, filler);
    EXPECT_EQ(arrived.ok(), bytes == 64) << arrived.status();
    EXPECT_EQ(filler.left(), bytes == 64 ? 64 : 0);
  }
}

TEST(DataFramesTest, ARefusalRidesInTheReply) {
  const absl::Status refusal = MakeError(Reason::kStepClosed, "closed");
  const OutgoingTransfer transfer = ToTransfer(3, absl::StatusOr<CommitReply>(refusal));
  EXPECT_EQ(ReasonOf(FromProto(transfer.header.commit_reply().status())), Reason::kStepClosed);
  EXPECT_TRUE(transfer.payload.empty());
}

template <typename Request>
void ExpectMutationsAreHarmless() {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    const std::string bytes =
        MessagesOf(ToTransfer(seed, Generator(seed).Make<Request>()), kMessageBytes)[0];
    Random random(seed);
    for (int i = 0; i < 4; ++i) {
      const std::string mutated = testing::Mutated(bytes, random);
      ASSERT_EQ(testing::FrameFault<Request>(mutated), "")
          << "seed " << seed << ", mutation " << i << ": " << absl::CHexEscape(mutated);
    }
  }
}

TEST(DataFramesTest, ADamagedPullIsRefusedOrMakesSense) {
  ExpectMutationsAreHarmless<PullRequest>();
}
TEST(DataFramesTest, ADamagedCommitIsRefusedOrMakesSense) {
  ExpectMutationsAreHarmless<CommitRequest>();
}

// ---- the layout on the wire ---------------------------------------------------------------------

TEST(DataFramesTest, AMessageIsALengthAHeaderAndThePayload) {
  PullRequest request;
  request.parts.resize(1);
  request.parts[0].rows = Tensor::Vector<int64_t>({258});
  const std::string message = MessagesOf(ToTransfer(1, request), kMessageBytes)[0];
  const size_t header = static_cast<uint8_t>(message[0]);
  EXPECT_EQ(message.substr(1, 3), std::string(3, '\0'));
  EXPECT_EQ(message.substr(4 + header), std::string("\2\1\0\0\0\0\0\0", 8));
}

TEST(DataFramesTest, ALargePayloadGoesOnInDataMessagesOfTheSameTransfer) {
  const std::vector<std::string> messages =
      MessagesOf(ToTransfer(77, OnePart(*Tensor::Zeros(DType::kFloat32, {10}))), 16);
  ASSERT_EQ(messages.size(), 3u);
  absl::string_view payload;
  EXPECT_TRUE(Opened(messages[0], payload)->has_commit());
  EXPECT_EQ(payload.size(), 16u);
  for (const size_t i : {1, 2}) {
    EXPECT_TRUE(Opened(messages[i], payload)->has_data());
    EXPECT_EQ(Opened(messages[i], payload)->request_id(), 77u);
  }
  EXPECT_EQ(payload.size(), 8u);
}

TEST(DataFramesTest, ATransferWithoutPayloadIsOneMessage) {
  EXPECT_EQ(MessagesOf(ToTransfer(1, PullRequest()), 1).size(), 1u);
}

std::vector<std::vector<size_t>> CutsOf(const std::vector<Tensor>& values, int64_t message_bytes) {
  CommitRequest request;
  for (const Tensor& value : values) {
    request.parts.emplace_back();
    request.parts.back().values = value;
  }
  std::vector<std::vector<size_t>> cuts;
  for (MessageCutter cutter(ToTransfer(1, request), message_bytes); !cutter.done();) {
    cuts.emplace_back();
    for (const MessageCutter::Piece& piece : cutter.Next().payload)
      cuts.back().push_back(piece.bytes.size());
  }
  return cuts;
}

TEST(MessageCutterTest, FillsEveryMessageButTheLastAndSendsTheHeaderWithTheFirst) {
  using Cuts = std::vector<std::vector<size_t>>;
  const Tensor ten = *Tensor::Zeros(DType::kInt8, {10}), none = *Tensor::Zeros(DType::kInt8, {0});
  EXPECT_EQ(CutsOf({}, 4), (Cuts{{}}));
  EXPECT_EQ(CutsOf({none, none}, 4), (Cuts{{}}));
  EXPECT_EQ(CutsOf({ten}, 10), (Cuts{{10}}));
  EXPECT_EQ(CutsOf({ten}, 4), (Cuts{{4}, {4}, {2}}));
  EXPECT_EQ(CutsOf({ten, none, ten}, 16), (Cuts{{10, 6}, {4}}));
  EXPECT_EQ(CutsOf({none, ten, ten, none}, 100), (Cuts{{10, 10}}));
}

TEST(MessageCutterTest, LetsGoOfATensorOnceItsMessagesAreGone) {
  bool let_go = false;
  const char memory[8] = {};
  Tensor lent = *Tensor::Borrow(DType::kInt8, {8}, memory, Device(), [&let_go] { let_go = true; });
  OutgoingTransfer transfer;
  transfer.payload = {std::move(lent), *Tensor::Zeros(DType::kInt8, {8})};
  MessageCutter cutter(std::move(transfer), 8);
  {
    const MessageCutter::Message first = cutter.Next();
    EXPECT_FALSE(let_go);
  }
  EXPECT_TRUE(let_go);
  EXPECT_FALSE(cutter.done());
}

// ---- refusals -----------------------------------------------------------------------------------

TEST(DataFramesTest, AHeaderThatIsTooShortOrTooLongIsRefused) {
  ExpectRefused(HeaderBytes("abc"), "four bytes");
  ExpectRefused(HeaderBytes("\xff\xff\xff\x7f"), "a header of 2147483647 bytes");
}

TEST(DataFramesTest, ACommitsSizesAreCheckedBeforeAnythingIsAllocated) {
  v1::CommitBegin header = ToTransfer(1, OnePart(Tensor::Scalar(1.0f))).header.commit();
  EXPECT_EQ(*PayloadBytes(header), 4);
  header.set_total_bytes(5);
  ExpectRefused(PayloadBytes(header), "total_bytes: is 5, and the parts make 4");
  header.mutable_parts(0)->add_shape(int64_t{1} << 62);
  ExpectRefused(PayloadBytes(header), "shape: means more than 2^63 bytes");
  header.mutable_parts(0)->set_shape(0, int64_t{1} << 60);
  for (int i = 0; i < 2; ++i) *header.add_parts() = header.parts(0);
  ExpectRefused(PayloadBytes(header), "larger than can be counted");
  header.mutable_parts(0)->set_rows(-1);
  ExpectRefused(PayloadBytes(header), "rows: is -1");
  for (int i = 0; i < 100'000; ++i) header.add_parts();
  ExpectRefused(PayloadBytes(header), "parts: has 100003 elements");

  v1::PullRequestHeader pull;
  pull.add_parts()->set_rows(2);
  EXPECT_EQ(*PayloadBytes(pull), 16);
  pull.mutable_parts(0)->set_rows(int64_t{1} << 60);
  ExpectRefused(PayloadBytes(pull), "larger than can be counted");
}

TEST(DataFramesTest, APartNeedsItsShardItsOpAndASessionItsFence) {
  const v1::CommitBegin valid = ToTransfer(1, OnePart(Tensor::Scalar(1.0f))).header.commit();
  PayloadFiller filler;
  v1::CommitBegin header = valid;
  header.clear_fence();
  ExpectRefused(FromHeader(header, filler), "fence: is missing");
  header = valid;
  header.mutable_parts(0)->clear_shard();
  ExpectRefused(FromHeader(header, filler), "parts[0].shard: is missing");
  header = valid;
  header.mutable_parts(0)->clear_op();
  ExpectRefused(FromHeader(header, filler), "parts[0].op: is not set");
  header = valid;
  header.clear_kind();
  ExpectRefused(FromHeader(header, filler), "kind: is not set");
  header = valid;
  header.set_participants(70000);
  ExpectRefused(FromHeader(header, filler), "participants: is 70000");
}

TEST(DataFramesTest, BytesThatWereNotAnnouncedAreRefused) {
  PayloadFiller filler;
  const absl::StatusOr<Tensor> kept = filler.Add(DType::kInt8, {2});
  EXPECT_TRUE(filler.Take("x").ok());
  EXPECT_EQ(filler.left(), 1);
  EXPECT_THAT(std::string(filler.Take("xy").message()),
              HasSubstr("2 bytes came where 1 were left"));
}

TEST(DataFramesTest, ABoolOfAThirdValueIsRefused) {
  PayloadFiller filler;
  const absl::StatusOr<Tensor> kept = filler.Add(DType::kBool, {2});
  EXPECT_THAT(std::string(filler.Take("\1\2").message()), HasSubstr("neither 0 nor 1"));
}

TEST(DataFramesTest, AReplyThatAnswersSomethingElseIsRefused) {
  PullRequest asked;
  asked.parts.resize(1);
  asked.parts[0].rows = Tensor::Vector<int64_t>({1, 2});
  PayloadFiller filler;
  v1::PullReplyHeader header;
  ExpectRefused(FromHeader(header, asked, filler), "parts: has 0 elements where 1 were asked for");
  v1::PullReplyHeader::Part& part = *header.add_parts();
  part.set_dtype(v1::DT_FLOAT32);
  ExpectRefused(FromHeader(header, asked, filler), "parts[0]: has other rows");
  part.add_shape(3);
  ExpectRefused(FromHeader(header, asked, filler), "parts[0]: has other rows");

  v1::CommitReplyHeader reply;
  ExpectRefused(FromHeader(reply, OnePart(Tensor()), filler), "versions: has 0 elements, not 1");
}

}  // namespace
}  // namespace divvy::wire
