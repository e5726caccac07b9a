// The data streams from end to end: client, server, and their behaviour when a peer is broken,
// silent or hostile.
#include <atomic>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/process.h"
#include "base/random.h"
#include "base/testing/sim_executor.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"
#include "protocol/error.h"
#include "rpc/channel.h"
#include "rpc/data_client.h"
#include "rpc/data_server.h"
#include "rpc/server.h"
#include "rpc/silence_watch.h"
#include "rpc/testing/data_streams.h"
#include "rpc/transport.h"
#include "wire/data_frames.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Payloads that travel. Those that lie in shared memory have their own test.
class DataTest : public DataStreamsTest {
 protected:
  DataTest() : DataStreamsTest(Without(DataServerOptions())) {}
  void Serve(int port, DataServerOptions options = {}, ServerOptions server = {}) {
    DataStreamsTest::Serve(port, Without(options), server);
  }

 private:
  static DataServerOptions Without(DataServerOptions options) {
    options.shares_memory = false;
    return options;
  }
};

// ---- values -------------------------------------------------------------------------------------

// Sizes: no part, one part, many small parts, empty parts between others, one part of several
// messages.
std::vector<std::vector<int64_t>> SizesOfParts() {
  std::vector<int64_t> many(300);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int64_t>(i % 7);
  return {{}, {1}, {0}, many, {0, 0, 5, 0}, {2'621'441}, {3, 1'000'003, 0, 7}};
}

TEST_F(DataTest, WhatIsPulledIsBitwiseWhatTheHandlerGave) {
  for (const auto& sizes : SizesOfParts()) {
    PullRequest request{kFence, {}};
    PullReply reply;
    for (size_t i = 0; i < sizes.size(); ++i) {
      request.parts.push_back({{VariableId(7), 1, static_cast<uint16_t>(i)}, std::nullopt});
      if (i % 2 == 1)
        request.parts.back().rows =
            Tensor::Vector<int64_t>(std::vector<int64_t>(static_cast<size_t>(sizes[i]), 4));
      reply.parts.push_back({Filled(sizes[i], static_cast<float>(i)), 1000 + i, i % 3 == 0});
    }
    // The others are wanted in one place.
    for (size_t i = 0; i < sizes.size(); i += 3) request.parts[i].may_lend = true;
    const auto answer = SendPull(request);
    auto asked = handler_.pulls.Take();
    ASSERT_EQ(asked.request.parts.size(), sizes.size());
    EXPECT_EQ(asked.request.fence.session, SessionId(4));
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(asked.request.parts[i].shard, request.parts[i].shard);
      ASSERT_EQ(asked.request.parts[i].rows.has_value(), i % 2 == 1);
      if (i % 2 == 1) {
        EXPECT_TRUE(BitwiseEqual(*asked.request.parts[i].rows, *request.parts[i].rows));
      }
    }
    asked.done(reply);
    const absl::StatusOr<PullReply> got = answer->Take();
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ(got->parts.size(), sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto& lent = got->parts[i].lent;
      EXPECT_EQ(lent != nullptr, i % 3 == 0 && reply.parts[i].values.size_bytes() >= 256 << 10);
      EXPECT_TRUE(BitwiseEqual(lent != nullptr ? *lent->Joined() : got->parts[i].values,
                               reply.parts[i].values))
          << i;
      EXPECT_EQ(got->parts[i].version, 1000 + i);
      EXPECT_EQ(got->parts[i].torn, i % 3 == 0);
    }
  }
}

TEST_F(DataTest, WhatIsCommittedArrivesBitwise) {
  for (const auto& sizes : SizesOfParts()) {
    std::vector<Tensor> values;
    for (const int64_t size : sizes)
      values.push_back(Filled(size, static_cast<float>(values.size())));
    CommitRequest request = CommitOf(12, values);
    request.attempt = 3;
    request.kind = EntryKind::kWrite;
    request.participants = 2;
    if (!request.parts.empty()) {
      request.parts[0].op = WriteOp::kGradient;
      request.parts[0].rows = Tensor::Vector<int64_t>({5, 9});
      request.parts[0].optimizer = StepOf(Sgd{0.5}, 0);
      request.parts[0].slots = {1, 2};
    }
    const auto answer = SendCommit(request);
    auto asked = handler_.commits.Take();
    EXPECT_EQ(asked.request.entry, EntryId(12));
    EXPECT_EQ(asked.request.attempt, 3u);
    EXPECT_EQ(asked.request.kind, EntryKind::kWrite);
    EXPECT_EQ(asked.request.participants, 2);
    ASSERT_EQ(asked.request.parts.size(), sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(asked.request.parts[i].shard, request.parts[i].shard);
      EXPECT_EQ(asked.request.parts[i].op, request.parts[i].op);
      // Large ones are not copied.
      const auto& arrived = asked.request.parts[i].arrived;
      EXPECT_EQ(arrived != nullptr, values[i].size_bytes() >= 256 << 10) << i;
      EXPECT_TRUE(BitwiseEqual(
          arrived != nullptr ? *arrived->Joined() : asked.request.parts[i].values, values[i]))
          << i;
      EXPECT_EQ(asked.request.parts[i].rows.has_value(), i == 0);
    }
    if (!sizes.empty()) {
      EXPECT_TRUE(BitwiseEqual(*asked.request.parts[0].rows, Tensor::Vector<int64_t>({5, 9})));
      EXPECT_TRUE(asked.request.parts[0].optimizer == request.parts[0].optimizer);
      EXPECT_THAT(asked.request.parts[0].slots, ElementsAre(1, 2));
    }
    asked.done(CommitReply{false, 5, std::vector<uint64_t>(sizes.size(), 8)});
    const absl::StatusOr<CommitReply> reply = answer->Take();
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->versions, std::vector<uint64_t>(sizes.size(), 8));
  }
}

TEST_F(DataTest, ManyRequestsAtOnceGetTheirOwnAnswers) {
  constexpr int kRequests = 200;
  std::vector<Shared<absl::StatusOr<PullReply>>> pulls(kRequests);
  std::vector<Shared<absl::StatusOr<CommitReply>>> commits(kRequests);
  ThreadPoolExecutor callers(4);
  const auto sent = MakeShared<int>();
  for (int i = 0; i < kRequests; ++i) {
    callers.Post([&, i] {
      pulls[i] = SendPull({kFence, {{{VariableId(static_cast<uint32_t>(i)), 0, 0}, std::nullopt}}});
      commits[i] = SendCommit(CommitOf(static_cast<uint64_t>(i) + 1, {Filled(1000 + i)}));
      sent->Add(i);
    });
  }
  for (int i = 0; i < kRequests; ++i) {
    auto pull = handler_.pulls.Take();
    const auto variable = static_cast<float>(pull.request.parts[0].shard.variable.value());
    pull.done(PullReply{{{Filled(500, variable), 1, false}}});
    auto commit = handler_.commits.Take();
    commit.done(CommitReply{
        false,
        commit.request.entry.value(),
        {static_cast<uint64_t>(commit.request.parts[0].values.shape().num_elements())}});
  }
  for (int i = 0; i < kRequests; ++i) sent->Take();
  for (int i = 0; i < kRequests; ++i) {
    const absl::StatusOr<PullReply> pulled = pulls[i]->Take();
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    EXPECT_TRUE(BitwiseEqual(pulled->parts[0].values, Filled(500, static_cast<float>(i))));
    const absl::StatusOr<CommitReply> committed = commits[i]->Take();
    ASSERT_TRUE(committed.ok()) << committed.status();
    EXPECT_EQ(committed->applied_seq, static_cast<uint64_t>(i) + 1);
    EXPECT_THAT(committed->versions, ElementsAre(1000 + static_cast<uint64_t>(i)));
  }
}

TEST_F(DataTest, TheTensorsOfARequestAreLetGoOnceItIsAnswered) {
  const std::vector<float> memory(1'000'000, 3);
  const auto let_go = MakeShared<int>();
  Tensor lent = *Tensor::Borrow(DType::kFloat32, {1'000'000}, memory.data(), Device(),
                                [let_go] { let_go->Add(1); });
  const auto answer = SendCommit(CommitOf(1, {std::move(lent)}));
  handler_.commits.Take().done(CommitReply{false, 1, {1}});
  EXPECT_TRUE(answer->Take().ok());
  EXPECT_EQ(let_go->Take(), 1);
}

// ---- refusals -----------------------------------------------------------------------------------

TEST_F(DataTest, ARefusalOfTheHandlerRidesInTheReplyAndTheStreamGoesOn) {
  const auto before = SendPull();
  const auto refused = SendCommit(CommitOf(3, {Filled(10)}));
  ErrorDetail detail;
  detail.reason = Reason::kSessionFenced;
  detail.epoch = Epoch(6);
  detail.entry = EntryId(3);
  handler_.commits.Take().done(MakeError(detail, "session 4 may not commit"));
  const absl::Status status = refused->Take().status();
  EXPECT_EQ(ReasonOf(status), Reason::kSessionFenced);
  EXPECT_EQ(DetailOf(status).epoch, Epoch(6));
  EXPECT_THAT(std::string(status.message()), HasSubstr("session 4 may not commit"));
  ExpectCommitWorks();
  handler_.pulls.Take().done(PullReply{});
  EXPECT_TRUE(before->Take().ok());
}

TEST_F(DataTest, ACommitThatIsTooLargeIsRefusedAndItsPayloadDropped) {
  handler_.limit = 1 << 20;
  const auto refused = SendCommit(CommitOf(3, {Filled(16 << 20)}));
  const auto fits = SendCommit(CommitOf(4, {Filled(1000)}));
  EXPECT_EQ(ReasonOf(refused->Take().status()), Reason::kInvalid);
  auto asked = handler_.commits.Take();
  EXPECT_EQ(asked.request.entry, EntryId(4));
  EXPECT_TRUE(BitwiseEqual(asked.request.parts[0].values, Filled(1000)));
  asked.done(CommitReply{false, 1, {1}});
  EXPECT_TRUE(fits->Take().ok());
  ExpectCommitWorks();
}

TEST_F(DataTest, ARequestThatMakesNoSenseIsRefusedAloneAndNamesTheField) {
  CommitRequest nonsense = CommitOf(3, {Filled(2 << 20)});
  nonsense.participants = -1;
  const auto refused = SendCommit(nonsense);
  const absl::Status status = refused->Take().status();
  EXPECT_EQ(ReasonOf(status), Reason::kInvalid);
  EXPECT_THAT(std::string(status.message()), HasSubstr("participants"));
  EXPECT_EQ(handler_.released.Take(), 1u);
  ExpectCommitWorks();
}

TEST_F(DataTest, AnAnswerThatDoesNotFitItsRequestIsNeverDelivered) {
  const PullRequest two{kFence,
                        {{{VariableId(1), 0, 0}, std::nullopt},
                         {{VariableId(2), 0, 0}, Tensor::Vector<int64_t>({1, 2, 3})}}};
  const std::vector<PullReply> wrong = {PullReply{}, PullReply{{{Filled(4), 1, false}}},
                                        PullReply{{{Filled(4), 1, false}, {Filled(4), 1, false}}}};
  for (const PullReply& reply : wrong) {
    const auto answer = SendPull(two);
    handler_.pulls.Take().done(reply);
    EXPECT_EQ(answer->Take().status().code(), absl::StatusCode::kUnavailable) << reply.parts.size();
  }
  const auto committed = SendCommit(CommitOf(3, {Filled(10), Filled(10)}));
  handler_.commits.Take().done(CommitReply{false, 1, {1}});
  EXPECT_EQ(committed->Take().status().code(), absl::StatusCode::kUnavailable);
  ExpectCommitWorks();
}

// A peer decides what is in a message, and a message is freed as a whole. So one that is kept is
// for the most part what may be kept.
TEST(TakePayloadTest, KeepsAMessageOnlyIfItIsLargeAndMostOfItMayBeKept) {
  constexpr size_t kMany = 300 << 10, kFew = 8 << 10;
  struct Case {
    size_t header_bytes, payload_bytes;
    bool kept;
  };
  for (const Case& c : {Case{0, kMany, true}, Case{kMany, kMany / 2, false},
                        Case{kMany / 2, kMany, true}, Case{0, kFew, false}}) {
    SCOPED_TRACE(absl::StrCat(c.header_bytes, " ", c.payload_bytes));
    v1::FrameHeader header;
    header.GetReflection()->MutableUnknownFields(&header)->AddLengthDelimited(
        1000, std::string(c.header_bytes, 'h'));
    const grpc::Slice slices[] = {grpc::Slice(wire::EncodeHeader(header)),
                                  grpc::Slice(std::string(c.payload_bytes, 'p'))};
    grpc::ByteBuffer buffer(slices, 2);
    absl::StatusOr<IncomingMessage> message = FromBuffer(buffer);
    ASSERT_TRUE(message.ok()) << message.status();
    const void* const there = message->payload.back().data();
    wire::PayloadFiller filler{wire::PayloadFiller::KeptSizes()};
    const auto tensor = filler.AddScattered(DType::kUInt8, {static_cast<int64_t>(kMany)});
    ASSERT_TRUE(TakePayload(*std::move(message), filler).ok());
    EXPECT_EQ(tensor->Pieces().back().data() == there, c.kept);
  }
}

// ---- memory and flow ----------------------------------------------------------------------------

TEST_F(DataTest, ACommitIsReadWhenItsMemoryIsGrantedAndNotBefore) {
  handler_.grants_at_once = false;
  const auto first = SendCommit(CommitOf(1, {Filled(5 << 20)})),
             second = SendCommit(CommitOf(2, {Filled(100)}));
  auto reserved = handler_.reservations.Take();
  EXPECT_EQ(reserved.bytes, (5 << 20) * 4);
  // The second commit is behind the payload of the first one, which the server does not read.
  EXPECT_EQ(handler_.reservations.size(), 0u);
  EXPECT_EQ(handler_.commits.size(), 0u);
  reserved.granted(absl::OkStatus());
  auto asked = handler_.commits.Take();
  EXPECT_TRUE(BitwiseEqual(*asked.request.parts[0].arrived->Joined(), Filled(5 << 20)));
  auto behind = handler_.reservations.Take();
  EXPECT_EQ(behind.bytes, 400);
  // The memory is held until the answer.
  EXPECT_EQ(handler_.released.size(), 0u);
  asked.done(CommitReply{false, 1, {1}});
  EXPECT_TRUE(first->Take().ok());
  EXPECT_EQ(handler_.released.Take(), reserved.ticket);
  behind.granted(absl::OkStatus());
  handler_.commits.Take().done(CommitReply{false, 2, {1}});
  EXPECT_TRUE(second->Take().ok());
  EXPECT_EQ(handler_.released.Take(), behind.ticket);
}

TEST_F(DataTest, ACommitThatWaitsForMemoryKeepsItsPlaceForLongerThanASilence) {
  handler_.grants_at_once = false;
  DataServerOptions server;
  server.silence = absl::Seconds(1);
  Serve(0, server);
  DataClientOptions patient, options;
  options.silence = absl::Seconds(1);
  patient.silence = 3 * options.silence;
  client_ = DataClient::Create(channel_, executor_, options);
  const auto answer = SendCommit(CommitOf(1, {Filled(5 << 20)}));
  const auto reserved = handler_.reservations.Take();
  // Waits for three times the silence: that is how long another client takes to fail without an
  // answer.
  const auto other = DataClient::Create(channel_, executor_, patient);
  const auto silent = MakeShared<absl::StatusOr<PullReply>>();
  other->Call(PullRequest{kFence, {}},
              [silent](absl::StatusOr<PullReply> reply) { silent->Add(std::move(reply)); });
  EXPECT_THAT(std::string(silent->Take().status().message()), HasSubstr("nothing has moved"));
  EXPECT_EQ(answer->size(), 0u);
  EXPECT_EQ(handler_.released.size(), 0u);
  // It has not asked again either.
  EXPECT_EQ(handler_.reservations.size(), 0u);
  reserved.granted(absl::OkStatus());
  handler_.commits.Take().done(CommitReply{false, 1, {1}});
  EXPECT_TRUE(answer->Take().ok());
}

TEST_F(DataTest, TheRowsOfAPullAreReservedToo) {
  handler_.grants_at_once = false;
  const auto answer =
      SendPull({kFence, {{{VariableId(1), 0, 0}, Tensor::Vector<int64_t>({1, 2, 3})}}});
  auto reserved = handler_.reservations.Take();
  EXPECT_EQ(reserved.bytes, 24);
  reserved.granted(absl::OkStatus());
  handler_.pulls.Take().done(PullReply{{{Filled(3), 1, false}}});
  EXPECT_TRUE(answer->Take().ok());
  EXPECT_EQ(handler_.released.Take(), reserved.ticket);
}

TEST_F(DataTest, APullIsCarriedOutWhenThereIsMemoryForItsReplyWhichIsGivenBackWhenThatIsSent) {
  handler_.grants_at_once = false;
  handler_.reply_bytes = 12;
  const auto answer = SendPull();
  auto reserved = handler_.reservations.Take();
  EXPECT_EQ(reserved.of, DataMemory::kReply);
  EXPECT_EQ(reserved.bytes, 12);
  EXPECT_EQ(handler_.pulls.size(), 0u);
  reserved.granted(absl::OkStatus());
  {
    auto asked = handler_.pulls.Take();
    EXPECT_EQ(handler_.released.size(), 0u);
    asked.done(PullReply{});
  }
  EXPECT_TRUE(answer->Take().ok());
  EXPECT_EQ(handler_.released.Take(), reserved.ticket);
}

// A ps says how long it had the request. The wait for memory is a part of that.
TEST_F(DataTest, TheWaitForTheMemoryOfAReplyIsServedTime) {
  handler_.grants_at_once = false;
  handler_.reply_bytes = 12;
  const auto answer = SendPull();
  auto reserved = handler_.reservations.Take();
  const absl::Duration before = Clock::Real().Elapsed();
  handler_.grants_at_once = true;
  for (int i = 0; i < 20; ++i) ExpectCommitWorks();
  const absl::Duration waited = Clock::Real().Elapsed() - before;
  reserved.granted(absl::OkStatus());
  handler_.pulls.Take().done(PullReply{});
  const absl::StatusOr<PullReply> reply = answer->Take();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_GE(reply->served, waited);
}

TEST_F(DataTest, AReplyThatHasNoMemoryIsARefusalAndTheStreamGoesOn) {
  handler_.grants_at_once = false;
  handler_.reply_bytes = 12;
  const auto answer = SendPull();
  handler_.reservations.Take().granted(absl::ResourceExhaustedError("never"));
  EXPECT_EQ(answer->Take().status().code(), absl::StatusCode::kResourceExhausted);
  handler_.released.Take();
  handler_.reply_bytes = 0;
  const auto next = SendPull();
  handler_.pulls.Take().done(PullReply{});
  EXPECT_TRUE(next->Take().ok());
}

TEST_F(DataTest, AStreamThatBreaksWhileAReplyWaitsForMemoryGivesItsPlaceBack) {
  handler_.grants_at_once = false;
  handler_.reply_bytes = 12;
  const auto answer = SendPull();
  auto reserved = handler_.reservations.Take();
  client_ = nullptr;
  EXPECT_FALSE(answer->Take().ok());
  EXPECT_EQ(handler_.released.Take(), reserved.ticket);
  // too late: does nothing
  reserved.granted(absl::OkStatus());
  EXPECT_EQ(handler_.pulls.size(), 0u);
}

TEST_F(DataTest, AReplyThatIsBeingMadeKeepsItsMemoryThoughItsStreamIsGone) {
  handler_.reply_bytes = 12;
  const auto answer = SendPull();
  {
    const auto asked = handler_.pulls.Take();
    client_ = nullptr;
    EXPECT_FALSE(answer->Take().ok());
    // The server has seen the end of the stream.
    Serve(0);
    EXPECT_EQ(handler_.released.size(), 0u);
  }
}

TEST_F(DataTest, AStreamThatBreaksWhileItWaitsForMemoryGivesItsPlaceBack) {
  handler_.grants_at_once = false;
  const auto answer = SendCommit(CommitOf(1, {Filled(1 << 20)}));
  auto reserved = handler_.reservations.Take();
  client_ = nullptr;
  EXPECT_FALSE(answer->Take().ok());
  EXPECT_EQ(handler_.released.Take(), reserved.ticket);
  // too late: does nothing
  reserved.granted(absl::OkStatus());
  EXPECT_EQ(handler_.commits.size(), 0u);
}

TEST_F(DataTest, TwoTransfersAreTakenAtATimeAndTheThirdWhenOneIsAnswered) {
  std::vector<Shared<absl::StatusOr<PullReply>>> answers;
  for (int i = 0; i < 5; ++i) answers.push_back(SendPull());
  for (int answered = 0; answered < 5; ++answered) {
    auto first = handler_.pulls.Take();
    if (answered < 4) {
      auto second = handler_.pulls.Take();
      EXPECT_EQ(handler_.pulls.size(), 0u);
      handler_.pulls.Add(std::move(second));
    }
    first.done(PullReply{});
    EXPECT_TRUE(answers[answered]->Take().ok());
  }
}

// ---- broken ways --------------------------------------------------------------------------------

TEST_F(DataTest, AServerThatDiesAnswersEverythingUnavailableAndTheNextRequestFindsItsSuccessor) {
  const auto pull = SendPull();
  const auto commit = SendCommit(CommitOf(1, {Filled(4 << 20)}));
  std::vector<Shared<absl::StatusOr<CommitReply>>> waiting;
  for (int i = 0; i < 10; ++i) waiting.push_back(SendCommit(CommitOf(2, {Filled(1 << 20)})));
  const auto held_pull = handler_.pulls.Take();
  const auto held_commit = handler_.commits.Take();
  const int port = server_->port();
  server_ = nullptr;
  EXPECT_EQ(pull->Take().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(commit->Take().status().code(), absl::StatusCode::kUnavailable);
  for (const auto& answer : waiting) {
    const absl::Status status = answer->Take().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_EQ(ReasonOf(status), Reason::kNone);
  }
  // too late: no client receives it
  held_pull.done(PullReply{});
  held_commit.done(CommitReply{false, 1, {1}});
  handler_.commits_at_once = true;
  const std::shared_ptr<DataClient> client = client_;
  const std::shared_ptr<grpc::Channel> channel = channel_;
  Serve(port);
  absl::Status status = absl::UnavailableError("");
  // Until the channel has noticed both the end and the restart of the server.
  while (absl::IsUnavailable(status)) {
    ASSERT_TRUE(channel->WaitForConnected(gpr_time_from_seconds(30, GPR_TIMESPAN)));
    status = SendCommit(*client, CommitOf(9, {Filled(10)}))->Take().status();
  }
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(DataTest, AClientThatGoesAnswersWhatIsOutstandingOnce) {
  std::vector<Shared<absl::StatusOr<CommitReply>>> answers;
  for (int i = 0; i < 20; ++i) answers.push_back(SendCommit(CommitOf(1, {Filled(1 << 20)})));
  handler_.commits.Take();
  client_ = nullptr;
  for (const auto& answer : answers)
    EXPECT_EQ(answer->Take().status().code(), absl::StatusCode::kCancelled);
  for (const auto& answer : answers) EXPECT_EQ(answer->size(), 0u);
}

TEST_F(DataTest, AClientWhoseCallsAreClosedAnswersCancelled) {
  DataClientOptions options;
  options.open = std::make_shared<OpenCalls>();
  client_ = DataClient::Create(channel_, executor_, options);
  const auto under_way = SendPull();
  handler_.pulls.Take();
  options.open->CancelAndWait();
  EXPECT_FALSE(under_way->Take().ok());
  EXPECT_EQ(SendPull()->Take().status().code(), absl::StatusCode::kCancelled);
}

// If nothing listens at the address, gRPC ends a call as soon as it has begun, on a thread of its
// own.
TEST_F(DataTest, WhereNobodyListensEachCallIsUnavailableHoweverSoonItEnds) {
  channel_ = Connect();
  server_ = nullptr;
  client_ = DataClient::Create(channel_, executor_, {});
  for (int i = 0; i < 3000; ++i) {
    const absl::Status status = SendPull()->Take().status();
    ASSERT_TRUE(absl::IsUnavailable(status)) << "call " << i << ": " << status;
  }
}

TEST_F(DataTest, AServerThatOwesAnAnswerAndSaysNothingIsGivenUp) {
  DataClientOptions options;
  options.silence = absl::Milliseconds(80);
  client_ = DataClient::Create(channel_, executor_, options);
  const auto answer = SendPull();
  const auto asked = handler_.pulls.Take();
  const absl::Status status = answer->Take().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("nothing has moved"));
}

TEST_F(DataTest, AServerCanBeShutDownWhileAnswersAreOutstandingAndTheyMayComeLater) {
  SendPull();
  SendCommit(CommitOf(1, {Filled(10)}));
  const auto pull = handler_.pulls.Take();
  const auto commit = handler_.commits.Take();
  server_->Shutdown(absl::ZeroDuration());
  pull.done(PullReply{});
  commit.done(CommitReply{false, 1, {1}});
  // The handler may have been destroyed by then.
  EXPECT_EQ(handler_.released.size(), 0u);
}

// gRPC 1.51 aborts if the last reference to a received buffer is dropped on a thread of ours while
// the memory quota is used up.
TEST_F(DataTest, AServerWhoseMemoryIsUsedUpTakesEveryCommitInTheEnd) {
  constexpr int kClients = 8, kCommitsEach = 25, kTries = 1000;
  handler_.commits_at_once = true;
  ServerOptions tight;
  tight.max_message_bytes = wire::kMessageBytes + (64 << 10);
  tight.memory_bytes = 4 * tight.max_message_bytes;
  Serve(0, {}, tight);
  const Tensor values = Filled(wire::kMessageBytes / 2);  // two messages
  std::vector<std::shared_ptr<DataClient>> clients;
  for (int i = 0; i < kClients; ++i)
    clients.push_back(DataClient::Create(Connect(), executor_, {}));
  Happenings<absl::Status> ends;
  std::function<void(int, int, int)> commit = [&](int client, int left, int tries) {
    if (left == 0 || tries == 0)
      return ends.Add(left == 0 ? absl::OkStatus() : absl::UnavailableError("too many tries"));
    clients[static_cast<size_t>(client)]->Call(
        CommitOf(1, {values}),
        [&commit, client, left, tries](const absl::StatusOr<CommitReply>& reply) {
          commit(client, left - (reply.ok() ? 1 : 0), tries - 1);
        });
  };
  for (int i = 0; i < kClients; ++i) commit(i, kCommitsEach, kTries);
  for (int i = 0; i < kClients; ++i) EXPECT_TRUE(ends.Take().ok());
}

TEST_F(DataTest, ADataServerWhoseServerCouldNotStartGoesQuietly) {
  DataServer other(handler_);
  ServerOptions options;
  options.address = absl::StrCat("127.0.0.1:", server_->port());
  EXPECT_FALSE(Server::Start(options, {}, &other).ok());
}

TEST(SilenceWatchTest, TimeInWhichNothingIsOwedDoesNotCount) {
  SimExecutor executor(1);
  bool owed = false, silent = false;
  const auto watch = SilenceWatch::Start(
      executor, absl::Seconds(8), [&] { silent = true; }, [&] { return owed; });
  executor.RunFor(absl::Minutes(1));
  EXPECT_FALSE(silent);
  owed = true;
  executor.RunFor(absl::Seconds(7));
  EXPECT_FALSE(silent);
  executor.RunFor(absl::Seconds(3));
  EXPECT_TRUE(silent);
}

// ---- hostile peers ------------------------------------------------------------------------------

TEST_F(DataTest, BytesThatAreNoMessageEndTheStreamWithInvalid) {
  const std::vector<std::string> garbage = {
      "",
      "abc",
      std::string("\xff\xff\xff\xff", 4),                   // a header of 4 GiB
      std::string("\x05\x00\x00\x00", 4) + "ab",            // ends within its header
      std::string("\x03\x00\x00\x00", 4) + "\xff\xff\xff",  // no protobuf
      std::string("\x00\x00\x00\x00", 4),                   // no kind
      std::string("\x00\x00\x00\x00", 4) + std::string(10000, 'x'),
  };
  for (const char* method : {kPull, kCommit}) {
    for (const std::string& bytes : garbage) {
      RawStream stream(channel_, method);
      stream.Write(bytes);
      EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT)
          << method << " " << bytes.size();
    }
  }
  ExpectCommitWorks();
}

TEST_F(DataTest, RandomBytesDoNoHarm) {
  const uint64_t seed = EntropySeed();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  Random random(seed);
  const std::string real = Front(CommitHeader(1, 100)) + std::string(400, '\0');
  for (int i = 0; i < 60; ++i) {
    RawStream stream(channel_, kCommit);
    for (int messages = 0; messages < 3; ++messages) {
      std::string bytes = real;
      for (uint64_t changes = random.Below(20); changes > 0; --changes)
        bytes[random.Below(bytes.size())] = static_cast<char>(random.Next());
      bytes.resize(random.Below(bytes.size() + 1));
      if (!stream.Write(bytes)) break;
    }
  }
  while (handler_.commits.size() > 0) handler_.commits.Take();
  ExpectCommitWorks();
}

TEST_F(DataTest, AMessageThatDoesNotFollowEndsTheStreamWithInvalid) {
  const std::string payload(100 * 4, '\0');
  const std::vector<std::vector<std::string>> sequences = {
      // payload without a transfer
      {Front(DataHeader(1))},
      // a pull on the stream of commits
      {Front(PullHeader(1))},
      // Numbers begin at 1.
      {Front(CommitHeader(0, 1)) + "abcd"},
      // The first transfer is not complete.
      {Front(CommitHeader(1, 100)), Front(CommitHeader(2, 100))},
      // payload with the number of another transfer
      {Front(CommitHeader(1, 100)), Front(DataHeader(2)) + payload},
      // the same number twice
      {Front(CommitHeader(1, 100)) + payload, Front(CommitHeader(1, 100)) + payload},
      // more payload than announced, in one message
      {Front(CommitHeader(1, 100)) + payload + "x"},
      // more payload than announced, in a later message
      {Front(CommitHeader(1, 100)), Front(DataHeader(1)) + payload + "x"},
      {Front(CommitHeader(1, 0)) + "x"},
      // a payload message without payload
      {Front(CommitHeader(1, 100)), Front(DataHeader(1))},
  };
  for (const auto& messages : sequences) {
    RawStream stream(channel_, kCommit);
    for (const std::string& message : messages) stream.Write(message);
    const grpc::Status status = stream.Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << (&messages - sequences.data()) << " " << status.error_message();
  }
  while (handler_.commits.size() > 0) handler_.commits.Take();
  ExpectCommitWorks();
}

TEST_F(DataTest, PayloadMayComeInAnyPieces) {
  const Tensor values = Filled(1000, 5);
  const std::string bytes(values.data_as<char>(), 4000);
  RawStream stream(channel_, kCommit);
  ASSERT_TRUE(stream.Write(Front(CommitHeader(7, 1000)) + bytes.substr(0, 1)));
  ASSERT_TRUE(stream.Write(Front(DataHeader(7)) + bytes.substr(1, 3002)));
  ASSERT_TRUE(stream.Write(Front(DataHeader(7)) + bytes.substr(3003)));
  auto asked = handler_.commits.Take();
  EXPECT_TRUE(BitwiseEqual(asked.request.parts[0].values, values));
  asked.done(CommitReply{true, 4, {}});
  grpc::ByteBuffer reply;
  EXPECT_TRUE(stream.Read(&reply));
  EXPECT_GT(reply.Length(), 4u);
}

TEST_F(DataTest, WhoWaitsForMemoryIsToldSoAgainAndAgainUntilItHasIt) {
  handler_.grants_at_once = false;
  DataServerOptions options;
  options.silence = absl::Milliseconds(80);
  Serve(0, options);
  RawStream stream(channel_, kCommit);
  ASSERT_TRUE(stream.Write(Front(CommitHeader(7, 1)) + "abcd"));
  const auto reserved = handler_.reservations.Take();
  const std::string waiting = Front(wire::ToWaiting(7).header);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(stream.ReadBytes(), waiting);
  reserved.granted(absl::OkStatus());
  handler_.commits.Take().done(CommitReply{false, 1, {1}});
  std::string bytes = stream.ReadBytes();
  // messages that were in flight
  while (bytes == waiting) bytes = stream.ReadBytes();
  // Behind the lengths and the call. How long the server had it follows.
  const std::string reply =
      Front(wire::ToTransfer(7, absl::StatusOr<CommitReply>(CommitReply{false, 1, {1}})).header);
  EXPECT_THAT(bytes, HasSubstr(reply.substr(8)));
}

TEST_F(DataTest, WhoWaitsForTheMemoryOfAReplyIsToldSoToo) {
  handler_.grants_at_once = false;
  handler_.reply_bytes = 12;
  DataServerOptions options;
  options.silence = absl::Milliseconds(80);
  Serve(0, options);
  RawStream stream(channel_, kPull);
  ASSERT_TRUE(stream.Write(Front(PullHeader(3))));
  const auto reserved = handler_.reservations.Take();
  for (int i = 0; i < 9; ++i) EXPECT_EQ(stream.ReadBytes(), Front(wire::ToWaiting(3).header));
}

// A peer without a session could otherwise hold the memory of all peers that have one.
TEST_F(DataTest, ARequestThatIsNotAdmittedIsRefusedBeforeMemoryIsTaken) {
  handler_.grants_at_once = false;
  v1::FrameHeader stranger = CommitHeader(1, 1'000'000);
  stranger.mutable_commit()->mutable_fence()->set_session(99);
  RawStream stream(channel_, kCommit);
  ASSERT_TRUE(stream.Write(Front(stranger)));
  EXPECT_THAT(stream.ReadBytes(), HasSubstr("no such session"));
  EXPECT_EQ(handler_.reservations.size(), 0u);
  // The payload in flight is dropped, and the stream continues.
  ASSERT_TRUE(stream.Write(Front(DataHeader(1)) + "abcd"));
  ASSERT_TRUE(stream.Write(Front(CommitHeader(2, 1)) + "abcd"));
  EXPECT_EQ(handler_.reservations.Take().bytes, 4);
}

TEST_F(DataTest, ASenderThatSendsByteByByteLosesItsReservation) {
  DataServerOptions options;
  options.silence = absl::Milliseconds(80);
  options.least_rate = 1 << 30;
  Serve(0, options);
  RawStream stream(channel_, kCommit);
  ASSERT_TRUE(stream.Write(Front(CommitHeader(1, 1 << 24))));
  int written = 0;
  while (stream.Write(Front(DataHeader(1)) + "x")) ++written;
  EXPECT_GT(written, 0);
  EXPECT_EQ(handler_.released.Take(), 1u);
}

TEST_F(DataTest, AHeaderThatNamesManyShardsIsCountedAndReadWhenItsMemoryIsThere) {
  handler_.grants_at_once = false;
  constexpr int kParts = 1000;
  const std::vector<Tensor> values(kParts, Filled(2));
  const auto answer = SendCommit(CommitOf(1, values));
  const auto reserved = handler_.reservations.Take();
  EXPECT_EQ(reserved.bytes, kParts * 2 * 4);
  EXPECT_EQ(reserved.claim.overhead, kParts * 1024);
  EXPECT_EQ(reserved.claim.owner, "session 4");
  reserved.granted(absl::OkStatus());
  auto asked = handler_.commits.Take();
  ASSERT_EQ(asked.request.parts.size(), values.size());
  EXPECT_TRUE(BitwiseEqual(asked.request.parts.back().values, values.back()));
}

// Each part would take hundreds of bytes once parsed.
TEST_F(DataTest, AHeaderOfMillionsOfEmptyPartsIsRefusedUnread) {
  const auto stream = std::make_unique<RawStream>(channel_, kCommit);
  // the tag and length of an empty message
  std::string parts;
  while (parts.size() < (6 << 20)) parts.append("\x32\x00", 2);
  std::string commit("\x22");
  for (size_t size = parts.size(); size > 0; size >>= 7)
    commit.push_back(static_cast<char>((size & 0x7f) | (size >= 0x80 ? 0x80 : 0)));
  commit += parts;
  const auto length = static_cast<uint32_t>(commit.size());
  std::string message(reinterpret_cast<const char*>(&length), sizeof(length));
  message += commit;
  const int64_t before = PeakMemoryBytes();
  stream->Write(message);
  const grpc::Status refused = stream->Finish();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << refused.error_message();
  EXPECT_LT(PeakMemoryBytes() - before, int64_t{64} << 20);
}

TEST_F(DataTest, ASizeThatCannotBeIsRefusedBeforeMemoryIsTaken) {
  v1::FrameHeader header = CommitHeader(1, 1);
  header.mutable_commit()->mutable_parts(0)->set_shape(0, int64_t{1} << 62);
  header.mutable_commit()->set_total_bytes(4);
  RawStream stream(channel_, kCommit);
  ASSERT_TRUE(stream.Write(Front(header)));
  grpc::ByteBuffer reply;
  // The reply has the refusal; the stream continues.
  ASSERT_TRUE(stream.Read(&reply));
  ASSERT_TRUE(stream.Write(Front(CommitHeader(2, 1)) + "abcd"));
  EXPECT_EQ(handler_.commits.Take().request.parts[0].values.size_bytes(), 4);
}

TEST_F(DataTest, ASenderThatStopsInTheMiddleLosesItsReservation) {
  DataServerOptions options;
  options.silence = absl::Milliseconds(80);
  Serve(0, options);
  RawStream stream(channel_, kCommit);
  ASSERT_TRUE(stream.Write(Front(CommitHeader(1, 1000)) + "abcd"));
  EXPECT_EQ(handler_.released.Take(), 1u);
  EXPECT_FALSE(stream.Finish().ok());
}

TEST_F(DataTest, AStreamThatIsCancelledInTheMiddleOfAPayloadGivesItsReservationBack) {
  handler_.grants_at_once = false;
  FakeHandler::Reservation reserved;
  {
    RawStream stream(channel_, kCommit);
    ASSERT_TRUE(stream.Write(Front(CommitHeader(1, 1000)) + "abcd"));
    reserved = handler_.reservations.Take();
    reserved.granted(absl::OkStatus());
  }
  EXPECT_EQ(handler_.released.Take(), reserved.ticket);
  EXPECT_EQ(handler_.commits.size(), 0u);
}

TEST_F(DataTest, OtherMethodsAreUnimplemented) {
  for (const char* method :
       {"/divvy.v1.ParameterServerData/Steal", "/divvy.v1.ParameterServer/Pull", "/x"}) {
    RawStream stream(channel_, method);
    EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED) << method;
  }
}

TEST(DataServingTest, QueuesPollTheirOwnConnectionsUnlessTheOperatorWantsAnotherWay) {
  unsetenv("GRPC_POLL_STRATEGY");
  PrepareDataServing();
  EXPECT_STREQ(std::getenv("GRPC_POLL_STRATEGY"), "poll");
  setenv("GRPC_POLL_STRATEGY", "epoll1", 1);
  PrepareDataServing();
  EXPECT_STREQ(std::getenv("GRPC_POLL_STRATEGY"), "epoll1");
  unsetenv("GRPC_POLL_STRATEGY");
}

}  // namespace
}  // namespace divvy
