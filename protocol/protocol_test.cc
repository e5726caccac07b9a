#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/testing/sim_executor.h"
#include "gtest/gtest.h"
#include "protocol/backoff.h"
#include "protocol/error.h"
#include "protocol/horizon.h"
#include "protocol/registrar.h"
#include "protocol/request_check.h"
#include "protocol/resumable_stream.h"
#include "protocol/testing/fake_coordinator.h"

namespace divvy {
namespace {

// ---- errors -------------------------------------------------------------------------------------

TEST(ErrorTest, DetailsTravelWithTheStatus) {
  ErrorDetail detail{Reason::kMemoryLimit,  Role::kPs, -2, Epoch(0x123456789abcull),
                     EntryId(~uint64_t{0}), true};
  const absl::Status status = MakeError(detail, "wait");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "wait");
  const ErrorDetail back = DetailOf(status);
  EXPECT_EQ(back.reason, Reason::kMemoryLimit);
  EXPECT_EQ(back.role, Role::kPs);
  EXPECT_EQ(back.index, -2);
  EXPECT_EQ(back.epoch, detail.epoch);
  EXPECT_EQ(back.entry, detail.entry);
  EXPECT_TRUE(back.user);
}

TEST(ErrorTest, CodesSayWhatTheCallerShouldDo) {
  const std::map<Reason, absl::StatusCode> codes = {
      {Reason::kVersionMismatch, absl::StatusCode::kFailedPrecondition},
      {Reason::kWrongJob, absl::StatusCode::kFailedPrecondition},
      {Reason::kWrongIncarnation, absl::StatusCode::kAborted},
      {Reason::kStaleEpoch, absl::StatusCode::kFailedPrecondition},
      {Reason::kNotAttached, absl::StatusCode::kUnavailable},
      {Reason::kSecondCoordinator, absl::StatusCode::kFailedPrecondition},
      {Reason::kNotReady, absl::StatusCode::kUnavailable},
      {Reason::kInvalid, absl::StatusCode::kInvalidArgument},
      {Reason::kSessionFenced, absl::StatusCode::kAborted},
      {Reason::kStepClosed, absl::StatusCode::kAborted},
      {Reason::kUnknownShard, absl::StatusCode::kInternal},
      {Reason::kBadCommit, absl::StatusCode::kInternal},
      {Reason::kMemoryLimit, absl::StatusCode::kResourceExhausted},
      {Reason::kPsLost, absl::StatusCode::kUnavailable},
      {Reason::kStepGaveUp, absl::StatusCode::kUnavailable},
      {Reason::kBatchCancelled, absl::StatusCode::kCancelled},
      {Reason::kInputAborted, absl::StatusCode::kAborted},
      {Reason::kEndOfData, absl::StatusCode::kOutOfRange},
      {Reason::kJobOver, absl::StatusCode::kCancelled},
      {Reason::kDeviceLost, absl::StatusCode::kUnavailable}};
  for (const auto& [reason, code] : codes) {
    EXPECT_EQ(MakeError(reason, "").code(), code) << ReasonName(reason);
    EXPECT_EQ(ReasonOf(MakeError(reason, "")), reason);
  }
  EXPECT_EQ(ReasonName(Reason::kSessionFenced), "SESSION_FENCED");
}

TEST(RoleTest, IsReadFromTheNameThatItHas) {
  for (const Role role : kRoles) EXPECT_EQ(ParseRole(RoleName(role)), role);
  EXPECT_EQ(ParseRole("chief"), Role::kChief);
  EXPECT_EQ(ParseRole("evaluator"), Role::kEvaluator);
  for (const absl::string_view none : {"", "Chief", "coordinator", "ps 0"})
    EXPECT_EQ(ParseRole(none), std::nullopt) << none;
  EXPECT_EQ(TaskName(Role::kWorker, 1), "worker 1");
  EXPECT_EQ(TaskName(Role::kChief, 0), "chief");
}

TEST(ErrorTest, ADetailKnowsWhichRoleSaidItOrThatNobodyDid) {
  EXPECT_EQ(DetailOf(MakeError(Reason::kNotReady, "")).role, std::nullopt);
  for (const Role role : {Role::kChief, Role::kPs, Role::kWorker}) {
    ErrorDetail detail;
    detail.reason = Reason::kNotReady;
    detail.role = role;
    EXPECT_EQ(DetailOf(MakeError(detail, "")).role, role);
  }
}

TEST(ErrorTest, AnyPayloadIsDecodedOrIsNone) {
  constexpr char kUrl[] = "divvy/error";
  const auto reason_of = [&](const std::string& bytes) {
    absl::Status status = absl::AbortedError("");
    status.SetPayload(kUrl, absl::Cord(bytes));
    return ReasonOf(status);
  };
  EXPECT_EQ(reason_of(""), Reason::kNone);
  EXPECT_EQ(reason_of("\x09"), Reason::kSessionFenced) << "zeros at the end are left out";
  EXPECT_EQ(reason_of("\xff"), Reason::kNone) << "a reason of a newer version";
  EXPECT_EQ(reason_of(std::string("\x09\x09", 2)), Reason::kNone) << "no such job";
  EXPECT_EQ(reason_of(std::string(32, '\0')), Reason::kNone) << "too long";
  Random random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(random.Below(40), '\0');
    for (char& c : bytes) c = static_cast<char>(random.Next());
    reason_of(bytes);
  }
  EXPECT_EQ(ReasonOf(absl::AbortedError("no payload")), Reason::kNone);
  EXPECT_EQ(ReasonOf(absl::OkStatus()), Reason::kNone);
}

TEST(ErrorTest, WhatAStepFunctionReturnsIsMarkedAndNeverTransient) {
  const absl::Status marked = MarkUser(absl::UnavailableError("my database"));
  EXPECT_EQ(marked.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(marked.message(), "my database");
  EXPECT_TRUE(DetailOf(marked).user);
  EXPECT_FALSE(IsTransient(marked));
  EXPECT_TRUE(MarkUser(absl::OkStatus()).ok());
  EXPECT_EQ(ReasonOf(MarkUser(EndOfData("no more"))), Reason::kEndOfData) << "the reason stays";
}

TEST(ErrorTest, ADetailIsPrintedInWords) {
  EXPECT_EQ(MakeError(Reason::kNotReady, "starting").ToString(),
            "UNAVAILABLE: starting [divvy/error='NOT_READY']");
  EXPECT_EQ(MarkUser(absl::InternalError("mine")).ToString(),
            "INTERNAL: mine [divvy/error='error of a step function']");
}

TEST(ErrorTest, TransientIsWhatTheSameRequestMayOvercome) {
  EXPECT_TRUE(IsTransient(absl::UnavailableError("")));
  EXPECT_TRUE(IsTransient(absl::DeadlineExceededError("")));
  EXPECT_TRUE(IsTransient(absl::AbortedError("")));
  EXPECT_TRUE(IsTransient(MakeError(Reason::kNotReady, "")));
  EXPECT_FALSE(IsTransient(MakeError(Reason::kSessionFenced, "")));
  EXPECT_FALSE(IsTransient(MakeError(Reason::kMemoryLimit, "")));
  EXPECT_FALSE(IsTransient(absl::ResourceExhaustedError("")));
  EXPECT_FALSE(IsTransient(absl::InvalidArgumentError("")));
  EXPECT_FALSE(IsTransient(absl::OkStatus()));
}

TEST(ErrorTest, AProcessEndsWithTheCodeOfItsReason) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCodeOf(MakeError(Reason::kWrongJob, "")), 78);
  EXPECT_EQ(ExitCodeOf(MakeError(Reason::kNotAuthorized, "")), 77);
  EXPECT_EQ(ExitCodeOf(MakeError(Reason::kPsLost, "")), 138);
  EXPECT_EQ(ExitCodeOf(MakeError(Reason::kStaleEpoch, "")), 138);
  EXPECT_EQ(ExitCodeOf(MakeError(Reason::kMemoryLimit, "")), 74);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("")), 138);
  EXPECT_EQ(ExitCodeOf(MarkUser(absl::UnavailableError("a step's own"))), 1);
  EXPECT_EQ(ExitCodeOf(MarkUser(absl::DataLossError("a file that a step read"))), 65);
  EXPECT_EQ(ExitCodeOf(absl::DataLossError("")), 65);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("")), 66);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("")), 70);
  EXPECT_EQ(ExitCodeOf(absl::ResourceExhaustedError("")), 74);
  EXPECT_EQ(ExitCodeOf(absl::PermissionDeniedError("")), 77);
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("")), 1);
  EXPECT_EQ(ExitCodeOf(JobHasEnded(0, "")), 0);
  EXPECT_EQ(ExitCodeOf(JobHasEnded(65, "")), 65);
  EXPECT_EQ(ReasonOf(JobHasEnded(65, "")), Reason::kJobOver);
}

// ---- horizon ----------------------------------------------------------------------------------

TEST(HorizonTest, ClosesWhatIsBelowNextAndNotOpen) {
  const Horizon horizon{EntryId(10), {EntryId(3), EntryId(7)}, 8};
  for (uint64_t id : {0, 1, 4, 9}) EXPECT_TRUE(horizon.IsClosed(EntryId(id))) << id;
  for (uint64_t id : {3, 7, 10, 11}) EXPECT_FALSE(horizon.IsClosed(EntryId(id))) << id;
  EXPECT_FALSE(Horizon().IsClosed(EntryId(0)));
}

// ---- request check ------------------------------------------------------------------------------

TEST(RequestCheckTest, RefusesInTheOrderOfTheTable) {
  const ReceiverState mine{Role::kPs, 2, Incarnation(7), JobId(9), Epoch(5), Incarnation(3), true};
  const ReceiverState fresh{Role::kPs,      2,    Incarnation(7), JobId(0), Epoch(0),
                            Incarnation(0), false};
  ReceiverState busy = mine;
  busy.ready = false;
  const auto fence = [](uint64_t job, uint64_t epoch, uint64_t coordinator, uint64_t target) {
    return Fence{JobId(job), Epoch(epoch), Incarnation(coordinator), SessionId(0),
                 Incarnation(target)};
  };
  constexpr CallKind kAttach = CallKind::kAttach, kOther = CallKind::kOther;
  struct Case {
    const char* what;
    ReceiverState own;
    Fence fence;
    CallKind call;
    Reason reason;
  };
  const std::vector<Case> cases = {
      {"all right", mine, fence(9, 5, 3, 7), kOther, Reason::kNone},
      {"attach again", mine, fence(9, 5, 3, 7), kAttach, Reason::kNone},
      {"attach higher", mine, fence(9, 6, 4, 7), kAttach, Reason::kNone},
      {"attach to an unknown incarnation", mine, fence(9, 6, 4, 0), kAttach, Reason::kNone},
      {"attach while not ready", busy, fence(9, 6, 4, 7), kAttach, Reason::kNone},
      {"first attach", fresh, fence(9, 1, 4, 0), kAttach, Reason::kNone},
      {"another job", mine, fence(8, 5, 3, 7), kOther, Reason::kWrongJob},
      {"no job", mine, fence(0, 5, 3, 7), kAttach, Reason::kWrongJob},
      {"another job before all else", busy, fence(8, 1, 1, 1), kOther, Reason::kWrongJob},
      {"another incarnation", mine, fence(9, 5, 3, 6), kOther, Reason::kWrongIncarnation},
      {"another incarnation, attach", mine, fence(9, 6, 4, 6), kAttach, Reason::kWrongIncarnation},
      {"an unknown incarnation", mine, fence(9, 5, 3, 0), kOther, Reason::kWrongIncarnation},
      {"another incarnation before the epoch", busy, fence(9, 1, 1, 6), kOther,
       Reason::kWrongIncarnation},
      {"an old epoch", mine, fence(9, 4, 3, 7), kOther, Reason::kStaleEpoch},
      {"an old epoch, attach", mine, fence(9, 4, 3, 7), kAttach, Reason::kStaleEpoch},
      {"a higher epoch", mine, fence(9, 6, 3, 7), kOther, Reason::kNotAttached},
      {"a higher epoch before the state", busy, fence(9, 6, 3, 7), kOther, Reason::kNotAttached},
      {"never attached", fresh, fence(9, 0, 3, 7), kOther, Reason::kNotAttached},
      {"two coordinators", mine, fence(9, 5, 4, 7), kOther, Reason::kSecondCoordinator},
      {"two coordinators, attach", mine, fence(9, 5, 4, 7), kAttach, Reason::kSecondCoordinator},
      {"two coordinators before the state", busy, fence(9, 5, 4, 7), kOther,
       Reason::kSecondCoordinator},
      {"not ready", busy, fence(9, 5, 3, 7), kOther, Reason::kNotReady},
      {"attach without a job", fresh, fence(0, 1, 4, 0), kAttach, Reason::kInvalid},
      {"attach without an epoch", fresh, fence(9, 0, 4, 0), kAttach, Reason::kInvalid},
      {"attach without a coordinator", fresh, fence(9, 1, 0, 0), kAttach, Reason::kInvalid},
  };
  for (const Case& c : cases) {
    const absl::Status status = CheckRequest(c.fence, c.own, c.call);
    EXPECT_EQ(ReasonOf(status), c.reason) << c.what << ": " << status;
    EXPECT_EQ(status.ok(), c.reason == Reason::kNone) << c.what;
    if (status.ok()) continue;
    EXPECT_EQ(DetailOf(status).role, Role::kPs) << c.what;
    EXPECT_EQ(DetailOf(status).index, 2) << c.what;
    EXPECT_EQ(DetailOf(status).epoch, c.own.epoch) << c.what;
  }
}

TEST(RequestCheckTest, VersionsThatDoNotMeetAreRefusedNamingBoth) {
  ReceiverState own;
  own.role = Role::kPs;
  own.index = 2;
  EXPECT_TRUE(CheckProtocol(kOwnProtocol, own).ok());
  EXPECT_TRUE(CheckProtocol({0, 7}, own).ok());
  constexpr uint32_t kNext = kOwnProtocol.newest + 1;
  const absl::Status refused = CheckProtocol({kNext, kNext + 1}, own);
  EXPECT_EQ(ReasonOf(refused), Reason::kVersionMismatch);
  EXPECT_EQ(refused.message(),
            absl::StrCat("ps 2: it speaks protocol version ", kOwnProtocol.newest,
                         ", and the other side version ", kNext, " to ", kNext + 1,
                         ". Run the same release of Divvy in every task"));
}

TEST(RequestCheckTest, ATaskThatIsTakenForAnotherSaysSo) {
  ReceiverState own;
  own.role = Role::kWorker;
  own.index = 2;
  EXPECT_TRUE(CheckIndex(std::nullopt, own).ok());
  EXPECT_TRUE(CheckIndex(2, own).ok());
  const absl::Status refused = CheckIndex(5, own);
  EXPECT_EQ(ReasonOf(refused), Reason::kWrongIncarnation);
  EXPECT_EQ(refused.message(),
            "worker 2: the coordinator took it for worker 5: two tasks have one address, or a name "
            "leads to another machine. Look up the address of worker 5 in TF_CONFIG");
}

// ---- registration -------------------------------------------------------------------------------

class RegistrarTest : public testing::Test {
 protected:
  SimExecutor executor_{1};
  std::shared_ptr<FakeCoordinator> coordinator_ = std::make_shared<FakeCoordinator>(executor_);
  std::vector<int> over_;
  std::string why_;
  std::shared_ptr<Registrar> registrar_ = Registrar::Create(
      {}, coordinator_, executor_,
      [this](int code, const std::string& why) { over_.push_back(code), why_ = why; });
};

TEST_F(RegistrarTest, RepeatsEveryTwoSecondsUntilAttached) {
  registrar_->OnDetached();
  registrar_->OnDetached();
  executor_.RunFor(absl::Seconds(5));
  EXPECT_EQ(coordinator_->sent_at, (std::vector<double>{0, 2, 4}));
  registrar_->OnAttached();
  executor_.RunFor(absl::Seconds(20));
  EXPECT_EQ(coordinator_->sent_at.size(), 3u);
  registrar_->OnDetached();
  executor_.RunFor(absl::Seconds(3));
  EXPECT_EQ(coordinator_->sent_at, (std::vector<double>{0, 2, 4, 25, 27}));
}

TEST_F(RegistrarTest, AnswersAndTimersOfAnEarlierTimeAreVoid) {
  coordinator_->answers_after = absl::Seconds(1);
  registrar_->OnDetached();
  registrar_->OnAttached();
  registrar_->OnDetached();
  executor_.RunFor(absl::Seconds(2.5));
  EXPECT_EQ(coordinator_->sent_at, (std::vector<double>{0, 0}))
      << "only one chain of calls continues: the next call is at 3 s";
  executor_.RunFor(absl::Seconds(1));
  EXPECT_EQ(coordinator_->sent_at.size(), 3u);
}

TEST_F(RegistrarTest, BacksOffAfterFailures) {
  coordinator_->answer = absl::UnavailableError("nobody there");
  registrar_->OnDetached();
  executor_.RunFor(absl::Seconds(100));
  const std::vector<double>& at = coordinator_->sent_at;
  ASSERT_GE(at.size(), 10u);
  EXPECT_NEAR(at[1] - at[0], 0.1, 0.021);
  EXPECT_NEAR(at[4] - at[3], 0.8, 0.17);
  EXPECT_GE(at[9] - at[8], 7.9);
  coordinator_->answer = RegisterReply{};
  executor_.RunFor(absl::Seconds(20));
  EXPECT_NEAR(at[at.size() - 1] - at[at.size() - 2], 2, 0.001);
}

TEST_F(RegistrarTest, ToldThatTheJobIsOverItSaysSoOnceAndEnds) {
  coordinator_->answer = RegisterReply{JobId(1), Epoch(1), 138};
  registrar_->OnDetached();
  executor_.RunUntilIdle();
  registrar_->OnAttached();
  registrar_->OnDetached();
  executor_.RunUntilIdle();
  EXPECT_EQ(over_, std::vector<int>{138});
  EXPECT_EQ(coordinator_->sent_at.size(), 1u);
}

TEST_F(RegistrarTest, RefusedForEverItSaysWhyOnceAndEnds) {
  const std::pair<Reason, int> refusals[] = {{Reason::kWrongJob, 78},
                                             {Reason::kVersionMismatch, 78},
                                             {Reason::kClusterMismatch, 78},
                                             {Reason::kDuplicateTask, 78},
                                             {Reason::kNotAuthorized, 77}};
  for (const auto& [reason, code] : refusals) {
    over_.clear();
    coordinator_->sent_at.clear();
    coordinator_->answer = MakeError(reason, "this is why");
    registrar_ = Registrar::Create(
        {}, coordinator_, executor_,
        [this](int exit_code, const std::string& why) { over_.push_back(exit_code), why_ = why; });
    registrar_->OnDetached();
    executor_.RunFor(absl::Minutes(1));
    EXPECT_EQ(over_, std::vector<int>{code}) << ReasonName(reason);
    EXPECT_EQ(why_, "this is why");
    EXPECT_EQ(coordinator_->sent_at.size(), 1u) << ReasonName(reason);
  }
}

TEST_F(RegistrarTest, ARefusalForNowIsAskedAgain) {
  coordinator_->answer = MakeError(Reason::kNotReady, "being found out");
  registrar_->OnDetached();
  executor_.RunFor(absl::Seconds(1));
  EXPECT_GE(coordinator_->sent_at.size(), 3u);
  EXPECT_TRUE(over_.empty());
}

TEST_F(RegistrarTest, EndsWithItsLastHandle) {
  registrar_->OnDetached();
  registrar_.reset();
  executor_.RunUntilIdle();
  EXPECT_EQ(coordinator_->sent_at.size(), 1u);
}

TEST(BackoffTest, DoublesUpToTenSecondsWithAFifthOfJitter) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Backoff backoff(seed);
    for (double expected : {0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0}) {
      const double wait = absl::ToDoubleSeconds(backoff.Next());
      EXPECT_GE(wait, expected * 0.8 - 1e-9) << "seed " << seed;
      EXPECT_LE(wait, expected * 1.2 + 1e-9) << "seed " << seed;
    }
    EXPECT_EQ(backoff.tries(), 10);
    backoff.Reset();
    EXPECT_LE(backoff.Next(), absl::Milliseconds(120));
  }
}

// ---- streams ------------------------------------------------------------------------------------

using Stream = ResumableStream<int, int>;
using Frame = StreamFrame<int>;

TEST(ResumableStreamTest, SendsOnlyAfterTheOtherSidesResume) {
  Stream stream(SessionId(1));
  EXPECT_EQ(stream.Send(10), std::nullopt) << "not connected";
  const Frame resume = stream.Connect();
  EXPECT_TRUE(resume.resume);
  EXPECT_EQ(resume.number, 0u);
  EXPECT_EQ(stream.Send(11), std::nullopt);
  std::vector<Frame> resend;
  std::optional<int> message;
  ASSERT_TRUE(stream.Receive(Frame{SessionId(1), true, 0, 0, {}}, resend, message).ok());
  ASSERT_EQ(resend.size(), 2u);
  EXPECT_EQ(resend[0].message, 10);
  EXPECT_EQ(resend[1].number, 2u);
  EXPECT_EQ(stream.Send(12)->number, 3u);
}

TEST(ResumableStreamTest, DropsWhatItHasSeenAndRefusesGapsAndOtherSessions) {
  Stream stream(SessionId(1));
  stream.Connect();
  std::vector<Frame> resend;
  std::optional<int> message;
  ASSERT_TRUE(stream.Receive(Frame{SessionId(1), false, 0, 1, 5}, resend, message).ok());
  EXPECT_EQ(message, 5);
  ASSERT_TRUE(stream.Receive(Frame{SessionId(1), false, 0, 1, 5}, resend, message).ok());
  EXPECT_EQ(message, std::nullopt);
  EXPECT_EQ(stream.Receive(Frame{SessionId(1), false, 0, 3, 7}, resend, message).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(stream.Receive(Frame{SessionId(2), false, 0, 2, 6}, resend, message).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(stream.last_received(), 1u);
}

TEST(ResumableStreamTest, AcknowledgementsFreeWhatWasKept) {
  Stream stream(SessionId(1));
  std::vector<Frame> resend;
  std::optional<int> message;
  for (int i = 0; i < 5; ++i) stream.Send(i);
  ASSERT_TRUE(stream.Receive(Frame{SessionId(1), false, 3, 0, {}}, resend, message).ok());
  EXPECT_EQ(stream.unacknowledged(), 2u);
  EXPECT_EQ(stream.Acknowledgement().acknowledged, 0u);
}

TEST(ResumableStreamTest, WhatWasNeverSentCannotBeAcknowledged) {
  Stream stream(SessionId(1));
  std::vector<Frame> resend;
  std::optional<int> message;
  stream.Send(1);
  EXPECT_EQ(stream.Receive(Frame{SessionId(1), true, 2, 0, {}}, resend, message).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(stream.unacknowledged(), 1u);
}

// Two ends and a connection that breaks at any frame: each message that was sent is delivered once,
// in order.
TEST(ResumableStreamTest, LosesDoublesAndReordersNothingOverBrokenConnections) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Stream ends[2] = {Stream(SessionId(1)), Stream(SessionId(1))};
    // the frames in flight to each end
    std::deque<Frame> wire[2];
    std::vector<int> got[2];
    int sent[2] = {0, 0};
    const auto connect = [&] {
      for (int side : {0, 1}) wire[side].clear();
      for (int side : {0, 1})
        ends[side].Disconnect(), wire[1 - side].push_back(ends[side].Connect());
    };
    connect();
    for (int move = 0; move < 3000 && (move < 300 || got[0].size() + got[1].size() < 80); ++move) {
      const int side = static_cast<int>(random.Below(2));
      if (move < 300 && random.Chance(0.05)) {
        connect();
      } else if (sent[side] < 40 && random.Chance(0.4)) {
        if (auto frame = ends[side].Send(sent[side]++)) wire[1 - side].push_back(*frame);
      } else if (!wire[side].empty()) {
        const Frame frame = wire[side].front();
        wire[side].pop_front();
        std::vector<Frame> resend;
        std::optional<int> message;
        ASSERT_TRUE(ends[side].Receive(frame, resend, message).ok());
        for (const Frame& again : resend) wire[1 - side].push_back(again);
        if (message) got[side].push_back(*message);
      } else if (random.Chance(0.2)) {
        wire[1 - side].push_back(ends[side].Acknowledgement());
      }
    }
    for (int side : {0, 1}) {
      ASSERT_EQ(got[side].size(), 40u);
      for (int i = 0; i < 40; ++i) ASSERT_EQ(got[side][static_cast<size_t>(i)], i);
    }
  }
}

}  // namespace
}  // namespace divvy
