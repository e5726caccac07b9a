#include "worker/core/worker_core.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "base/testing/sim_executor.h"
#include "gtest/gtest.h"
#include "protocol/error.h"
#include "protocol/testing/fake_coordinator.h"
#include "worker/core/testing/fake_parameter_servers.h"
#include "worker/core/testing/scripted_step_runner.h"

namespace divvy {
namespace {

using script::Compute;
using script::Fail;
using script::IgnoreCancel;
using script::LoseInput;
using script::Move;
using script::Read;
using script::Return;
using script::RunOut;
using script::Stage;
using script::Take;
using StepState = WorkerSnapshot::Step;

Tensor Matrix(int64_t rows, int64_t width, const std::vector<float>& values) {
  return *Tensor::Copy<float>(Shape{rows, width}, values);
}
StagedWrite Assign(std::string variable, const std::vector<float>& values) {
  return {std::move(variable), WriteOp::kAssign, Matrix(values.size(), 1, values), std::nullopt,
          std::nullopt};
}
StagedWrite Gradient(std::string variable, const std::vector<float>& values,
                     std::optional<Optimizer> optimizer = {}) {
  return {std::move(variable), WriteOp::kGradient, Matrix(values.size(), 1, values), std::nullopt,
          std::move(optimizer)};
}

// The coordinator's end of the Steps stream. Frames are delivered at once and in order; `cut` loses
// the frames in flight.
class CoordinatorEnd {
 public:
  explicit CoordinatorEnd(SessionId session) : stream_(session) {}

  void Connect(WorkerCore& core) {
    connection_ = std::make_shared<Connection>(*this);
    listener_ = core.Accept(connection_);
    listener_->OnFrame(stream_.Connect());
  }
  void Break() {
    stream_.Disconnect();
    connection_->closed = true;
    listener_->OnBroken();
  }
  void Tell(ToWorker message) {
    if (auto frame = stream_.Send(std::move(message))) listener_->OnFrame(*std::move(frame));
  }
  void TellRaw(StreamFrame<ToWorker> frame) { listener_->OnFrame(std::move(frame)); }

  template <typename T>
  std::vector<T> Got() const {
    std::vector<T> found;
    for (const FromWorker& message : received) {
      if (const T* const one = std::get_if<T>(&message)) found.push_back(*one);
    }
    return found;
  }
  bool closed() const { return connection_->closed; }
  size_t unacknowledged() const { return stream_.unacknowledged(); }

  std::vector<FromWorker> received;
  bool deaf = false;  // frames of the worker are lost

 private:
  struct Connection : StreamConnection<FromWorker> {
    explicit Connection(CoordinatorEnd& end) : end(end) {}
    void Send(StreamFrame<FromWorker> frame) override {
      if (!closed && !end.deaf) end.OnFrame(std::move(frame));
    }
    void Close() override { closed = true; }
    CoordinatorEnd& end;
    bool closed = false;
  };
  void OnFrame(StreamFrame<FromWorker> frame) {
    std::vector<StreamFrame<ToWorker>> resend;
    std::optional<FromWorker> message;
    ASSERT_TRUE(stream_.Receive(std::move(frame), resend, message).ok());
    if (message) received.push_back(*std::move(message));
    for (auto& kept : resend) listener_->OnFrame(std::move(kept));
  }

  ResumableStream<ToWorker, FromWorker> stream_;
  std::shared_ptr<Connection> connection_;
  std::shared_ptr<StreamListener<ToWorker>> listener_;
};

class WorkerCoreTest : public ::testing::Test {
 protected:
  WorkerCoreTest()
      : runner_(executor_), inputs_(executor_), ps_(executor_, 2), coordinator_(executor_) {
    layout_ = Layout::Empty()
                  ->With(MakeVariable(1, "w", 4, 1, {0, 1}, Sgd{0.1}))
                  ->With(MakeVariable(2, "b", 1, 1, {1}));
    ps_.Make(*layout_);
    options_.index = 3;
    options_.incarnation = Incarnation(55);
    options_.address = "worker3";
    options_.replicas = 2;
    runner_.Define("empty", [](const StepCall&) { return std::vector<Move>(); });
    runner_.Define("assign", [](const StepCall&) {
      return std::vector<Move>{Stage{Assign("w", {1, 2, 3, 4})}};
    });
    runner_.Define("slow", [](const StepCall&) {
      return std::vector<Move>{Take{absl::Minutes(1)}, Stage{Assign("w", {1, 2, 3, 4})}};
    });
    Start();
  }

  void Start() {
    core_ = *WorkerCore::Start(options_, executor_, executor_.clock(), runner_, inputs_, ps_,
                               &coordinator_, [this](int code, const std::string& why) {
                                 exits_.push_back(code);
                                 exit_why_ = why;
                               });
  }

  WorkerAttachRequest AttachRequest(uint32_t session, uint64_t epoch = 1) {
    WorkerAttachRequest request;
    request.fence = {JobId(9), Epoch(epoch), Incarnation(1), SessionId(session), Incarnation(0)};
    request.view = ps_.view();
    request.layout = layout_;
    request.job_seed = 42;
    return request;
  }
  absl::StatusOr<WorkerAttachReply> TryAttach(WorkerAttachRequest request) {
    std::optional<absl::StatusOr<WorkerAttachReply>> answer;
    core_->Call(std::move(request),
                [&](absl::StatusOr<WorkerAttachReply> reply) { answer = std::move(reply); });
    return answer.value();
  }
  // Begins a session with its stream.
  void Attach(uint32_t session = 1, uint64_t epoch = 1) {
    ASSERT_TRUE(TryAttach(AttachRequest(session, epoch)).ok());
    end_ = std::make_unique<CoordinatorEnd>(SessionId(session));
    end_->Connect(*core_);
  }
  absl::Status Shutdown(int code, uint64_t epoch = 1) {
    absl::Status status = absl::UnknownError("no answer");
    ShutdownRequest request{{JobId(9), Epoch(epoch), Incarnation(1), SessionId(0), Incarnation(55)},
                            code};
    core_->Call(request, [&](absl::StatusOr<ShutdownReply> reply) { status = reply.status(); });
    return status;
  }

  static divvy::Dispatch Step(uint64_t id, std::string function, uint32_t attempt = 1) {
    divvy::Dispatch dispatch;
    dispatch.step = EntryId(id);
    dispatch.attempt = attempt;
    dispatch.ordinal = static_cast<int64_t>(id) - 1;
    dispatch.function = std::move(function);
    return dispatch;
  }
  void Dispatch(uint64_t id, std::string function) { end_->Tell(Step(id, std::move(function))); }
  void Run(absl::Duration time = absl::Seconds(1)) { executor_.RunFor(time); }
  std::vector<Report> Reports() { return end_->Got<Report>(); }
  // The only report.
  Report OnlyReport() {
    const std::vector<Report> reports = Reports();
    EXPECT_EQ(reports.size(), 1u);
    return reports.empty() ? Report() : reports[0];
  }
  size_t commits() { return ps_[0].commits().size() + ps_[1].commits().size(); }

  SimExecutor executor_{1};
  ScriptedStepRunner runner_;
  ScriptedInputOpener inputs_;
  FakeParameterServers ps_;
  FakeCoordinator coordinator_;
  std::shared_ptr<const Layout> layout_;
  WorkerOptions options_;
  std::vector<int> exits_;
  std::string exit_why_;
  std::shared_ptr<WorkerCore> core_;
  std::unique_ptr<CoordinatorEnd> end_;
};

TEST(WorkerOptionsTest, APipelineIsNoDeeperThanItsLimit) {
  WorkerOptions options;
  options.pulls.pipeline_depth = PullOptions::kMaxPipelineDepth + 1;
  EXPECT_TRUE(absl::StrContains(
      options.Validate().message(),
      absl::StrCat("--pipeline_depth is ", PullOptions::kMaxPipelineDepth + 1, ", wanted 1")))
      << options.Validate();
  options.pulls.pipeline_depth = PullOptions::kMaxPipelineDepth;
  EXPECT_FALSE(absl::StrContains(options.Validate().message(), "--pipeline_depth"));
}

TEST(WorkerOptionsTest, ReportsEveryProblemAtOnce) {
  WorkerOptions options;
  options.index = -1;
  options.replicas = 0;
  options.at_once_bytes = -1;
  options.pulls = {0};
  options.drain_timeout = absl::ZeroDuration();
  const absl::Status status = options.Validate();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const char* problem :
       {"index is -1", "incarnation is 0", "address is empty", "replicas is 0",
        "at_once_bytes is -1", "must be > 0", "--pipeline_depth is 0"}) {
    EXPECT_TRUE(absl::StrContains(status.message(), problem)) << status;
  }
}

// ---- DETACHED, Attach ---------------------------------------------------------------------------

TEST_F(WorkerCoreTest, RegistersEveryTwoSecondsUntilAttached) {
  Run(absl::Seconds(5));
  EXPECT_EQ(coordinator_.seen.size(), 3u);
  EXPECT_EQ(coordinator_.seen.back().role, Role::kWorker);
  EXPECT_EQ(coordinator_.seen.back().index, 3);
  EXPECT_EQ(coordinator_.seen.back().address, "worker3");
  EXPECT_EQ(coordinator_.seen.back().replicas, 2);
  Attach();
  for (int i = 0; i < 10; ++i) {
    Run();
    end_->Tell(Ping{});
  }
  EXPECT_EQ(coordinator_.seen.size(), 3u);
}

TEST_F(WorkerCoreTest, AnswersAttachWithWhatItIs) {
  const auto reply = TryAttach(AttachRequest(1));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->incarnation, Incarnation(55));
  EXPECT_EQ(reply->replicas, 2);
  EXPECT_EQ(reply->slots, 1);
  EXPECT_EQ(core_->Inspect().session, SessionId(1));
}

TEST_F(WorkerCoreTest, TheSameAttachAgainChangesNothing) {
  Attach();
  Dispatch(1, "slow");
  const uint64_t before = core_->StateHash();
  EXPECT_TRUE(TryAttach(AttachRequest(1)).ok());
  EXPECT_EQ(core_->StateHash(), before);
  EXPECT_EQ(core_->Inspect().live, EntryId(1));
}

TEST_F(WorkerCoreTest, AnOlderSessionOrEpochOrAnotherJobIsRefusedAndChangesNothing) {
  Attach(/*session=*/4, /*epoch=*/2);
  const uint64_t before = core_->StateHash();
  EXPECT_EQ(ReasonOf(TryAttach(AttachRequest(3, 2)).status()), Reason::kSessionFenced);
  EXPECT_EQ(ReasonOf(TryAttach(AttachRequest(9, 1)).status()), Reason::kStaleEpoch);
  WorkerAttachRequest foreign = AttachRequest(5, 2);
  foreign.fence.job = JobId(10);
  EXPECT_EQ(ReasonOf(TryAttach(foreign).status()), Reason::kWrongJob);
  WorkerAttachRequest second = AttachRequest(5, 2);
  second.fence.coordinator = Incarnation(2);
  EXPECT_EQ(ReasonOf(TryAttach(second).status()), Reason::kSecondCoordinator);
  WorkerAttachRequest elsewhere = AttachRequest(5, 2);
  elsewhere.fence.target = Incarnation(56);
  EXPECT_EQ(ReasonOf(TryAttach(elsewhere).status()), Reason::kWrongIncarnation);
  WorkerAttachRequest of_another = AttachRequest(5, 2);
  of_another.index = options_.index + 1;
  EXPECT_EQ(ReasonOf(TryAttach(of_another).status()), Reason::kWrongIncarnation);
  EXPECT_EQ(ReasonOf(TryAttach(AttachRequest(0, 2)).status()), Reason::kInvalid);
  EXPECT_EQ(core_->StateHash(), before);
}

TEST_F(WorkerCoreTest, ACoordinatorThatKnowsItByItsIndexIsAnswered) {
  WorkerAttachRequest request = AttachRequest(1);
  request.index = options_.index;
  EXPECT_TRUE(TryAttach(request).ok());
}

TEST_F(WorkerCoreTest, ANewSessionDropsTheStepsAndIteratorsOfTheOldOneWithoutAWord) {
  inputs_.Define("data", {});
  Attach();
  end_->Tell(MakeResource{ResourceId(8), "data", Nest(), 0, true});
  Dispatch(1, "slow");
  Dispatch(2, "assign");
  Run();
  const std::unique_ptr<CoordinatorEnd> old = std::move(end_);
  Attach(2);
  EXPECT_TRUE(old->closed());
  Run(absl::Minutes(2));
  EXPECT_TRUE(old->Got<Report>().empty());
  EXPECT_TRUE(Reports().empty());
  EXPECT_EQ(commits(), 0u);
  EXPECT_TRUE(inputs_.open().empty());
  Dispatch(3, "assign");
  Run();
  EXPECT_EQ(OnlyReport().step, EntryId(3));
  EXPECT_EQ(ps_[0].commits()[0].fence.session, SessionId(2));
}

TEST_F(WorkerCoreTest, AHigherEpochIsANewSessionWithWhateverNumber) {
  Attach(/*session=*/7, /*epoch=*/1);
  EXPECT_TRUE(TryAttach(AttachRequest(1, 2)).ok());
  EXPECT_EQ(core_->Inspect().epoch, Epoch(2));
  EXPECT_EQ(core_->Inspect().session, SessionId(1));
}

TEST_F(WorkerCoreTest, AJobThatIsOverEndsTheWorkerWithItsCode) {
  coordinator_.answer = RegisterReply{JobId(9), Epoch(1), 1};
  Run(absl::Seconds(5));
  EXPECT_EQ(exits_, std::vector<int>({1}));
}

TEST_F(WorkerCoreTest, NobodyAskingForAnHourIsExit138) {
  coordinator_.answer = absl::UnavailableError("nobody there");
  Run(absl::Minutes(59));
  EXPECT_TRUE(exits_.empty());
  Run(absl::Minutes(2));
  EXPECT_EQ(exits_, std::vector<int>({138}));
  EXPECT_GT(coordinator_.seen.size(), 100u);
}

// ---- traces -------------------------------------------------------------------------------------

// The script computes for 3 s after its read; the fake servers answer after a while of their own.
TEST_F(WorkerCoreTest, AReportHasTheTimesOfTheStepIfTheCoordinatorAsksForThem) {
  TraceLog traces;
  options_.traces = &traces;
  Start();
  runner_.Define("train", [](const StepCall&) {
    return std::vector<Move>{Read{{{"w", std::nullopt}}}, Take{absl::Seconds(3)},
                             Stage{Gradient("w", {1, 1, 1, 1}, Sgd{0.1})}};
  });
  Attach();
  divvy::Dispatch dispatch = Step(1, "train");
  dispatch.trace_over = absl::ZeroDuration();
  end_->Tell(dispatch);
  Run(absl::Minutes(1));
  const Report report = OnlyReport();
  ASSERT_EQ(report.outcome, StepOutcome::kOk) << report.error;
  ASSERT_TRUE(report.trace.has_value());
  const StepTrace& trace = *report.trace;
  EXPECT_GE(trace.computed - trace.began, absl::Seconds(3));
  EXPECT_GE(trace.committed, trace.computed);
  EXPECT_GE(trace.reported, trace.committed);
  EXPECT_EQ(trace.left_out, 0u);
  // Both servers have a part of the variable: two pulls, then two commits.
  ASSERT_EQ(trace.calls.size(), 4u);
  for (size_t i = 0; i < trace.calls.size(); ++i) {
    const StepTrace::Call& call = trace.calls[i];
    EXPECT_EQ(call.commit, i >= 2);
    EXPECT_EQ(call.retries, 0u);
    EXPECT_LE(call.since + call.took, trace.reported);
    EXPECT_GE(call.since, i >= 2 ? trace.committed : absl::ZeroDuration());
  }
  EXPECT_NE(trace.calls[2].ps, trace.calls[3].ps);
  ASSERT_EQ(traces.Last().size(), 1u);
  EXPECT_EQ(traces.Last()[0].step, EntryId(1));
  EXPECT_EQ(traces.Last()[0].worker, 3);
  EXPECT_EQ(traces.Last()[0].function, "train");
}

TEST_F(WorkerCoreTest, AFastStepTellsNoTimesUnlessItIsSampled) {
  Attach();
  divvy::Dispatch dispatch = Step(1, "slow");  // takes a minute
  dispatch.trace_over = absl::Minutes(2);
  end_->Tell(dispatch);
  Run(absl::Minutes(5));
  EXPECT_FALSE(OnlyReport().trace.has_value());
  dispatch = Step(2, "slow");
  dispatch.trace_over = absl::Seconds(59);
  end_->Tell(dispatch);
  end_->Tell(Step(3, "slow"));
  Run(absl::Minutes(2));
  // The worker begins no step of a silent coordinator.
  end_->Tell(Ping{});
  Run(absl::Minutes(2));
  ASSERT_EQ(Reports().size(), 3u);
  ASSERT_TRUE(Reports()[1].trace.has_value());
  EXPECT_FALSE(Reports()[2].trace.has_value());
}

// A step that waits behind another one says so, and is slow if it waits long.
TEST_F(WorkerCoreTest, TheWaitBehindOtherStepsIsPartOfTheTrace) {
  Attach();
  Dispatch(1, "slow");
  divvy::Dispatch dispatch = Step(2, "empty");
  dispatch.trace_over = absl::Seconds(59);
  end_->Tell(dispatch);
  Run(absl::Minutes(2));
  // The worker begins no step of a silent coordinator.
  end_->Tell(Ping{});
  Run(absl::Minutes(2));
  ASSERT_EQ(Reports().size(), 2u);
  ASSERT_TRUE(Reports()[1].trace.has_value());
  const StepTrace trace = *Reports()[1].trace;
  EXPECT_GE(trace.began, absl::Minutes(1));
  EXPECT_EQ(trace.committed, absl::ZeroDuration());
  EXPECT_TRUE(trace.calls.empty());
}

// ---- RUNNING ------------------------------------------------------------------------------------

TEST_F(WorkerCoreTest, AStepThatWritesNothingIsReportedWithoutAnyCommit) {
  runner_.Define("value", [](const StepCall&) {
    return std::vector<Move>{Return{[](const script::Reads&) { return Nest(int64_t{7}); }}};
  });
  Attach();
  Dispatch(1, "value");
  Run();
  const Report report = OnlyReport();
  EXPECT_EQ(report.outcome, StepOutcome::kOk);
  EXPECT_EQ(*report.value.tensor()->scalar<int64_t>(), 7);
  EXPECT_TRUE(report.participants.empty());
  EXPECT_EQ(commits(), 0u);
}

TEST_F(WorkerCoreTest, AStepIsCommittedToEachPsItTouchesAndThenReported) {
  Attach();
  Dispatch(5, "assign");
  Run();
  const Report report = OnlyReport();
  EXPECT_EQ(report.step, EntryId(5));
  EXPECT_EQ(report.outcome, StepOutcome::kOk) << report.error;
  EXPECT_EQ(report.participants, std::vector<int>({0, 1}));
  for (int ps : {0, 1}) {
    ASSERT_EQ(ps_[ps].commits().size(), 1u);
    const CommitRequest commit = ps_[ps].commits()[0];
    EXPECT_EQ(commit.entry, EntryId(5));
    EXPECT_EQ(commit.participants, 2);
    EXPECT_EQ(commit.fence.session, SessionId(1));
    EXPECT_EQ(commit.fence.target, Incarnation(100 + ps));
  }
}

TEST_F(WorkerCoreTest, StepsRunOneAfterAnotherAndSeeTheWritesOfThoseBefore) {
  runner_.Define("read", [](const StepCall&) {
    return std::vector<Move>{Read{{{"w", std::nullopt}}},
                             Return{[](const script::Reads& reads) { return Nest(reads[0][0]); }}};
  });
  Attach();
  Dispatch(1, "slow");
  Dispatch(2, "read");
  Run();
  EXPECT_EQ(runner_.started(), 1);
  EXPECT_EQ(core_->Inspect().queued, std::vector<EntryId>({EntryId(2)}));
  Run(absl::Minutes(2));
  // The coordinator had been silent, and the worker begins no step of a silent coordinator.
  end_->Tell(Ping{});
  Run();
  ASSERT_EQ(Reports().size(), 2u);
  EXPECT_TRUE(BitwiseEqual(*Reports()[1].value.tensor(), Matrix(4, 1, {1, 2, 3, 4})));
}

TEST_F(WorkerCoreTest, AStepIsGivenItsCallWithASeedThatIsTheSameOnEveryAttempt) {
  std::vector<StepCall> calls;
  runner_.Define("look", [&](const StepCall& call) {
    calls.push_back(call);
    return std::vector<Move>();
  });
  Attach();
  divvy::Dispatch dispatch = Step(4, "look");
  dispatch.inputs = {{ResourceId(2), 64, 2}};
  dispatch.args = Nest("argument");
  end_->Tell(dispatch);
  Run();
  Attach(2);
  dispatch.attempt = 2;
  end_->Tell(dispatch);
  end_->Tell(Step(5, "look"));
  Run();
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[0].ordinal, 3);
  EXPECT_EQ(*calls[0].args.text(), "argument");
  EXPECT_EQ(calls[0].inputs, dispatch.inputs);
  EXPECT_EQ(calls[1].attempt, 2u);
  EXPECT_EQ(calls[0].seed, calls[1].seed);
  EXPECT_NE(calls[0].seed, calls[2].seed);
}

TEST_F(WorkerCoreTest, AFailedFunctionIsTheUsersErrorAndLeavesNoTrace) {
  runner_.Define("fail", [](const StepCall&) {
    return std::vector<Move>{Stage{Assign("w", {1, 2, 3, 4})},
                             Fail{absl::UnavailableError("mine")}};
  });
  Attach();
  Dispatch(1, "fail");
  Dispatch(2, "empty");
  Run();
  ASSERT_EQ(Reports().size(), 2u) << "the worker continues";
  EXPECT_EQ(Reports()[0].outcome, StepOutcome::kFailed);
  EXPECT_EQ(Reports()[0].error.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(DetailOf(Reports()[0].error).user);
  EXPECT_EQ(commits(), 0u);
}

TEST_F(WorkerCoreTest, TheEndOfDataAndALostInputHaveOutcomesOfTheirOwn) {
  runner_.Define("end", [](const StepCall&) { return std::vector<Move>{RunOut{}}; });
  runner_.Define("lost", [](const StepCall&) { return std::vector<Move>{LoseInput{}}; });
  Attach();
  Dispatch(1, "end");
  Dispatch(2, "lost");
  Run();
  ASSERT_EQ(Reports().size(), 2u);
  EXPECT_EQ(Reports()[0].outcome, StepOutcome::kEndOfData);
  EXPECT_EQ(Reports()[1].outcome, StepOutcome::kSystem);
  EXPECT_FALSE(DetailOf(Reports()[1].error).user);
}

TEST_F(WorkerCoreTest, AnUnknownFunctionFails) {
  Attach();
  Dispatch(1, "no such function");
  Run();
  EXPECT_EQ(OnlyReport().outcome, StepOutcome::kFailed);
  EXPECT_EQ(OnlyReport().error.code(), absl::StatusCode::kNotFound);
}

TEST_F(WorkerCoreTest, AValueThatIsTooLargeOrBrokenIsTheStepsErrorBeforeAnythingIsCommitted) {
  options_.max_value_bytes = 10;
  Start();
  runner_.Define("large", [](const StepCall&) {
    return std::vector<Move>{Stage{Assign("w", {1, 2, 3, 4})}, Return{[](const script::Reads&) {
                               return Nest(std::string(11, 'x'));
                             }}};
  });
  runner_.Define("broken", [](const StepCall&) {
    return std::vector<Move>{Return{[](const script::Reads&) { return Nest()["key"]; }}};
  });
  Attach();
  Dispatch(1, "large");
  Dispatch(2, "broken");
  Run();
  ASSERT_EQ(Reports().size(), 2u);
  EXPECT_EQ(Reports()[0].outcome, StepOutcome::kFailed);
  EXPECT_TRUE(absl::StrContains(Reports()[0].error.message(), "43 bytes")) << Reports()[0].error;
  EXPECT_EQ(Reports()[1].outcome, StepOutcome::kFailed);
  EXPECT_EQ(commits(), 0u);
}

TEST_F(WorkerCoreTest, AReadOnlyStepReadsAndMayNotWrite) {
  Attach();
  divvy::Dispatch dispatch = Step(1, "assign");
  dispatch.ordinal.reset();
  end_->Tell(dispatch);
  Run();
  EXPECT_EQ(OnlyReport().outcome, StepOutcome::kFailed);
  EXPECT_EQ(OnlyReport().error.code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(WorkerCoreTest, WhatAFunctionReadWholeTheLastTimeIsPulledBeforeItAsks) {
  bool read = true;
  runner_.Define("train", [&](const StepCall&) {
    return read ? std::vector<Move>{Take{absl::Seconds(10)}, Read{{{"w", std::nullopt}}}}
                : std::vector<Move>{Take{absl::Seconds(10)}};
  });
  Attach();
  Dispatch(1, "train");
  Run(absl::Seconds(4));
  EXPECT_EQ(ps_[0].pulls().size(), 0u) << "the read set is not known yet";
  end_->Tell(Ping{});
  Run(absl::Seconds(8));
  EXPECT_EQ(ps_[0].pulls().size(), 1u);
  Dispatch(2, "train");
  Run();
  EXPECT_EQ(ps_[0].pulls().size(), 2u) << "at the start";
  Run(absl::Seconds(10));
  EXPECT_EQ(ps_[0].pulls().size(), 2u) << "and not again";
  read = false;
  Dispatch(3, "train");
  Run(absl::Seconds(11));
  Dispatch(4, "train");
  Run(absl::Seconds(11));
  EXPECT_EQ(ps_[0].pulls().size(), 3u) << "variables that were not read are dropped";
  EXPECT_EQ(Reports().size(), 4u);
}

// ---- prefetched pulls ---------------------------------------------------------------------------

// Every step reads w, takes ten seconds, and adds a given value to b. The read set of "train" is
// known.
class PipelineTest : public WorkerCoreTest {
 protected:
  void StartWithDepth(int depth) {
    options_.pulls.pipeline_depth = depth;
    Start();
    for (const char* function : {"train", "look"}) {
      runner_.Define(function, [this](const StepCall& call) {
        std::vector<Move> moves = {Take{absl::Seconds(10)}, Read{{{"w", std::nullopt}}}};
        if (call.ordinal) moves.push_back(Stage{*next_write_});
        moves.push_back(Return{[](const script::Reads& reads) { return Nest(reads[0][0]); }});
        return moves;
      });
    }
    Attach();
    Dispatch(1, "train");
    RunAwake(11);
    ASSERT_EQ(Reports().size(), 1u);
    known_ = ps_[0].pulls().size();
  }
  void RunAwake(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      Run();
      end_->Tell(Ping{});
    }
  }
  size_t pulls() { return ps_[0].pulls().size() - known_; }
  // Ps 0 refuses the next pulls.
  void RefusePulls(size_t next) {
    ps_[0].RefusePulls(std::vector<absl::Status>(next, MakeError(Reason::kNotReady, "loading")));
  }
  static StagedWrite AddToW() {
    return {"w", WriteOp::kAdd, Matrix(4, 1, {1, 1, 1, 1}), std::nullopt, std::nullopt};
  }
  std::vector<EntryId> ahead() const { return core_->Inspect().ahead; }
  static std::vector<EntryId> Ids(std::vector<uint64_t> values) {
    return {values.begin(), values.end()};
  }

  std::optional<StagedWrite> next_write_ = Assign("b", {1});
  size_t known_ = 0;  // pulls of ps 0 before the test began
};

TEST_F(PipelineTest, WithDepthOneAPullLeavesWhenItsStepBegins) {
  StartWithDepth(1);
  Dispatch(2, "train");
  Dispatch(3, "train");
  RunAwake(9);
  EXPECT_EQ(pulls(), 1u);
  EXPECT_EQ(ahead(), Ids({}));
}

TEST_F(PipelineTest, ThePullOfTheNextStepLeavesWhileTheOneBeforeComputesAndIsItsOnlyOne) {
  StartWithDepth(2);
  Dispatch(2, "train");
  Dispatch(3, "train");
  Dispatch(4, "train");
  Run();
  EXPECT_EQ(pulls(), 2u);
  EXPECT_EQ(ahead(), Ids({3}));
  // A write of another worker meanwhile is seen only by the step after the next one.
  ps_[0].Set({VariableId(1), 0, 0}, Matrix(2, 1, {7, 7}));
  RunAwake(34);
  ASSERT_EQ(Reports().size(), 4u);
  EXPECT_EQ(Reports()[2].value.tensor()->data_as<float>()[0], 0);
  EXPECT_EQ(Reports()[3].value.tensor()->data_as<float>()[0], 7);
  EXPECT_EQ(pulls(), 3u);
}

// Steps that train on leased data, one position each.
class DataAheadTest : public PipelineTest {
 protected:
  void Dispatch(uint64_t id, std::string function = "train") {
    divvy::Dispatch dispatch = Step(id, std::move(function));
    dispatch.inputs = {{ResourceId(8), static_cast<int64_t>(id), 1}};
    if (dispatch.function == "look") dispatch.ordinal.reset();
    end_->Tell(dispatch);
  }
  using Positions = std::vector<int64_t>;
};

TEST_F(DataAheadTest, TheDataOfTheNextStepIsAskedForWhileTheOneBeforeComputesUntilItIsTaken) {
  StartWithDepth(2);
  for (const uint64_t id : {2, 3, 4}) Dispatch(id);
  EXPECT_EQ(inputs_.ahead(), Positions({3}));
  RunAwake(11);
  EXPECT_EQ(inputs_.ahead(), Positions({3, 4})) << "step 3 runs, and may not have taken it yet";
  RunAwake(22);
  ASSERT_EQ(Reports().size(), 4u);
  EXPECT_EQ(inputs_.ahead(), Positions({}));
}

TEST_F(DataAheadTest, WithDepthOneAndForReadOnlyStepsDataIsReadWhenTheStepBegins) {
  StartWithDepth(1);
  Dispatch(2);
  Dispatch(3);
  EXPECT_EQ(inputs_.ahead(), Positions({}));
  StartWithDepth(3);
  Dispatch(2);
  Dispatch(3, "look");
  EXPECT_EQ(inputs_.ahead(), Positions({}));
}

TEST_F(DataAheadTest, TheDataOfAStepThatIsCancelledIsForgotten) {
  StartWithDepth(3);
  for (const uint64_t id : {2, 3, 4}) Dispatch(id);
  EXPECT_EQ(inputs_.ahead(), Positions({3, 4}));
  end_->Tell(CancelSteps{{EntryId(3)}});
  EXPECT_EQ(inputs_.ahead(), Positions({4}));
  EXPECT_TRUE(Shutdown(0).ok());
  EXPECT_EQ(inputs_.ahead(), Positions({}));
}

TEST_F(DataAheadTest, WhateverDropsPullsAheadTheDataStaysTheSteps) {
  StartWithDepth(2);
  Dispatch(2);
  Dispatch(3);
  end_->Tell(LayoutUpdate{layout_->With(MakeVariable(3, "new", 1, 1, {0}))});
  EXPECT_EQ(ahead(), Ids({})) << "pulls are dropped";
  EXPECT_EQ(inputs_.ahead(), Positions({3}));
}

TEST_F(PipelineTest, WithDepthThreeTwoStepsArePulledAhead) {
  StartWithDepth(3);
  for (const uint64_t id : {2, 3, 4, 5}) Dispatch(id, "train");
  Run();
  EXPECT_EQ(ahead(), Ids({3, 4}));
  RunAwake(44);
  EXPECT_EQ(Reports().size(), 5u);
  EXPECT_EQ(pulls(), 4u);
}

TEST_F(PipelineTest, OfTheStepThatBeginsNextAloneTheValuesAreCopiedAhead) {
  StartWithDepth(3);
  for (const uint64_t id : {2, 3, 4}) Dispatch(id, "train");
  Run();
  EXPECT_EQ(ahead(), Ids({3, 4}));
  EXPECT_EQ(runner_.copied_ahead(), std::vector<std::string>({"train: w"}))
      << "the values of step 3";
  RunAwake(11);
  EXPECT_EQ(runner_.copied_ahead().size(), 2u) << "step 3 has begun, so step 4's values are copied";
  RunAwake(22);
  ASSERT_EQ(Reports().size(), 4u);
  EXPECT_EQ(runner_.copied_ahead().size(), 2u);
}

TEST_F(PipelineTest, ValuesThatArePulledAnewAreCopiedAnew) {
  StartWithDepth(2);
  Dispatch(2, "train");
  Dispatch(3, "train");
  Run();
  EXPECT_EQ(runner_.copied_ahead().size(), 1u);
  end_->Tell(LayoutUpdate{layout_->With(MakeVariable(3, "new", 1, 1, {0}))});
  EXPECT_EQ(ahead(), Ids({}));
  RunAwake(24);
  ASSERT_EQ(Reports().size(), 3u);
  Dispatch(4, "train");
  Dispatch(5, "train");
  Run();
  EXPECT_EQ(ahead(), Ids({5}));
  EXPECT_EQ(runner_.copied_ahead().size(), 2u);
}

TEST_F(PipelineTest, StalenessCountsTheCommitsOfTheWorkersOwnStepsThatAPullHasMissed) {
  next_write_ = AddToW();
  StartWithDepth(2);
  Dispatch(2, "train");
  Dispatch(3, "train");
  RunAwake(25);
  ASSERT_EQ(Reports().size(), 3u);
  EXPECT_EQ(Reports()[1].staleness, 0u);
  EXPECT_EQ(Reports()[2].staleness, 1u);
}

TEST_F(PipelineTest, AReadOnlyStepIsNotPulledAheadAndSeesWhatWasWrittenBeforeIt) {
  StartWithDepth(3);
  divvy::Dispatch look = Step(2, "look");
  look.ordinal.reset();
  end_->Tell(look);
  RunAwake(12);  // now its read set is known
  next_write_ = Assign("w", {5, 6, 7, 8});
  Dispatch(3, "train");
  look.step = EntryId(4);
  end_->Tell(look);
  Dispatch(5, "train");
  Run();
  EXPECT_EQ(ahead(), Ids({5}));
  RunAwake(25);
  ASSERT_EQ(Reports().size(), 4u);
  EXPECT_EQ(Reports()[3].value.tensor()->data_as<float>()[0], 5);
}

TEST_F(PipelineTest, WhatAStepAssignsIsNeverMissedByTheNext) {
  StartWithDepth(3);
  next_write_ = Assign("w", {5, 6, 7, 8});  // for the first time
  Dispatch(2, "train");
  Dispatch(3, "train");
  Dispatch(4, "train");
  Run();
  EXPECT_EQ(ahead(), Ids({3, 4}));
  RunAwake(10);
  EXPECT_EQ(ahead(), Ids({})) << "w is now known to be assigned each time";
  RunAwake(22);
  ASSERT_EQ(Reports().size(), 4u);
  EXPECT_EQ(Reports()[2].value.tensor()->data_as<float>()[0], 5);
  EXPECT_EQ(Reports()[2].staleness, 0u);
  EXPECT_EQ(Reports()[3].staleness, 0u);
}

TEST_F(PipelineTest, AVariableThatWasAssignedOnceIsPulledWhenItsStepBegins) {
  StartWithDepth(2);
  next_write_ = Assign("w", {5, 6, 7, 8});
  Dispatch(2, "train");
  RunAwake(11);
  next_write_ = AddToW();
  Dispatch(3, "train");
  RunAwake(11);  // a run that did not assign
  Dispatch(4, "train");
  Dispatch(5, "train");
  Run();
  EXPECT_EQ(ahead(), Ids({}));
  end_->Tell(LayoutUpdate{layout_->With(MakeVariable(3, "new", 1, 1, {0}))});
  RunAwake(22);
  Dispatch(6, "train");
  Dispatch(7, "train");
  Run();
  EXPECT_EQ(ahead(), Ids({7})) << "under another layout the read set is learnt anew";
}

TEST_F(PipelineTest, AFirstAssignFromAValueThatHasMissedAWriteOfItsOwnWorkerIsRunAgain) {
  StartWithDepth(2);
  next_write_ = AddToW();
  Dispatch(2, "train");
  Dispatch(3, "train");
  Run();
  EXPECT_EQ(ahead(), Ids({3}));
  next_write_ = Assign("w", {5, 6, 7, 8});
  RunAwake(21);
  ASSERT_EQ(Reports().size(), 3u);
  EXPECT_EQ(Reports()[2].outcome, StepOutcome::kSystem);
  EXPECT_TRUE(
      absl::StrContains(Reports()[2].error.message(), "assigned variable \"w\" for the first time"))
      << Reports()[2].error;
  EXPECT_EQ(ps_[0].applied(), std::set<EntryId>({EntryId(2)}))
      << "only step 2's add; step 1 wrote only to ps 1";
  ps_[0].Set({VariableId(1), 0, 0}, Matrix(2, 1, {7, 7}));
  end_->Tell(Step(3, "train", /*attempt=*/2));
  RunAwake(11);
  ASSERT_EQ(Reports().size(), 4u);
  EXPECT_EQ(Reports()[3].outcome, StepOutcome::kOk);
  EXPECT_EQ(Reports()[3].value.tensor()->data_as<float>()[0], 7) << "w is pulled again";
}

TEST_F(PipelineTest, AFirstAssignFromAValueThatHasMissedNothingStands) {
  StartWithDepth(2);
  Dispatch(2, "train");  // writes to b
  Dispatch(3, "train");
  Run();
  EXPECT_EQ(ahead(), Ids({3}));
  next_write_ = Assign("w", {5, 6, 7, 8});
  RunAwake(21);
  ASSERT_EQ(Reports().size(), 3u);
  EXPECT_EQ(Reports()[2].outcome, StepOutcome::kOk);
}

TEST_F(PipelineTest, WhatIsAssignedIsPulledAtTheStartAndTheRestAhead) {
  next_write_ = AddToW();
  StartWithDepth(2);
  ps_[1].Set({VariableId(2), 0, 0}, Matrix(1, 1, {1}));
  runner_.Define("both", [](const StepCall&) {
    return std::vector<Move>{
        Take{absl::Seconds(10)}, Read{{{"w", std::nullopt}, {"b", std::nullopt}}},
        Stage{Assign("w", {5, 6, 7, 8})}, Return{[](const script::Reads& reads) {
          return Nest(Nest::List{Nest(reads[0][0]), Nest(reads[0][1])});
        }}};
  });
  Dispatch(2, "both");
  RunAwake(11);
  Dispatch(3, "both");
  Dispatch(4, "both");
  Run();
  EXPECT_EQ(ahead(), Ids({4}));
  ASSERT_EQ(ps_[1].pulls().back().parts.size(), 1u);
  EXPECT_EQ(ps_[1].pulls().back().parts[0].shard.variable, VariableId(2));
  ps_[0].Set({VariableId(1), 0, 0}, Matrix(2, 1, {9, 9}));  // while step 3 computes
  ps_[1].Set({VariableId(2), 0, 0}, Matrix(1, 1, {9}));
  RunAwake(21);
  ASSERT_EQ(Reports().size(), 4u);
  EXPECT_EQ(Reports()[3].value[0].tensor()->data_as<float>()[0], 5)
      << "the value of w that step 3 assigned";
  EXPECT_EQ(Reports()[3].value[1].tensor()->data_as<float>()[0], 1)
      << "the value of b at the begin of step 3";
}

TEST_F(PipelineTest, AReadByIdOfAVariableThatWasPulledAheadSeesTheSameValue) {
  StartWithDepth(2);
  bool by_id = false;
  runner_.Define("ids", [&](const StepCall&) {
    const VariableRead rows{"w", Tensor::Vector<int64_t>({3, 0, 3})};
    std::vector<Move> moves = {Take{absl::Seconds(10)}};
    if (by_id)
      moves.push_back(Stage{{"w", WriteOp::kScatterAdd, Matrix(1, 1, {100}),
                             Tensor::Vector<int64_t>({0}), std::nullopt}});
    moves.push_back(by_id ? Read{{rows}} : Read{{{"w", std::nullopt}}});
    moves.push_back(Return{[](const script::Reads& reads) { return Nest(reads[0][0]); }});
    return moves;
  });
  ps_[0].Set({VariableId(1), 0, 0}, Matrix(2, 1, {1, 2}));
  ps_[1].Set({VariableId(1), 0, 1}, Matrix(2, 1, {3, 4}));
  for (const uint64_t id : {2, 3, 4}) Dispatch(id, "ids");
  RunAwake(11);
  EXPECT_EQ(ahead(), Ids({4}));
  const size_t before = pulls();
  ps_[0].Set({VariableId(1), 0, 0}, Matrix(2, 1, {7, 7}));
  by_id = true;
  RunAwake(22);
  ASSERT_EQ(Reports().size(), 4u);
  const Tensor rows = *Reports()[3].value.tensor();
  EXPECT_EQ(rows.shape(), (Shape{3, 1}));
  EXPECT_EQ(rows.data_as<float>()[0], 4);
  EXPECT_EQ(rows.data_as<float>()[1], 101) << "the old value with the step's own addition";
  EXPECT_EQ(rows.data_as<float>()[2], 4);
  EXPECT_EQ(pulls(), before);
}

TEST_F(PipelineTest, ACancelledStepsPullIsForgottenAndTheNextInLineTakesItsPlace) {
  StartWithDepth(2);
  ps_[0].Hold();
  Dispatch(2, "train");
  Dispatch(3, "train");
  Dispatch(4, "train");
  end_->Tell(CancelSteps{{EntryId(3)}});
  EXPECT_EQ(ahead(), Ids({4}));
  ps_[0].Release();
  RunAwake(25);
  ASSERT_EQ(Reports().size(), 4u);
  EXPECT_EQ(Reports()[1].outcome, StepOutcome::kCancelled);
  EXPECT_EQ(Reports()[3].outcome, StepOutcome::kOk);
}

TEST_F(PipelineTest, AChangeOfTheLayoutMakesTheStepPullAnew) {
  StartWithDepth(2);
  Dispatch(2, "train");
  Dispatch(3, "train");
  Run();
  EXPECT_EQ(ahead(), Ids({3}));
  end_->Tell(LayoutUpdate{layout_->With(MakeVariable(3, "new", 1, 1, {0}))});
  EXPECT_EQ(ahead(), Ids({})) << "the read set under the new layout is not known";
  ps_[0].Set({VariableId(1), 0, 0}, Matrix(2, 1, {7, 7}));
  RunAwake(25);
  ASSERT_EQ(Reports().size(), 3u);
  EXPECT_EQ(Reports()[2].value.tensor()->data_as<float>()[0], 7);
}

TEST_F(PipelineTest, ANewSessionPullsAnewAndAnEarlyPullOfTheOldOneIsNotSentAgain) {
  StartWithDepth(2);
  Dispatch(2, "train");
  Run();
  RefusePulls(1000);
  Dispatch(3, "train");
  RunAwake(4);
  EXPECT_EQ(ahead(), Ids({3}));
  EXPECT_GT(pulls(), 2u) << "the pull is sent repeatedly";
  Attach(2);
  EXPECT_EQ(ahead(), Ids({}));
  const size_t before = pulls();
  RunAwake(12);  // the step of the old session ends
  EXPECT_EQ(pulls(), before);
  RefusePulls(0);
  ps_[0].Set({VariableId(1), 0, 0}, Matrix(2, 1, {7, 7}));
  Dispatch(3, "train");
  RunAwake(12);
  EXPECT_EQ(OnlyReport().value.tensor()->data_as<float>()[0], 7);
}

TEST_F(PipelineTest, ASilenceOfTheCoordinatorMakesTheStepPullAnew) {
  StartWithDepth(2);
  Dispatch(2, "train");
  Dispatch(3, "train");
  Run(absl::Seconds(20));  // nothing is begun meanwhile
  EXPECT_EQ(ahead(), Ids({3}));
  ps_[0].Set({VariableId(1), 0, 0}, Matrix(2, 1, {7, 7}));
  end_->Tell(Ping{});
  RunAwake(12);
  ASSERT_EQ(Reports().size(), 3u);
  EXPECT_EQ(Reports()[2].value.tensor()->data_as<float>()[0], 7);
}

TEST_F(PipelineTest, AHeldWorkerMayPullAhead) {
  StartWithDepth(2);
  end_->Tell(Hold{1});
  Dispatch(2, "train");
  Dispatch(3, "train");
  RunAwake(11);
  EXPECT_EQ(core_->Inspect().step, StepState::kHeld);
  EXPECT_EQ(ahead(), Ids({3}));
}

TEST_F(PipelineTest, AShutdownThatWaitsForACommitSendsNoEarlyPullAgain) {
  StartWithDepth(2);
  Dispatch(2, "train");
  Run();
  RefusePulls(1000);
  ps_[1].Hold();  // step 2 writes to b, which is on ps 1
  Dispatch(3, "train");
  RunAwake(11);
  EXPECT_EQ(core_->Inspect().step, StepState::kCommitting);
  EXPECT_EQ(ahead(), Ids({3}));
  EXPECT_GT(pulls(), 2u) << "the pull is sent repeatedly";
  EXPECT_TRUE(Shutdown(0).ok());
  const size_t before = pulls();
  Run(absl::Seconds(9));
  EXPECT_TRUE(exits_.empty());
  EXPECT_EQ(pulls(), before);
}

// ---- a step while the previous step commits -----------------------------------------------------

// Steps take 10 seconds, read w and write to b. Ps 1 has b, and answers commits when it is
// released.
class BesideCommitTest : public PipelineTest {
 protected:
  static StagedWrite AddToB() {
    return {"b", WriteOp::kAdd, Matrix(1, 1, {1}), std::nullopt, std::nullopt};
  }
  // Step 2 commits, and `next` further steps are queued.
  void CommitStep2(int depth, int next = 1) {
    next_write_ = AddToB();
    StartWithDepth(depth);
    BeginCommitOf2(next);
  }
  void BeginCommitOf2(int next = 1) {
    ps_[1].HoldCommits();
    Dispatch(2, "train");
    for (int i = 0; i < next; ++i) Dispatch(3 + i, "train");
    RunAwake(11);
    ASSERT_EQ(core_->Inspect().committing, EntryId(2));
  }
  void LetCommit() {
    ps_[1].Release();
    Run(absl::Milliseconds(10));
  }
  std::optional<EntryId> live() const { return core_->Inspect().live; }
  std::vector<EntryId> Reported() {
    std::vector<EntryId> steps;
    for (const Report& report : Reports()) steps.push_back(report.step);
    return steps;
  }
};

TEST_F(BesideCommitTest, WithDepthOneTheNextStepBeginsWhenTheCommitIsAnswered) {
  CommitStep2(1);
  EXPECT_EQ(live(), EntryId(2));
  LetCommit();
  EXPECT_EQ(live(), EntryId(3));
}

TEST_F(BesideCommitTest, WithDepthTwoTheNextStepRunsMeanwhileAndCommitsBehindIt) {
  CommitStep2(2);
  EXPECT_EQ(live(), EntryId(3));
  EXPECT_EQ(core_->Inspect().step, StepState::kRunning);
  RunAwake(20);
  EXPECT_EQ(core_->Inspect().step, StepState::kBehind);
  EXPECT_EQ(Reported(), Ids({1})) << "a step is reported after the steps before it";
  EXPECT_EQ(ps_[1].commits().size(), 2u) << "those of steps 1 and 2";
  LetCommit();
  EXPECT_EQ(Reported(), Ids({1, 2, 3}));
  EXPECT_EQ(ps_[1].applied(), std::set<EntryId>({EntryId(1), EntryId(2), EntryId(3)}));
}

TEST_F(BesideCommitTest, WhatItMissesIsMeasured) {
  next_write_ = AddToW();
  StartWithDepth(2);
  BeginCommitOf2(/*next=*/0);
  Dispatch(3, "train");  // its pull is sent while step 2 commits
  RunAwake(12);
  LetCommit();
  ASSERT_EQ(Reports().size(), 3u);
  EXPECT_EQ(Reports()[2].staleness, 1u);
}

TEST_F(BesideCommitTest, NoMoreStepsOverlapThanTheDepthSays) {
  CommitStep2(2, /*next=*/2);
  const size_t before = pulls();
  RunAwake(5);
  EXPECT_EQ(live(), EntryId(3));
  EXPECT_EQ(ahead(), Ids({})) << "step 4 would miss both";
  EXPECT_EQ(pulls(), before);
  LetCommit();
  EXPECT_EQ(ahead(), Ids({4}));
}

TEST_F(BesideCommitTest, WithDepthThreeTheStepBehindBothIsPulled) {
  CommitStep2(3, /*next=*/3);
  EXPECT_EQ(live(), EntryId(3));
  EXPECT_EQ(ahead(), Ids({4}));
}

TEST_F(BesideCommitTest, BesideAnAssignNoStepRuns) {
  next_write_ = Assign("b", {1});
  StartWithDepth(2);
  Dispatch(7, "empty");  // makes its read set known; it assigns nothing
  Run();
  BeginCommitOf2(/*next=*/0);
  Dispatch(3, "empty");
  RunAwake(1);
  EXPECT_EQ(live(), EntryId(2));
}

TEST_F(BesideCommitTest, AReadOnlyStepWaits) {
  next_write_ = AddToB();
  StartWithDepth(2);
  divvy::Dispatch look = Step(7, "look");
  look.ordinal.reset();
  end_->Tell(look);
  RunAwake(11);  // makes its read set known
  BeginCommitOf2(/*next=*/0);
  look.step = EntryId(3);
  end_->Tell(look);
  RunAwake(1);
  EXPECT_EQ(live(), EntryId(2));
}

TEST_F(BesideCommitTest, TheFirstStepOfAFunctionWaits) {
  CommitStep2(2, /*next=*/0);
  Dispatch(3, "assign");
  RunAwake(1);
  EXPECT_EQ(live(), EntryId(2));
}

TEST_F(BesideCommitTest, AStepThatIsKnownToAssignWhatIsBeingCommittedWaits) {
  next_write_ = Assign("b", {1});
  StartWithDepth(2);
  next_write_ = AddToB();
  BeginCommitOf2();
  EXPECT_EQ(live(), EntryId(2));
}

TEST_F(BesideCommitTest, AFirstAssignOfWhatWasBeingCommittedIsRunAgain) {
  runner_.Define("turn", [](const StepCall& call) {
    return std::vector<Move>{Stage{call.ordinal == 3 ? Assign("b", {5}) : AddToB()}};
  });
  next_write_ = AddToB();
  StartWithDepth(2);
  Dispatch(2, "turn");  // makes its read set known
  Run();
  ps_[1].HoldCommits();
  Dispatch(3, "train");
  Dispatch(4, "turn");
  RunAwake(12);
  LetCommit();
  ASSERT_EQ(Reported(), Ids({1, 2, 3, 4}));
  EXPECT_EQ(Reports()[3].outcome, StepOutcome::kSystem)
      << "its assign may be based on the value before the add";
  EXPECT_EQ(ps_[1].applied().count(EntryId(4)), 0u);
}

TEST_F(BesideCommitTest, AStepThatFailsMeanwhileIsReportedBehindTheOneBeforeIt) {
  runner_.Define("fail", [](const StepCall& call) {
    return call.ordinal == 1 ? std::vector<Move>()
                             : std::vector<Move>{Fail{absl::InvalidArgumentError("no")}};
  });
  next_write_ = AddToB();
  StartWithDepth(2);
  Dispatch(2, "fail");  // makes its read set known
  Run();
  ps_[1].HoldCommits();
  Dispatch(3, "train");
  Dispatch(4, "fail");
  RunAwake(12);
  EXPECT_EQ(core_->Inspect().step, StepState::kBehind);
  EXPECT_EQ(Reported(), Ids({1, 2}));
  LetCommit();
  EXPECT_EQ(Reported(), Ids({1, 2, 3, 4}));
  EXPECT_EQ(Reports()[3].outcome, StepOutcome::kFailed);
}

TEST_F(BesideCommitTest, ACancelEndsTheStepBehindAtOnceAndNotTheCommit) {
  CommitStep2(2, /*next=*/2);
  RunAwake(11);
  ASSERT_EQ(core_->Inspect().step, StepState::kBehind);
  end_->Tell(CancelSteps{{EntryId(2), EntryId(3)}});
  Run(absl::Milliseconds(10));
  EXPECT_EQ(Reported(), Ids({1, 3}));
  EXPECT_EQ(Reports()[1].outcome, StepOutcome::kCancelled);
  EXPECT_EQ(live(), EntryId(2)) << "step 4 would be the second one that misses its additions";
  LetCommit();
  EXPECT_EQ(Reported(), Ids({1, 3, 2}));
  EXPECT_EQ(Reports()[2].outcome, StepOutcome::kOk);
  EXPECT_EQ(live(), EntryId(4));
}

TEST_F(BesideCommitTest, AHoldIsAnsweredWhenTheCommitIsAndTheStepBehindStaysAtTheGate) {
  CommitStep2(2);
  end_->Tell(Hold{7});
  RunAwake(11);
  EXPECT_TRUE(end_->Got<Held>().empty());
  LetCommit();
  EXPECT_EQ(end_->Got<Held>().size(), 1u);
  EXPECT_EQ(core_->Inspect().step, StepState::kHeld);
  EXPECT_EQ(ps_[1].commits().size(), 2u);
  end_->Tell(Release{7});
  Run(absl::Milliseconds(10));
  EXPECT_EQ(Reported(), Ids({1, 2, 3}));
}

TEST_F(BesideCommitTest, AStepThatIsCancelledWhileItRunsIsReportedWhenItHasEnded) {
  CommitStep2(2);
  end_->Tell(CancelSteps{{EntryId(3)}});
  RunAwake(11);
  EXPECT_EQ(Reported(), Ids({1, 3}));
  EXPECT_EQ(Reports()[1].outcome, StepOutcome::kCancelled);
  EXPECT_EQ(core_->Inspect().committing, EntryId(2));
}

// Otherwise step 4 would miss the additions of step 2, which is not the last step before it.
TEST_F(BesideCommitTest, ACancelledStepBetweenCountsAsOneOfTheDepth) {
  CommitStep2(2, /*next=*/4);
  end_->Tell(CancelSteps{{EntryId(3)}});
  RunAwake(11);
  EXPECT_EQ(Reported(), Ids({1, 3}));
  EXPECT_EQ(live(), EntryId(2)) << "none runs beside it";
  EXPECT_EQ(ahead(), Ids({}));
  LetCommit();
  EXPECT_EQ(live(), EntryId(4));
}

TEST_F(BesideCommitTest, ACancelledStepBetweenLeavesRoomForOneMoreAtDepthThree) {
  CommitStep2(3, /*next=*/4);
  end_->Tell(CancelSteps{{EntryId(3)}});
  RunAwake(11);
  EXPECT_EQ(live(), EntryId(4));
  EXPECT_EQ(ahead(), Ids({}));
  LetCommit();
  EXPECT_EQ(ahead(), Ids({5, 6}));
}

TEST_F(BesideCommitTest, ALostGpuIsToldAtOnceAndTheCommitIsFinished) {
  runner_.Define("break", [](const StepCall& call) {
    return call.ordinal == 6
               ? std::vector<Move>()
               : std::vector<Move>{Fail{MakeError(Reason::kDeviceLost, "GPU:0 is lost")}};
  });
  next_write_ = AddToB();
  StartWithDepth(2);
  Dispatch(7, "break");  // makes its read set known
  Run();
  BeginCommitOf2(/*next=*/0);
  Dispatch(3, "break");
  Dispatch(4, "train");
  Run(absl::Milliseconds(10));
  EXPECT_EQ(end_->Got<Draining>().size(), 1u);
  EXPECT_EQ(Reported(), Ids({1, 7, 4, 3})) << "step 4 goes back to the coordinator";
  EXPECT_TRUE(exits_.empty());
  LetCommit();
  end_->Tell(Ping{});  // acknowledges the reports
  EXPECT_EQ(exits_, std::vector<int>({138}));
  EXPECT_EQ(ps_[1].applied().count(EntryId(2)), 1u);
}

TEST_F(BesideCommitTest, ADrainWithoutACoordinatorFinishesTheCommitAndBeginsNoOther) {
  CommitStep2(2);
  RunAwake(11);
  ASSERT_EQ(core_->Inspect().step, StepState::kBehind);
  core_->Drain();
  end_->deaf = true;
  Run(absl::Seconds(6));  // nothing is heard
  EXPECT_TRUE(exits_.empty()) << "the worker waits for the commit";
  LetCommit();
  EXPECT_EQ(exits_, std::vector<int>({143}));
  EXPECT_EQ(ps_[1].applied(), std::set<EntryId>({EntryId(1), EntryId(2)}));
}

TEST_F(BesideCommitTest, AShutdownWaitsForTheCommitAndDropsTheStepBehindIt) {
  CommitStep2(2);
  RunAwake(11);
  ASSERT_EQ(core_->Inspect().step, StepState::kBehind);
  EXPECT_TRUE(Shutdown(0).ok());
  RunAwake(1);
  EXPECT_TRUE(exits_.empty());
  LetCommit();
  EXPECT_EQ(exits_, std::vector<int>({0}));
  EXPECT_EQ(ps_[1].applied().count(EntryId(3)), 0u);
}

TEST_F(BesideCommitTest, APongTellsOfBoth) {
  CommitStep2(2);
  RunAwake(3);
  const Pong pong = end_->Got<Pong>().back();
  EXPECT_EQ(pong.running, 1);
  EXPECT_EQ(pong.committing, 1);
  EXPECT_EQ(pong.blocked_on_ps, 1);
}

TEST_F(BesideCommitTest, AnAnswerToTheSessionBeforeIsNoneToTheCommitOfThisOne) {
  CommitStep2(2);
  Attach(2);
  EXPECT_EQ(live(), std::nullopt);
  end_->Tell(Step(2, "train", /*attempt=*/2));
  ps_[1].Release();  // answers the commit of session 1
  RunAwake(1);
  EXPECT_EQ(live(), EntryId(2));
  ps_[1].HoldCommits();
  RunAwake(11);
  EXPECT_EQ(core_->Inspect().committing, EntryId(2));
  EXPECT_TRUE(Reports().empty());
}

// ---- Cancel -------------------------------------------------------------------------------------

TEST_F(WorkerCoreTest, ACancelledFunctionIsReportedWhenItHasReturnedAndNothingIsCommitted) {
  runner_.Define("blocked", [](const StepCall&) {
    return std::vector<Move>{Read{{{"w", std::nullopt}}}, Stage{Assign("w", {1, 2, 3, 4})}};
  });
  ps_[0].Hold();
  Attach();
  Dispatch(1, "blocked");
  Run();
  EXPECT_TRUE(Reports().empty());
  end_->Tell(CancelSteps{{EntryId(1)}});
  Run();
  EXPECT_EQ(OnlyReport().outcome, StepOutcome::kCancelled);
  ps_[0].Release();
  Run();
  EXPECT_EQ(commits(), 0u);
}

TEST_F(WorkerCoreTest, AFunctionThatIgnoresTheCancelIsStillReportedAsCancelled) {
  runner_.Define("stubborn", [](const StepCall&) {
    return std::vector<Move>{IgnoreCancel{}, Take{absl::Seconds(3)},
                             Stage{Assign("w", {1, 2, 3, 4})}};
  });
  Attach();
  Dispatch(1, "stubborn");
  Dispatch(2, "empty");
  Run();
  end_->Tell(CancelSteps{{EntryId(1)}});
  Run();
  EXPECT_TRUE(Reports().empty()) << "the worker runs nothing else until the function returns";
  Run(absl::Seconds(3));
  ASSERT_EQ(Reports().size(), 2u);
  EXPECT_EQ(Reports()[0].outcome, StepOutcome::kCancelled);
  EXPECT_EQ(Reports()[1].outcome, StepOutcome::kOk);
  EXPECT_EQ(commits(), 0u);
}

TEST_F(WorkerCoreTest, AQueuedStepIsCancelledAtOnceAndAnUnknownOneIsNothing) {
  Attach();
  Dispatch(1, "slow");
  Dispatch(2, "assign");
  end_->Tell(CancelSteps{{EntryId(2), EntryId(77)}});
  EXPECT_EQ(OnlyReport().step, EntryId(2));
  EXPECT_EQ(OnlyReport().outcome, StepOutcome::kCancelled);
  Run(absl::Minutes(2));
  EXPECT_EQ(ps_[0].applied(), std::set<EntryId>({EntryId(1)}));
}

// ---- COMMITTING ---------------------------------------------------------------------------------

TEST_F(WorkerCoreTest, ACommitIsSentAgainUntilItIsAnsweredAndNotReportedBefore) {
  ps_[1].RefuseCommits(
      {absl::UnavailableError("broken stream"), MakeError(Reason::kNotAttached, "new"),
       MakeError(Reason::kNotReady, "loading"), MakeError(Reason::kWrongIncarnation, "new"),
       absl::InternalError("transport")});
  Attach();
  Dispatch(1, "assign");
  executor_.RunFor(absl::Milliseconds(500));
  EXPECT_TRUE(Reports().empty());
  EXPECT_EQ(core_->Inspect().step, StepState::kCommitting);
  EXPECT_EQ(core_->Inspect().unanswered, std::vector<int>({1}));
  for (int i = 0; i < 10; ++i) {
    end_->Tell(Ping{});
    Run();
  }
  EXPECT_EQ(OnlyReport().outcome, StepOutcome::kOk);
  EXPECT_EQ(ps_[0].commits().size(), 1u);
  ASSERT_EQ(ps_[1].commits().size(), 6u);
  EXPECT_EQ(ps_[1].commits()[5].entry, EntryId(1));
}

TEST_F(WorkerCoreTest, AStepThatCommitsCannotBeCancelled) {
  ps_[1].Hold();
  Attach();
  Dispatch(1, "assign");
  Run();
  end_->Tell(CancelSteps{{EntryId(1)}});
  Run();
  EXPECT_TRUE(Reports().empty());
  ps_[1].Release();
  Run();
  EXPECT_EQ(OnlyReport().outcome, StepOutcome::kOk);
}

class SessionEndTest : public WorkerCoreTest, public ::testing::WithParamInterface<Reason> {};
INSTANTIATE_TEST_SUITE_P(Reasons, SessionEndTest,
                         ::testing::Values(Reason::kSessionFenced, Reason::kStepClosed,
                                           Reason::kStaleEpoch),
                         [](const auto& info) { return std::string(ReasonName(info.param)); });

TEST_P(SessionEndTest, ARefusedCommitDropsEverythingAndTheWorkerRegistersAgain) {
  ps_[1].RefuseCommits({MakeError(GetParam(), "over")});
  Attach();
  Dispatch(1, "assign");
  Dispatch(2, "assign");
  Run();
  EXPECT_FALSE(core_->Inspect().attached);
  EXPECT_TRUE(Reports().empty());
  EXPECT_TRUE(end_->closed());
  Run(absl::Seconds(5));
  EXPECT_GE(coordinator_.seen.size(), 3u);
  EXPECT_EQ(runner_.started(), 1);
  EXPECT_EQ(ReasonOf(TryAttach(AttachRequest(1)).status()), Reason::kSessionFenced)
      << "a late copy of the old Attach does not bring it back";
  Attach(2);
  Dispatch(1, "assign");
  Run();
  EXPECT_EQ(OnlyReport().outcome, StepOutcome::kOk);
}

TEST_P(SessionEndTest, ARefusedPullDoesTheSame) {
  runner_.Define("read", [](const StepCall&) {
    return std::vector<Move>{Read{{{"w", std::nullopt}}}};
  });
  ps_[0].RefusePulls({MakeError(GetParam(), "over")});
  Attach();
  Dispatch(1, "read");
  Run();
  EXPECT_FALSE(core_->Inspect().attached);
  EXPECT_TRUE(Reports().empty());
}

TEST_F(WorkerCoreTest,
       ACommitThatCannotBeWrongAndIsRefusedIsReportedWithThoseWhoAppliedItWhenAllHaveAnswered) {
  ps_[0].RefuseCommits({MakeError(Reason::kBadCommit, "rows")});
  ps_[1].Hold();
  Attach();
  Dispatch(1, "assign");
  Run();
  EXPECT_TRUE(Reports().empty());
  ps_[1].Release();
  Run();
  EXPECT_EQ(OnlyReport().outcome, StepOutcome::kFailed);
  EXPECT_EQ(ReasonOf(OnlyReport().error), Reason::kBadCommit);
  EXPECT_FALSE(DetailOf(OnlyReport().error).user);
  EXPECT_EQ(OnlyReport().participants, std::vector<int>({1}));
  EXPECT_EQ(ps_[0].commits().size(), 1u);
}

TEST_F(WorkerCoreTest, ALearningRateThatNoServerTakesIsTheStepsErrorAndNothingIsSent) {
  runner_.Define("train", [](const StepCall&) {
    return std::vector<Move>{
        Stage{{"w", WriteOp::kGradient, Matrix(4, 1, {1, 1, 1, 1}), std::nullopt, std::nullopt}}};
  });
  Attach();
  divvy::Dispatch dispatch = Step(1, "train");
  dispatch.learning_rate_scale = 1e300;
  end_->Tell(dispatch);
  Run();
  EXPECT_EQ(OnlyReport().outcome, StepOutcome::kFailed);
  EXPECT_TRUE(DetailOf(OnlyReport().error).user);
  const std::string error(OnlyReport().error.message());
  EXPECT_NE(error.find("variable \"w\": "), std::string::npos) << error;
  EXPECT_NE(error.find("the learning rate is inf"), std::string::npos) << error;
  EXPECT_EQ(commits(), 0u);
}

TEST_F(WorkerCoreTest, AGradientOfNoRowsCommitsToNobody) {
  runner_.Define("nothing", [](const StepCall&) {
    return std::vector<Move>{Stage{
        {"w", WriteOp::kGradient, Matrix(0, 1, {}), Tensor::Vector<int64_t>({}), std::nullopt}}};
  });
  Attach();
  Dispatch(1, "nothing");
  Run();
  EXPECT_EQ(OnlyReport().outcome, StepOutcome::kOk);
  EXPECT_TRUE(OnlyReport().participants.empty());
}

TEST_F(WorkerCoreTest, StalenessIsTheNumberOfCommitsOfOthersBetweenReadAndWrite) {
  runner_.Define("train", [](const StepCall&) {
    return std::vector<Move>{Read{{{"w", std::nullopt}}}, Take{absl::Seconds(1)},
                             Stage{Gradient("w", {1, 1, 1, 1})}};
  });
  Attach();
  Dispatch(1, "train");
  executor_.RunFor(absl::Milliseconds(500));
  for (int i = 0; i < 3; ++i) ps_[1].Set({VariableId(1), 0, 1}, Matrix(2, 1, {0, 0}));
  Run();
  EXPECT_EQ(OnlyReport().staleness, 3u);
}

TEST_F(WorkerCoreTest, AStepThatIsAskedForItsGradientsTellsThemInItsReport) {
  runner_.Define("train", [](const StepCall&) {
    return std::vector<Move>{Stage{Gradient("w", {-1, 0, 0.5, 1})}};
  });
  Attach();
  divvy::Dispatch asked = Step(1, "train");
  asked.want_gradients = true;
  end_->Tell(asked);
  Dispatch(2, "train");
  divvy::Dispatch assigns = Step(3, "assign");
  assigns.want_gradients = true;
  end_->Tell(assigns);
  Run();
  const std::vector<Report> reports = Reports();
  ASSERT_EQ(reports.size(), 3u);
  ASSERT_EQ(reports[0].gradients.size(), 1u);
  EXPECT_EQ(reports[0].gradients[0].variable, "w");
  EXPECT_EQ(reports[0].gradients[0].values.low, -1);
  EXPECT_EQ(reports[0].gradients[0].values.high, 1);
  std::vector<uint64_t> counts(kHistogramBuckets);
  counts.front() = counts.back() = counts[15] = counts[22] = 1;
  EXPECT_EQ(reports[0].gradients[0].values.counts, counts);
  EXPECT_TRUE(reports[1].gradients.empty()) << "it was not asked";
  EXPECT_EQ(reports[2].outcome, StepOutcome::kOk);
  EXPECT_TRUE(reports[2].gradients.empty()) << "it has none";
}

// Reading the gradients of a large model takes a tenth of a second. Whole gradients need no
// planning otherwise, so they would be read under the core's lock.
TEST_F(WorkerCoreTest, TheGradientsOfALargeModelAreReadOnAnotherThread) {
  constexpr int64_t kRows = 4097;
  layout_ = layout_->With(MakeVariable(9, "large", kRows, 1, {0}, Sgd{0.1}));
  ps_.Make(*layout_);
  runner_.Define("train", [](const StepCall&) {
    return std::vector<Move>{
        Stage{Gradient("large", std::vector<float>(static_cast<size_t>(kRows), 1))}};
  });
  Attach();
  executor_.HoldThreads();
  Dispatch(1, "train");
  Run();
  EXPECT_EQ(Reports().size(), 1u) << "a step that is not asked needs no thread";
  divvy::Dispatch asked = Step(2, "train");
  asked.want_gradients = true;
  end_->Tell(asked);
  Run();
  ASSERT_EQ(core_->Inspect().step, StepState::kPlanning);
  end_->Tell(Ping{});
  EXPECT_EQ(end_->Got<Pong>().size(), 1u);
  executor_.ReleaseThreads();
  Run();
  ASSERT_EQ(Reports().size(), 2u);
  ASSERT_EQ(Reports()[1].gradients.size(), 1u);
  EXPECT_EQ(Reports()[1].gradients[0].values.counts.back(), static_cast<uint64_t>(kRows));
}

// ---- PLANNING -----------------------------------------------------------------------------------

// A commit that is large, or counts as large: it is planned on a thread, which these tests hold.
class PlanningTest : public WorkerCoreTest {
 protected:
  PlanningTest() {
    options_.at_once_bytes = 0;
    runner_.Define("learn", [](const StepCall&) {
      StagedWrite write{"w", WriteOp::kGradient, Matrix(3, 1, {1, 2, 3}),
                        Tensor::Vector<int64_t>({3, 0, 3}), std::nullopt};
      return std::vector<Move>{Stage{write}};
    });
    core_->Abandon();
    Start();
    Attach();
    executor_.HoldThreads();
    Dispatch(1, "learn");
    Run();
  }
};

TEST_F(PlanningTest, APingIsAnsweredWhileACommitIsPlanned) {
  ASSERT_EQ(core_->Inspect().step, StepState::kPlanning);
  end_->Tell(Ping{});
  ASSERT_EQ(end_->Got<Pong>().size(), 1u);
  EXPECT_EQ(end_->Got<Pong>()[0].running, 1);
  EXPECT_EQ(commits(), 0u);
  executor_.ReleaseThreads();
  Run();
  EXPECT_EQ(OnlyReport().outcome, StepOutcome::kOk);
  EXPECT_EQ(OnlyReport().participants, std::vector<int>({0, 1}));
  EXPECT_EQ(ps_[1].commits()[0].parts[0].values.data_as<float>()[0], 4)
      << "rows 0 and 2 have the same id";
}

TEST_F(PlanningTest, AStepWhoseCommitIsPlannedOnThreadsTellsItsGradientsToo) {
  divvy::Dispatch asked = Step(2, "learn");
  asked.want_gradients = true;
  executor_.ReleaseThreads();
  end_->Tell(asked);
  Run();
  ASSERT_EQ(Reports().size(), 2u);
  ASSERT_EQ(Reports()[1].gradients.size(), 1u);
  EXPECT_EQ(Reports()[1].gradients[0].values.low, 2);
  EXPECT_EQ(Reports()[1].gradients[0].values.high, 4) << "rows of equal ids are summed";
}

TEST_F(PlanningTest, ALayoutThatChangesMeanwhileWantsAnotherPlan) {
  VariableLayout moved = *layout_->Find("w");
  moved.ps = {1, 0};
  layout_ = layout_->With(moved);
  ps_.Make(*layout_);
  end_->Tell(LayoutUpdate{layout_});
  executor_.ReleaseThreads();
  Run();
  EXPECT_EQ(OnlyReport().outcome, StepOutcome::kOk);
  EXPECT_EQ(commits(), 2u);
  EXPECT_EQ(ps_[1].commits()[0].parts[0].shard.part, 0) << "planned for the new layout";
}

TEST_F(PlanningTest, TheSameLayoutOnceMoreWantsNone) {
  const int threads = executor_.threads();
  std::map<VariableId, VariableLayout> variables;
  for (const auto& [id, variable] : layout_->variables()) variables.emplace(id, variable);
  end_->Tell(LayoutUpdate{Layout::Received(layout_->version(), std::move(variables))});
  executor_.ReleaseThreads();
  Run();
  EXPECT_EQ(OnlyReport().outcome, StepOutcome::kOk);
  EXPECT_EQ(executor_.threads(), threads + 1)
      << "one more thread, for the second shard of the only plan";
}

TEST_F(PlanningTest, AHeldStepKeepsItsPlan) {
  end_->Tell(Hold{7});
  EXPECT_EQ(end_->Got<Held>().size(), 1u) << "nothing commits yet";
  executor_.ReleaseThreads();
  Run();
  ASSERT_EQ(core_->Inspect().step, StepState::kHeld);
  const int threads = executor_.threads();
  end_->Tell(Release{7});
  Run();
  EXPECT_EQ(OnlyReport().outcome, StepOutcome::kOk);
  EXPECT_EQ(executor_.threads(), threads);
}

TEST_F(PlanningTest, ACancelIsObeyedAndThePlanDropped) {
  end_->Tell(CancelSteps{{EntryId(1)}});
  EXPECT_EQ(OnlyReport().outcome, StepOutcome::kCancelled);
  end_->Tell(Step(1, "learn", /*attempt=*/2));
  Run();
  ASSERT_EQ(core_->Inspect().step, StepState::kPlanning);
  executor_.ReleaseThreads();
  Run();
  ASSERT_EQ(Reports().size(), 2u);
  EXPECT_EQ(Reports()[1].outcome, StepOutcome::kOk);
  EXPECT_EQ(commits(), 2u) << "only those of the second attempt";
  EXPECT_EQ(ps_[0].commits()[0].attempt, 2u);
}

TEST_F(PlanningTest, ThePlanOfASessionThatIsOverIsDropped) {
  Attach(/*session=*/2);
  executor_.ReleaseThreads();
  Run();
  EXPECT_EQ(commits(), 0u);
  EXPECT_TRUE(Reports().empty());
}

TEST_F(PlanningTest, AWorkerThatIsShutDownDoesNotWaitForAPlan) {
  EXPECT_TRUE(Shutdown(0).ok());
  Run();
  EXPECT_EQ(exits_, std::vector<int>({0}));
  executor_.ReleaseThreads();
  Run();
  EXPECT_EQ(commits(), 0u);
}

// 2e38 + 2e38 overflows float32.
TEST_F(WorkerCoreTest, CheckNumericsLooksAtTheRowsOfAGradientOnceTheyAreSummed) {
  for (const int64_t at_once_bytes : {0, 1 << 20}) {
    core_->Abandon();
    options_.check_numerics = true;
    options_.at_once_bytes = at_once_bytes;
    runner_.Define("overflow", [](const StepCall&) {
      StagedWrite write{"w", WriteOp::kGradient, Matrix(3, 1, {2e38f, 1, 2e38f}),
                        Tensor::Vector<int64_t>({3, 0, 3}), std::nullopt};
      return std::vector<Move>{Stage{write}};
    });
    Start();
    Attach();
    Dispatch(1, "overflow");
    Run();
    EXPECT_EQ(OnlyReport().outcome, StepOutcome::kFailed);
    EXPECT_TRUE(DetailOf(OnlyReport().error).user);
    EXPECT_EQ(OnlyReport().error.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(
        absl::StrContains(OnlyReport().error.message(),
                          "variable \"w\": the rows of id 3 are finite, and their sum is inf"))
        << OnlyReport().error;
    EXPECT_EQ(commits(), 0u);
  }
}

// ---- HELD ---------------------------------------------------------------------------------------

TEST_F(WorkerCoreTest, AHeldWorkerComputesAndCommitsWhenItIsReleased) {
  Attach();
  end_->Tell(Hold{7});
  ASSERT_EQ(end_->Got<Held>().size(), 1u);
  EXPECT_EQ(end_->Got<Held>()[0].number, 7u);
  Dispatch(1, "assign");
  Dispatch(2, "assign");
  Run();
  EXPECT_EQ(core_->Inspect().step, StepState::kHeld);
  EXPECT_EQ(commits(), 0u);
  end_->Tell(Release{6});
  Run();
  EXPECT_EQ(commits(), 0u) << "a Release of another hold";
  end_->Tell(Release{7});
  Run();
  EXPECT_EQ(Reports().size(), 2u);
}

TEST_F(WorkerCoreTest, HeldIsSaidBehindTheReportOfAStepThatWasCommitting) {
  Attach();
  ps_[0].Hold();
  Dispatch(1, "assign");
  Run();
  ASSERT_EQ(core_->Inspect().step, StepState::kCommitting);
  end_->Tell(Hold{7});
  Run();
  EXPECT_TRUE(end_->Got<Held>().empty());
  ps_[0].Release();
  Run();
  ASSERT_EQ(end_->received.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<Report>(end_->received[0]));
  EXPECT_TRUE(std::holds_alternative<Held>(end_->received[1]));
}

TEST_F(WorkerCoreTest, AStepAtTheGateObeysCancelAndLeavesNoTrace) {
  Attach();
  end_->Tell(Hold{7});
  Dispatch(1, "assign");
  Run();
  end_->Tell(CancelSteps{{EntryId(1)}});
  EXPECT_EQ(OnlyReport().outcome, StepOutcome::kCancelled);
  end_->Tell(Release{7});
  Run();
  EXPECT_EQ(commits(), 0u);
}

TEST_F(WorkerCoreTest, AHoldEndsWithItsSession) {
  Attach();
  end_->Tell(Hold{7});
  Attach(2);
  Dispatch(1, "assign");
  Run();
  EXPECT_EQ(OnlyReport().outcome, StepOutcome::kOk);
}

// ---- NEEDS SLOTS --------------------------------------------------------------------------------

class NeedSlotsTest : public WorkerCoreTest {
 protected:
  NeedSlotsTest() {
    runner_.Define("train", [this](const StepCall&) {
      return std::vector<Move>{Stage{Gradient("w", {1, 2, 3, 4}, optimizer_)}};
    });
    Attach();
    Dispatch(1, "train");
    Run();
  }
  std::shared_ptr<const Layout> WithSlots() {
    VariableLayout variable = *layout_->Find("w");
    variable.slots = SlotsOf(optimizer_);
    variable.slot_optimizers.assign(variable.slots.size(), std::string(OptimizerName(optimizer_)));
    return layout_->With(variable);
  }
  const Optimizer optimizer_ = Momentum{0.5};
};

TEST_F(NeedSlotsTest, SlotsAreAskedForAndTheCommitWaitsForThem) {
  const std::vector<NeedSlots> asked = end_->Got<NeedSlots>();
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].step, EntryId(1));
  ASSERT_EQ(asked[0].slots.size(), 1u);
  EXPECT_EQ(asked[0].slots[0].first, "w");
  EXPECT_EQ(core_->Inspect().step, StepState::kNeedsSlots);
  end_->Tell(LayoutUpdate{layout_->With(MakeVariable(3, "other", 1, 1, {0}))});
  Run();
  EXPECT_EQ(commits(), 0u);
  EXPECT_EQ(end_->Got<NeedSlots>().size(), 1u) << "the slots are asked for once";
  end_->Tell(LayoutUpdate{WithSlots()});
  Run();
  EXPECT_EQ(OnlyReport().outcome, StepOutcome::kOk);
  ASSERT_EQ(ps_[0].commits().size(), 1u);
  EXPECT_EQ(ps_[0].commits()[0].parts[0].slots, std::vector<uint8_t>({1}));
}

TEST_F(NeedSlotsTest, AStepThatWaitsForSlotsObeysCancel) {
  end_->Tell(CancelSteps{{EntryId(1)}});
  EXPECT_EQ(OnlyReport().outcome, StepOutcome::kCancelled);
  end_->Tell(LayoutUpdate{WithSlots()});
  Run();
  EXPECT_EQ(commits(), 0u);
}

TEST_F(NeedSlotsTest, AVariableThatIsGoneFailsTheStepBeforeAnythingIsSent) {
  std::map<VariableId, VariableLayout> rest;
  for (const auto& [id, variable] : layout_->variables())
    if (id != VariableId(1)) rest.emplace(id, variable);
  end_->Tell(LayoutUpdate{Layout::Received(layout_->version() + 1, std::move(rest))});
  Run();
  EXPECT_EQ(OnlyReport().outcome, StepOutcome::kFailed);
  EXPECT_EQ(OnlyReport().error.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(commits(), 0u);
}

// ---- the Steps stream ---------------------------------------------------------------------------

TEST_F(WorkerCoreTest, AReportMadeWhileTheConnectionIsBrokenComesWithTheNextOne) {
  Attach();
  Dispatch(1, "slow");
  Run();
  end_->Break();
  Run(absl::Minutes(2));
  EXPECT_TRUE(Reports().empty());
  EXPECT_EQ(core_->Inspect().reported, 1);
  end_->Connect(*core_);
  EXPECT_EQ(OnlyReport().outcome, StepOutcome::kOk);
}

TEST_F(WorkerCoreTest, MessagesThatWereLostOnTheWayAreSentAgainOnceEach) {
  Attach();
  end_->deaf = true;
  Dispatch(1, "empty");
  Run();
  end_->Break();
  end_->deaf = false;
  Dispatch(2, "empty");
  end_->Connect(*core_);
  Run();
  ASSERT_EQ(Reports().size(), 2u);
  EXPECT_EQ(Reports()[0].step, EntryId(1));
  EXPECT_EQ(runner_.started(), 2);
}

TEST_F(WorkerCoreTest, ASecondConnectionOfTheSessionReplacesTheFirst) {
  Attach();
  CoordinatorEnd* const end = end_.get();
  // The coordinator noticed the break before the worker did.
  end->Connect(*core_);
  Dispatch(1, "empty");
  Run();
  EXPECT_EQ(Reports().size(), 1u);
  EXPECT_TRUE(core_->Inspect().connected);
}

TEST_F(WorkerCoreTest, AConnectionOfAnotherSessionIsClosedAndChangesNothing) {
  Attach();
  const uint64_t before = core_->StateHash();
  CoordinatorEnd stranger(SessionId(9));
  stranger.Connect(*core_);
  EXPECT_TRUE(stranger.closed());
  stranger.TellRaw({SessionId(1), false, 0, 1, ToWorker(Ping{})});
  EXPECT_EQ(core_->StateHash(), before);
  EXPECT_TRUE(core_->Inspect().connected);
}

TEST_F(WorkerCoreTest, AFrameSeenBeforeChangesNothingAndAGapBreaksTheConnection) {
  Attach();
  Dispatch(1, "slow");
  Run();
  const uint64_t before = core_->StateHash();
  end_->TellRaw({SessionId(1), false, 0, 1, ToWorker(Step(1, "slow"))});
  EXPECT_EQ(core_->StateHash(), before);
  EXPECT_FALSE(end_->closed());
  end_->TellRaw({SessionId(1), false, 0, 5, ToWorker(Step(9, "empty"))});
  EXPECT_TRUE(end_->closed());
  EXPECT_FALSE(core_->Inspect().connected);
  EXPECT_TRUE(core_->Inspect().attached);
}

TEST_F(WorkerCoreTest, ManyMessagesWithoutAnAnswerAreAcknowledgedOnTheirOwn) {
  Attach();
  for (int i = 0; i < 1000; ++i) end_->Tell(LayoutUpdate{layout_});
  EXPECT_LT(end_->unacknowledged(), 100u);
}

TEST_F(WorkerCoreTest, AnswersAPingWithWhatItWaitsFor) {
  ps_[1].Hold();
  Attach();
  end_->Tell(Ping{});
  Dispatch(1, "assign");
  Run(absl::Seconds(3));
  end_->Tell(Ping{});
  const std::vector<Pong> pongs = end_->Got<Pong>();
  ASSERT_EQ(pongs.size(), 2u);
  EXPECT_EQ(pongs[0].running + pongs[0].committing, 0);
  EXPECT_FALSE(pongs[0].blocked_on_ps.has_value());
  EXPECT_EQ(pongs[1].committing, 1);
  EXPECT_EQ(pongs[1].blocked_on_ps, 1);
  EXPECT_GT(pongs[1].blocked_for, absl::Seconds(2));
}

TEST_F(WorkerCoreTest, ASilentCoordinatorMeansNoNewStepAndRegisteringUntilItIsHeardAgain) {
  Attach();
  runner_.Define("long", [](const StepCall&) {
    return std::vector<Move>{Take{absl::Seconds(8)}, Stage{Assign("w", {1, 2, 3, 4})}};
  });
  Dispatch(1, "long");
  Dispatch(2, "assign");
  Run(absl::Seconds(12));
  EXPECT_TRUE(core_->Inspect().silent);
  EXPECT_EQ(ps_[0].applied(), std::set<EntryId>({EntryId(1)}))
      << "the step that has begun continues";
  EXPECT_EQ(runner_.started(), 1);
  EXPECT_GE(coordinator_.seen.size(), 3u);
  end_->Tell(Ping{});
  EXPECT_FALSE(core_->Inspect().silent);
  Run();
  EXPECT_EQ(Reports().size(), 2u);
}

// ---- iterators ----------------------------------------------------------------------------------

TEST_F(WorkerCoreTest, IteratorsAreOpenedReportedAndDropped) {
  inputs_.Define("known", {100, absl::OkStatus(), absl::ZeroDuration(), ElementDigest{7, 1, 2}});
  inputs_.Define("endless", {});
  Attach();
  end_->Tell(MakeResource{ResourceId(1), "known", Nest(), 0, true});
  end_->Tell(MakeResource{ResourceId(2), "endless", Nest(), 0, true});
  end_->Tell(MakeResource{ResourceId(3), "missing", Nest(), 0, true});
  Run();
  std::map<ResourceId, ResourceReady> ready;
  for (const ResourceReady& one : end_->Got<ResourceReady>()) ready[one.iterator] = one;
  ASSERT_EQ(ready.size(), 3u);
  EXPECT_EQ(ready[ResourceId(1)].elements, 100);
  ASSERT_TRUE(ready[ResourceId(1)].first.has_value());
  EXPECT_EQ(ready[ResourceId(1)].first->exact, 7u);
  EXPECT_FALSE(ready[ResourceId(2)].first.has_value());
  EXPECT_FALSE(ready[ResourceId(2)].elements.has_value());
  EXPECT_EQ(ready[ResourceId(3)].error.code(), absl::StatusCode::kNotFound);
  end_->Tell(DropResource{ResourceId(1)});
  end_->Tell(DropResource{ResourceId(77)});
  EXPECT_EQ(inputs_.open().count(ResourceId(1)), 0u);
  EXPECT_EQ(inputs_.open().count(ResourceId(2)), 1u);
}

TEST_F(WorkerCoreTest, AnIteratorThatWasDroppedWhileItOpenedIsNotReported) {
  inputs_.Define("slow", {100, absl::OkStatus(), absl::Seconds(2)});
  Attach();
  end_->Tell(MakeResource{ResourceId(1), "slow", Nest(), 0, true});
  end_->Tell(DropResource{ResourceId(1)});
  Run(absl::Seconds(3));
  EXPECT_TRUE(end_->Got<ResourceReady>().empty());
}

// ---- the end ------------------------------------------------------------------------------------

TEST_F(WorkerCoreTest, AShutdownIsAnsweredAndEndsAnIdleWorkerAtOnce) {
  Attach();
  EXPECT_TRUE(Shutdown(0).ok());
  EXPECT_EQ(exits_, std::vector<int>({0}));
  EXPECT_TRUE(Shutdown(0).ok()) << "a repeated Shutdown gets the same answer";
  EXPECT_EQ(exits_.size(), 1u);
  EXPECT_EQ(ReasonOf(TryAttach(AttachRequest(2)).status()), Reason::kJobOver);
}

TEST_F(WorkerCoreTest, AShutdownOfAnotherEpochIsRefused) {
  Attach(1, 2);
  EXPECT_EQ(ReasonOf(Shutdown(0, 1)), Reason::kStaleEpoch);
  EXPECT_EQ(ReasonOf(Shutdown(0, 3)), Reason::kNotAttached);
  EXPECT_TRUE(exits_.empty());
}

TEST_F(WorkerCoreTest, AShutdownLetsACommitEndAndDropsWhatOnlyRuns) {
  ps_[1].Hold();
  Attach();
  Dispatch(1, "assign");
  Dispatch(2, "assign");
  Run();
  EXPECT_TRUE(Shutdown(1).ok());
  Run();
  EXPECT_TRUE(exits_.empty());
  ps_[1].Release();
  Run();
  EXPECT_EQ(exits_, std::vector<int>({1}));
  EXPECT_EQ(ps_[1].applied(), std::set<EntryId>({EntryId(1)}));
}

TEST_F(WorkerCoreTest, AShutdownDoesNotWaitForEverForAPs) {
  ps_[1].Hold();
  Attach();
  Dispatch(1, "assign");
  Run();
  EXPECT_TRUE(Shutdown(1).ok());
  Run(absl::Seconds(12));
  EXPECT_EQ(exits_, std::vector<int>({1}));
}

TEST_F(WorkerCoreTest, ADrainingWorkerSaysSoFinishesWhatItHasAndExits143) {
  Attach();
  Dispatch(1, "assign");
  Dispatch(2, "assign");
  core_->Drain();
  EXPECT_EQ(end_->Got<Draining>().size(), 1u);
  Run();
  EXPECT_EQ(Reports().size(), 2u);
  end_->Tell(Ping{});  // acknowledges the reports
  Run();
  end_->Tell(Ping{});
  EXPECT_EQ(exits_, std::vector<int>({143}));
}

TEST_F(WorkerCoreTest, ALostGpuGivesTheStepAndThoseBehindItBackAndEndsTheWorkerWith138) {
  constexpr char kWhy[] = "GPU:0 (H200) is lost: an illegal memory access was encountered";
  runner_.Define("lost", [&](const StepCall&) {
    return std::vector<Move>{Take{absl::Seconds(2)}, Fail{MakeError(Reason::kDeviceLost, kWhy)}};
  });
  Attach();
  Dispatch(1, "lost");
  Dispatch(2, "assign");
  Dispatch(3, "assign");
  Run(absl::Seconds(3));
  EXPECT_EQ(end_->Got<Draining>().size(), 1u);
  EXPECT_TRUE(std::holds_alternative<Draining>(end_->received[0]))
      << "before the reports, or the coordinator would send the steps back";
  ASSERT_EQ(Reports().size(), 3u);
  EXPECT_EQ(Reports()[0].step, EntryId(3))
      << "the last one first, because each goes to the head of the queue";
  EXPECT_EQ(Reports()[0].outcome, StepOutcome::kCancelled);
  EXPECT_EQ(Reports()[1].outcome, StepOutcome::kCancelled);
  EXPECT_EQ(Reports()[2].step, EntryId(1));
  EXPECT_EQ(Reports()[2].outcome, StepOutcome::kSystem);
  EXPECT_EQ(ReasonOf(Reports()[2].error), Reason::kDeviceLost);
  EXPECT_FALSE(DetailOf(Reports()[2].error).user);
  EXPECT_EQ(commits(), 0u);
  Dispatch(4, "assign");  // it was in flight
  Run();
  ASSERT_EQ(Reports().size(), 4u);
  EXPECT_EQ(Reports()[3].outcome, StepOutcome::kCancelled);
  EXPECT_EQ(runner_.started(), 1);
  end_->Tell(Ping{});  // acknowledges the reports
  end_->Tell(Ping{});
  Run();
  EXPECT_EQ(exits_, std::vector<int>({138}));
  EXPECT_EQ(exit_why_, kWhy);
}

TEST_F(WorkerCoreTest, AWorkerWithoutItsGpuDoesNotWaitForACoordinatorThatHasGone) {
  runner_.Define("lost", [](const StepCall&) {
    return std::vector<Move>{Fail{MakeError(Reason::kDeviceLost, "GPU:0 is lost")}};
  });
  Attach();
  Dispatch(1, "lost");
  end_->deaf = true;
  Run();
  end_->Break();
  Run(absl::Seconds(4));
  EXPECT_EQ(exits_, std::vector<int>({138}));
}

TEST_F(WorkerCoreTest, APsOfAnotherJobEndsTheProcessNotOnlyTheSession) {
  Attach();
  ps_[1].RefuseCommits({MakeError(Reason::kWrongJob, "ps 1: serves job 2")});
  Dispatch(1, "assign");
  Run();
  EXPECT_EQ(exits_, std::vector<int>{78});
  EXPECT_TRUE(Reports().empty());
}

TEST_F(WorkerCoreTest, ADrainWithoutCoordinatorAndPsIsBounded) {
  Attach();
  ps_[1].RefuseCommits(
      std::vector<absl::Status>(1000, absl::UnavailableError("connection refused")));
  Dispatch(1, "assign");
  Run();
  core_->Drain();
  Run(absl::Seconds(9));
  EXPECT_TRUE(exits_.empty());
  Run(absl::Seconds(3));
  EXPECT_EQ(exits_, std::vector<int>{143});
}

TEST_F(WorkerCoreTest, ADrainBehindACoordinatorThatHasGoneDoesNotWaitForIt) {
  Attach();
  end_->Tell(Ping{});
  end_->Break();
  core_->Drain();
  Run(absl::Seconds(1));
  EXPECT_TRUE(exits_.empty()) << "the coordinator might come back";
  Run(absl::Seconds(2));
  EXPECT_EQ(exits_, std::vector<int>{143});
}

TEST_F(WorkerCoreTest, ADetachedWorkerThatIsToldToDrainIsGone) {
  core_->Drain();
  EXPECT_EQ(exits_, std::vector<int>({143}));
}

// ---- options and callbacks of a process ---------------------------------------------------------

class ProgramFlagsTest : public WorkerCoreTest {
 protected:
  ProgramFlagsTest() {
    core_->Abandon();
    options_.apply_program_flags = [this](const std::map<std::string, std::string>& flags) {
      given_.push_back(flags);
      return answer_;
    };
    Start();
  }
  std::vector<std::map<std::string, std::string>> given_;
  absl::Status answer_;
};

TEST_F(ProgramFlagsTest, AreGivenBeforeTheFirstStepAndAgainWhereACoordinatorBringsOthers) {
  WorkerAttachRequest request = AttachRequest(1);
  request.program_flags = {{"depth", "3"}};
  EXPECT_TRUE(TryAttach(request).ok());
  request.fence.session = SessionId(2);
  EXPECT_TRUE(TryAttach(request).ok());
  ASSERT_EQ(given_.size(), 1u);
  EXPECT_EQ(given_[0].at("depth"), "3");
  WorkerAttachRequest next = AttachRequest(3, /*epoch=*/2);
  next.program_flags = {{"depth", "4"}};
  EXPECT_TRUE(TryAttach(next).ok());
  ASSERT_EQ(given_.size(), 2u);
  EXPECT_EQ(given_[1].at("depth"), "4");
}

TEST_F(ProgramFlagsTest, ThatItCannotTakeRefuseTheAttachUntilItCan) {
  answer_ = absl::InvalidArgumentError("unknown flag \"depth\"");
  const absl::Status refused = TryAttach(AttachRequest(1)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(refused.message(), "unknown flag \"depth\"")) << refused;
  EXPECT_FALSE(core_->Inspect().attached);
  answer_ = absl::OkStatus();
  EXPECT_TRUE(TryAttach(AttachRequest(2)).ok());
  EXPECT_EQ(given_.size(), 2u);
}

TEST_F(WorkerCoreTest, AnotherVersionIsRefusedAtAttach) {
  WorkerAttachRequest request = AttachRequest(1);
  request.protocol = {kOwnProtocol.newest + 1, kOwnProtocol.newest + 1};
  EXPECT_EQ(ReasonOf(TryAttach(request).status()), Reason::kVersionMismatch);
}

TEST_F(WorkerCoreTest, ACommitLargerThanItsPsTakesFailsTheStepBeforeAnythingIsSent) {
  WorkerAttachRequest request = AttachRequest(1);
  request.view[1].max_commit_bytes = 7;  // ps 1 has two floats of w
  ASSERT_TRUE(TryAttach(request).ok());
  end_ = std::make_unique<CoordinatorEnd>(SessionId(1));
  end_->Connect(*core_);
  Dispatch(1, "assign");
  Run();
  EXPECT_EQ(OnlyReport().outcome, StepOutcome::kFailed);
  EXPECT_TRUE(DetailOf(OnlyReport().error).user);
  EXPECT_TRUE(absl::StrContains(OnlyReport().error.message(), "--commit_buffer_bytes"))
      << OnlyReport().error;
  EXPECT_EQ(commits(), 0u);
}

TEST_F(WorkerCoreTest, AnAbandonedWorkerSaysNothingMore) {
  Attach();
  Dispatch(1, "slow");
  Run();
  const size_t calls = coordinator_.seen.size();
  core_->Abandon();
  Run(absl::Minutes(5));
  EXPECT_TRUE(Reports().empty());
  EXPECT_EQ(commits(), 0u);
  EXPECT_EQ(coordinator_.seen.size(), calls);
  EXPECT_TRUE(exits_.empty());
}

TEST_F(WorkerCoreTest, WhatComesAfterTheCoreIsDestroyedIsNothing) {
  ps_[0].Hold();
  Attach();
  Dispatch(1, "assign");
  Run();
  core_.reset();
  ps_[0].Release();
  Run(absl::Minutes(5));
  end_->Tell(Ping{});
  EXPECT_EQ(commits(), 2u);
}

}  // namespace
}  // namespace divvy
