// The coordinator in virtual time, with fake parameter servers and workers. Tests that need real
// servers and workers are in tests/sim.
#include "coordinator/core/coordinator_core.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/testing/captured_log.h"
#include "base/testing/sim_executor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "protocol/testing/request_name.h"
#include "variables/dynamic_table.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

// Answers every call with OK, a millisecond later, unless a test sets another answer.
class FakePs : public Sends<FakePs, ParameterClient> {
  Executor& executor_;
  std::vector<std::string>& log_;
  const int index_;

 public:
  FakePs(Executor& executor, std::vector<std::string>& log, int index)
      : executor_(executor), log_(log), index_(index) {}
  template <typename Request>
  void Send(Request, ResultCallback<ReplyTo<Request>> done) {
    Answer(std::string(RequestName<Request>()), std::move(done), ReplyTo<Request>());
  }
  void Send(PsAttachRequest request, ResultCallback<PsAttachReply> done) {
    PsAttachReply reply = holds;
    reply.incarnation = Incarnation(incarnation);
    reply.max_commit_bytes = max_commit_bytes;
    attached = request.fence;
    absl::Status refused;
    if (request.fence.target != Incarnation() && request.fence.target != reply.incarnation)
      refused = MakeError(Reason::kWrongIncarnation, "another life");
    if (request.fence.epoch < epoch) {
      ErrorDetail detail;
      detail.reason = Reason::kStaleEpoch;
      detail.epoch = epoch;
      refused = MakeError(detail, "a later epoch has begun");
    }
    if (refused.ok()) return Answer("Attach", std::move(done), reply);
    executor_.PostAfter(absl::Milliseconds(1), [done, refused] { done(refused); });
  }
  void Send(LoadRequest request, ResultCallback<LoadReply> done) {
    loaded = std::move(request);
    if (loaded.from == LoadRequest::From::kCheckpoint && damaged == loaded.checkpoint) {
      const absl::Status refused = MakeError(Reason::kCheckpointCorrupt, "it is damaged");
      executor_.PostAfter(absl::Milliseconds(1), [done, refused] { done(refused); });
      return;
    }
    if (loaded.from == LoadRequest::From::kCheckpoint && !load_progress.empty()) {
      const LoadReply reply{true, load_progress.front(), 0, 1000};
      load_progress.pop_front();
      executor_.PostAfter(absl::Milliseconds(500), [done, reply] { done(reply); });
      return;
    }
    Answer("Load", std::move(done),
           LoadReply{false, 0, loaded.layout_hash + (loads_other_layout ? 1 : 0)});
  }
  void Send(SnapshotRequest request, ResultCallback<SnapshotReply> done) {
    SnapshotReply reply;
    reply.done = request.wait;
    Answer(request.wait ? "Snapshot, written" : "Snapshot", std::move(done), reply);
  }
  void Send(SyncRequest request, ResultCallback<SyncReply> done) {
    SyncReply reply;
    reply.seq = request.seq;
    reply.draining = draining;
    reply.tables = tables;
    for (const EntryId id : request.query) {
      if (applied.count(id) > 0) reply.applied.push_back({id, applied[id], EntryKind::kStep});
    }
    sessions = request.sessions;
    owners = request.workers;
    horizon = request.horizon;
    Answer("", std::move(done), reply);
  }
  void Send(CreateShardsRequest request, ResultCallback<LayoutReply> done) {
    created = std::move(request.shards);
    Answer("CreateShards", std::move(done), LayoutReply());
  }
  void Send(CommitRequest request, ResultCallback<CommitReply> done) {
    commits.push_back(request.entry);
    Answer("Commit", std::move(done), CommitReply());
  }

  uint64_t incarnation = 100 + index_;
  int64_t max_commit_bytes = 0;
  bool draining = false;
  bool loads_other_layout = false;
  // Whether a completion of this server is running.
  bool answers = false;
  // The epoch that the server obeys.
  Epoch epoch;
  // The fence of the last Attach.
  Fence attached;
  // What it tells of its parts of tables.
  std::vector<SyncReply::Table> tables;
  // If not OK: the answer to every call.
  absl::Status down;
  // Call -> the error that answers it.
  std::map<std::string, absl::Status> refuses;
  // Id -> participants.
  std::map<EntryId, int> applied;
  std::vector<SessionId> sessions;
  // The workers of these sessions.
  std::vector<int> owners;
  Horizon horizon;
  // The reply to Attach.
  PsAttachReply holds;
  LoadRequest loaded;
  // While it loads a checkpoint of 1,000 bytes: what it answers every half second.
  std::deque<int64_t> load_progress;
  // The checkpoint that the server cannot load.
  std::optional<CheckpointId> damaged;
  std::vector<ShardSpec> created;
  std::vector<EntryId> commits;

 private:
  template <typename Reply>
  void Answer(const std::string& call, ResultCallback<Reply> done, Reply reply) {
    if (!call.empty()) log_.push_back(absl::StrCat("ps ", index_, " ", call));
    absl::Status status = down;
    if (status.ok() && refuses.count(call) > 0) status = refuses[call];
    executor_.PostAfter(absl::Milliseconds(1), [this, done, reply, status] {
      answers = true;
      done(status.ok() ? absl::StatusOr<Reply>(reply) : absl::StatusOr<Reply>(status));
      answers = false;
    });
  }
};

// A store whose disk may be slow.
class SlowStore : public MemoryStore {
 public:
  explicit SlowStore(Executor& executor) : MemoryStore(executor) {}
  void Put(StoreChange change, std::function<void(absl::Status)> done) override {
    if (!slow) return MemoryStore::Put(std::move(change), std::move(done));
    waiting_.push_back([this, change = std::move(change), done = std::move(done)] {
      MemoryStore::Put(change, done);
    });
  }
  void WriteAll() {
    slow = false;
    for (const auto& write : std::exchange(waiting_, {})) write();
  }
  bool slow = false;

 private:
  std::vector<std::function<void()>> waiting_;
};

// Takes dispatches and keeps them until a test reports.
class FakeWorker : public WorkerClient, public std::enable_shared_from_this<FakeWorker> {
 public:
  FakeWorker(Executor& executor, std::vector<std::string>& log, int index)
      : executor_(executor), log_(log), index_(index) {}
  void Call(WorkerAttachRequest request, ResultCallback<WorkerAttachReply> done) override {
    session = request.fence.session;
    flags = request.program_flags;
    if (!refuses.ok()) return executor_.Post([done, refused = refuses] { done(refused); });
    stream = std::make_unique<ResumableStream<FromWorker, ToWorker>>(session);
    dispatched.clear();
    executor_.PostAfter(absl::Milliseconds(1),
                        [done, reply = WorkerAttachReply{Incarnation(200 + index_), replicas, 1,
                                                         program}] { done(reply); });
  }
  void Call(ShutdownRequest request, ResultCallback<ShutdownReply> done) override {
    log_.push_back(absl::StrCat("worker ", index_, " Shutdown"));
    executor_.Post([done] { done(ShutdownReply()); });
  }
  std::shared_ptr<StreamConnection<ToWorker>> OpenSteps(
      std::shared_ptr<StreamListener<FromWorker>> listener) override {
    class Connection : public StreamConnection<ToWorker> {
     public:
      explicit Connection(std::shared_ptr<FakeWorker> worker) : worker_(std::move(worker)) {}
      void Send(StreamFrame<ToWorker> frame) override {
        // Tasks of the same time run in any order, but frames must arrive in the order of sending.
        worker_->inbox_.push_back(std::move(frame));
        worker_->executor_.Post([worker = worker_] { worker->TakeFrame(); });
      }
      void Close() override {}

     private:
      const std::shared_ptr<FakeWorker> worker_;
    };
    listener_ = std::move(listener);
    executor_.Post(
        [listener = listener_, resume = stream->Connect()] { listener->OnFrame(resume); });
    return std::make_shared<Connection>(shared_from_this());
  }

  void Say(FromWorker message) {
    if (auto frame = stream->Send(std::move(message))) outbox_.push_back(*std::move(frame));
    executor_.Post([worker = shared_from_this()] { worker->PassOn(); });
  }
  void Finish(const Dispatch& dispatch, StepOutcome outcome = StepOutcome::kOk,
              absl::Status error = {}, std::vector<int> participants = {}) {
    Report report;
    report.step = dispatch.step;
    report.attempt = dispatch.attempt;
    report.outcome = outcome;
    report.error = std::move(error);
    report.participants = std::move(participants);
    Say(std::move(report));
  }
  // Reports the oldest dispatch as done.
  Dispatch FinishNext(StepOutcome outcome = StepOutcome::kOk, absl::Status error = {},
                      std::vector<int> participants = {}) {
    const Dispatch next = dispatched.front();
    dispatched.pop_front();
    Finish(next, outcome, std::move(error), std::move(participants));
    return next;
  }

  SessionId session;
  std::unique_ptr<ResumableStream<FromWorker, ToWorker>> stream;
  std::deque<Dispatch> dispatched;
  // The number of layouts received in all, and before the newest dispatch.
  int layouts = 0, layouts_at_dispatch = 0;
  std::vector<EntryId> cancelled;
  std::vector<MakeResource> made;
  // Whether it opens data at once and reports nothing about the data.
  bool opens = true;
  int replicas = 1;
  ProgramDescription program;
  // Sends nothing, not even Pong.
  bool silent = false;
  // The answer to a Ping.
  Pong pong;
  bool obeys_hold = true;
  // If not OK: the answer to every Attach.
  absl::Status refuses;
  std::map<std::string, std::string> flags;

 private:
  void PassOn() {
    for (; !outbox_.empty(); outbox_.pop_front()) listener_->OnFrame(outbox_.front());
  }
  void TakeFrame() {
    const StreamFrame<ToWorker> frame = std::move(inbox_.front());
    inbox_.pop_front();
    if (!silent) OnFrame(frame);
  }
  void OnFrame(const StreamFrame<ToWorker>& frame) {
    std::vector<StreamFrame<FromWorker>> resend;
    std::optional<ToWorker> message;
    if (!stream->Receive(frame, resend, message).ok() || !message) return;
    layouts += std::holds_alternative<LayoutUpdate>(*message);
    if (auto* dispatch = std::get_if<Dispatch>(&*message))
      dispatched.push_back(*dispatch), layouts_at_dispatch = layouts;
    if (auto* make = std::get_if<MakeResource>(&*message)) {
      made.push_back(*make);
      if (opens) Say(ResourceReady{make->iterator, absl::OkStatus(), std::nullopt});
    }
    if (auto* cancel = std::get_if<CancelSteps>(&*message))
      cancelled.insert(cancelled.end(), cancel->steps.begin(), cancel->steps.end());
    if (std::holds_alternative<Ping>(*message)) Say(pong);
    if (auto* hold = std::get_if<Hold>(&*message)) {
      log_.push_back(absl::StrCat("worker ", index_, " Hold"));
      if (obeys_hold) Say(Held{hold->number});
    }
    if (std::holds_alternative<Release>(*message))
      log_.push_back(absl::StrCat("worker ", index_, " Release"));
  }
  Executor& executor_;
  std::vector<std::string>& log_;
  const int index_;
  std::deque<StreamFrame<ToWorker>> inbox_;
  std::deque<StreamFrame<FromWorker>> outbox_;
  std::shared_ptr<StreamListener<FromWorker>> listener_;
};

class CoordinatorCoreTest : public ::testing::Test, public Dialer {
 protected:
  ~CoordinatorCoreTest() override {
    if (core_ != nullptr) core_->Abandon();
  }
  std::shared_ptr<ParameterClient> ParameterServer(const std::string& address) override {
    return ps_.at(address.back() - '0');
  }
  std::shared_ptr<WorkerClient> Worker(const std::string& address) override {
    return workers_.at(address.back() - '0');
  }

  void Boot(int num_ps, int num_workers, CoordinatorOptions options) {
    options.incarnation = Incarnation(1);
    for (int i = 0; i < num_ps; ++i) {
      ps_.push_back(std::make_shared<FakePs>(world_, log_, i));
      ps_.back()->max_commit_bytes = max_commit_bytes_;
      options.ps_addresses.push_back(absl::StrCat("ps", i));
    }
    for (int i = 0; i < num_workers; ++i) {
      workers_.push_back(std::make_shared<FakeWorker>(world_, log_, i));
      options.worker_addresses[i] = absl::StrCat("worker", i);
    }
    core_ = *CoordinatorCore::Start(options, world_, world_.clock(), *this, store_);
  }
  void Start(int num_ps, int num_workers, CoordinatorOptions options = {}) {
    Boot(num_ps, num_workers, std::move(options));
    world_.RunFor(absl::Milliseconds(500));
    ASSERT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kRunning);
  }
  // The status that a call has ended with, if `over`. The completion that Watch gives to `start`
  // sets it.
  struct Outcome {
    bool over = false;
    absl::Status status;
  };
  std::shared_ptr<Outcome> Watch(const std::function<void(StatusCallback)>& start) {
    auto outcome = std::make_shared<Outcome>();
    start([outcome](absl::Status status) { *outcome = {true, std::move(status)}; });
    return outcome;
  }
  // Registers a worker that is not listed, at an address of its own.
  void Come(int index) {
    const std::string address = absl::StrCat("worker", workers_.size());
    workers_.push_back(
        std::make_shared<FakeWorker>(world_, log_, static_cast<int>(workers_.size())));
    core_->Call({Role::kWorker, index, Incarnation(1'000 + index), address},
                [](const absl::StatusOr<RegisterReply>&) {});
  }
  // The number of shares that data of the workers' own is cut into now.
  int SharesOfData() {
    core_->MakeIterator("data", Nest(), /*leased=*/false);
    world_.RunFor(absl::Milliseconds(20));
    return workers_[0]->made.back().num_workers;
  }
  std::shared_ptr<Outcome> Run(const RunRequest& request) {
    return Watch([&](StatusCallback done) {
      core_->Run(
          request, [](const Nest&) {}, std::move(done));
    });
  }
  std::shared_ptr<Outcome> Schedule(const std::string& function) {
    auto result = std::make_shared<Outcome>();
    accepted_.push_back(Watch([&](StatusCallback accepted) {
      core_->Schedule(
          {function, Nest(), false},
          [result](absl::StatusOr<Nest> value) {
            *result = {true, value.status()};
          },
          std::move(accepted));
    }));
    world_.RunFor(absl::Milliseconds(20));
    return result;
  }
  // A write that assigns all values of a variable of rank 1.
  static StagedWrite WriteOf(const std::string& variable, const std::vector<float>& values) {
    StagedWrite write;
    write.variable = variable;
    write.value = Tensor::Vector<float>(absl::MakeConstSpan(values));
    return write;
  }
  // Another process takes the address of the ps and registers.
  void LosePs(int index) {
    RegisterRequest request;
    request.role = Role::kPs;
    request.index = index;
    request.incarnation = Incarnation(ps_[index]->incarnation += 1'000);
    request.address = absl::StrCat("ps", index);
    core_->Call(request, [](const absl::StatusOr<RegisterReply>&) {});
    world_.RunFor(absl::Milliseconds(100));
  }
  absl::Status WhyOver() {
    const auto join = Watch([&](StatusCallback done) { core_->Join(std::move(done)); });
    world_.RunFor(absl::Milliseconds(20));
    return join->over ? join->status : absl::UnknownError("it is not over");
  }
  std::shared_ptr<Outcome> Create(const VariableSpec& spec,
                                  std::optional<Colocation> with = std::nullopt) {
    auto outcome =
        Watch([&](StatusCallback done) { core_->CreateVariable(spec, with, std::move(done)); });
    world_.RunFor(absl::Milliseconds(100));
    return outcome;
  }

  int64_t max_commit_bytes_ = 0;
  SimExecutor world_{1};
  SlowStore store_{world_};
  std::vector<std::string> log_;
  std::vector<std::shared_ptr<FakePs>> ps_;
  std::vector<std::shared_ptr<FakeWorker>> workers_;
  std::shared_ptr<CoordinatorCore> core_;
  std::vector<std::shared_ptr<Outcome>> accepted_;
};

TEST_F(CoordinatorCoreTest, BadOptionsAreReportedAllAtOnce) {
  CoordinatorOptions options;
  options.min_workers = 0;
  const absl::Status status = options.Validate();
  EXPECT_THAT(std::string(status.message()), HasSubstr("incarnation"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("parameter server"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("min_workers"));
}

TEST_F(CoordinatorCoreTest, AServerThatHasLoadedAnotherLayoutEndsTheJob) {
  CoordinatorOptions options;
  Boot(2, 1, options);
  ps_[1]->loads_other_layout = true;
  world_.RunFor(absl::Milliseconds(500));
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kFailed);
  const auto told = Watch([&](StatusCallback done) { core_->WhenRunning(std::move(done)); });
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_THAT(std::string(told->status.message()),
              HasSubstr("ps 1 has loaded another layout of the variables"));
}

// Copying gigabytes takes seconds, and every message of the coordinator goes through its outbox.
TEST_F(CoordinatorCoreTest, WhatAReadBringsIsAssembledOutsideOfTheOutbox) {
  Start(2, 1);
  ASSERT_TRUE(Create({"table", {2}})->status.ok());
  std::vector<bool> within_an_answer;
  core_->Read({{"table", std::nullopt}}, [&](const absl::StatusOr<std::vector<Tensor>>&) {
    within_an_answer.push_back(ps_[0]->answers || ps_[1]->answers);
  });
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_EQ(within_an_answer, std::vector<bool>({false}));
}

TEST_F(CoordinatorCoreTest, AStepHasTheMinuteOfTheJob) {
  Start(1, 1);
  Schedule("a");
  EXPECT_EQ(workers_[0]->dispatched.back().tick, 0u);
  workers_[0]->FinishNext();
  world_.RunFor(absl::Minutes(3));
  Schedule("b");
  ASSERT_FALSE(workers_[0]->dispatched.empty());
  EXPECT_EQ(workers_[0]->dispatched.back().tick, 3u);
}

TEST_F(CoordinatorCoreTest, StepsStartInOrderAndSeveralWaitAtAWorker) {
  Start(1, 1);
  for (const char* name : {"a", "b", "c", "d"}) Schedule(name);
  ASSERT_EQ(workers_[0]->dispatched.size(), 3u);  // one runs, two wait there
  EXPECT_EQ(workers_[0]->dispatched[0].function, "a");
  EXPECT_EQ(workers_[0]->dispatched[0].ordinal, 0);
  EXPECT_EQ(workers_[0]->dispatched[2].ordinal, 2);
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_EQ(workers_[0]->dispatched.back().function, "d");
}

TEST_F(CoordinatorCoreTest, ScheduleWaitsWhileTheQueueIsFull) {
  CoordinatorOptions options;
  options.max_queued_steps = 2;
  Start(1, 1, options);
  for (int i = 0; i < 6; ++i) Schedule("step");  // 3 at the worker, 2 in the queue
  EXPECT_TRUE(accepted_[4]->over);
  EXPECT_FALSE(accepted_[5]->over);
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_TRUE(accepted_[5]->over);
}

TEST_F(CoordinatorCoreTest, AScheduleIsAcceptedWhileSomebodyJoins) {
  Start(1, 1);
  Schedule("first");
  const auto join = Watch([&](StatusCallback done) { core_->Join(std::move(done)); });
  Schedule("second");
  EXPECT_TRUE(accepted_[1]->over);
  EXPECT_EQ(workers_[0]->dispatched.size(), 2u);
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  // Join also waits for the step that was scheduled after it.
  EXPECT_FALSE(join->over);
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_TRUE(join->over && join->status.ok());
}

TEST_F(CoordinatorCoreTest, ServersAreToldWhoseEachSessionIs) {
  Start(1, 3);
  world_.RunFor(absl::Seconds(2));
  ASSERT_EQ(ps_[0]->sessions.size(), 3u);
  ASSERT_EQ(ps_[0]->owners.size(), 3u);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(ps_[0]->sessions[i], workers_[static_cast<size_t>(ps_[0]->owners[i])]->session);
}

TEST_F(CoordinatorCoreTest, ASilentWorkerIsFencedBeforeItsStepIsGivenToAnother) {
  Start(2, 2);
  const auto result = Schedule("step");
  FakeWorker& first = workers_[0]->dispatched.empty() ? *workers_[1] : *workers_[0];
  FakeWorker& second = &first == workers_[0].get() ? *workers_[1] : *workers_[0];
  const SessionId lost = first.session;
  first.silent = true;
  ps_[0]->down = absl::UnavailableError("away");
  world_.RunFor(absl::Seconds(8));
  EXPECT_TRUE(second.dispatched.empty());  // ps 0 has not confirmed the fence
  ps_[0]->down = absl::OkStatus();
  world_.RunFor(absl::Seconds(12));
  ASSERT_EQ(second.dispatched.size(), 1u);
  EXPECT_EQ(second.dispatched[0].attempt, 2u);
  EXPECT_EQ(std::count(ps_[0]->sessions.begin(), ps_[0]->sessions.end(), lost), 0);
  second.FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_TRUE(result->over && result->status.ok());
}

TEST_F(CoordinatorCoreTest, AHalfAppliedStepThatTouchesOtherPsWhenRunAgainEndsTheJob) {
  CoordinatorOptions options;
  options.durability = Durability::kCheckpoint;
  Start(2, 1, options);
  const auto result = Schedule("step");
  const EntryId id = workers_[0]->dispatched[0].step;
  // The lost attempt had two participants, and ps 1 has not received its commit.
  ps_[0]->applied[id] = 2;
  workers_[0]->silent = true;
  world_.RunFor(absl::Seconds(7));
  workers_[0]->silent = false;
  world_.RunFor(absl::Seconds(10));
  ASSERT_FALSE(workers_[0]->dispatched.empty());
  ASSERT_EQ(workers_[0]->dispatched[0].step, id);
  workers_[0]->FinishNext(StepOutcome::kOk, {}, {1});
  world_.RunFor(absl::Milliseconds(100));
  EXPECT_EQ(ReasonOf(result->status), Reason::kPsLost);
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kFailed);
  const auto join = Watch([&](StatusCallback done) { core_->Join(std::move(done)); });
  EXPECT_EQ(join->status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(CoordinatorCoreTest, AStepThatKeepsLosingItsInputIsGivenUpAfterItsAttempts) {
  CoordinatorOptions options;
  options.max_step_attempts = 3;
  Start(1, 1, options);
  const auto result = Schedule("step");
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(workers_[0]->dispatched.size(), 1u) << i;
    workers_[0]->FinishNext(StepOutcome::kSystem, absl::AbortedError("input lost"));
    world_.RunFor(absl::Milliseconds(50));
    EXPECT_EQ(workers_[0]->dispatched.size(), i == 0 ? 1u : 0u)
        << "the first retry is immediate, the second comes after 100 ms";
    world_.RunFor(absl::Milliseconds(100));
  }
  EXPECT_EQ(ReasonOf(result->status), Reason::kStepGaveUp);
  EXPECT_THAT(std::string(result->status.message()), HasSubstr("3 attempts"));
}

TEST_F(CoordinatorCoreTest, AStepThatBreaksTheGpusOfThreeWorkersIsGivenUpAndTellsWhatWasLost) {
  Start(1, 3);
  const auto result = Schedule("step");
  const auto join = Watch([&](StatusCallback done) { core_->Join(std::move(done)); });
  std::set<int> tried;
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(result->over) << i;
    const auto runs = std::find_if(workers_.begin(), workers_.end(),
                                   [](const auto& worker) { return !worker->dispatched.empty(); });
    ASSERT_NE(runs, workers_.end()) << i;
    tried.insert(static_cast<int>(runs - workers_.begin()));
    (*runs)->Say(Draining());
    (*runs)->FinishNext(
        StepOutcome::kSystem,
        MakeError(Reason::kDeviceLost,
                  "GPU:0 (H200) is lost: an illegal memory access was encountered"));
    world_.RunFor(absl::Milliseconds(500));
  }
  EXPECT_EQ(tried.size(), 3u);
  EXPECT_EQ(ReasonOf(result->status), Reason::kStepGaveUp);
  EXPECT_THAT(std::string(result->status.message()), HasSubstr("was given up after 3 attempts: "));
  EXPECT_THAT(std::string(result->status.message()),
              HasSubstr("GPU:0 (H200) is lost: an illegal memory access was encountered"));
  EXPECT_EQ(ReasonOf(join->status), Reason::kStepGaveUp);
}

TEST_F(CoordinatorCoreTest, OneWorkerThatSaysAgainAndAgainThatItsGpuIsLostHasNoStepGivenUp) {
  Start(1, 1);
  const auto result = Schedule("step");
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(workers_[0]->dispatched.size(), 1u) << i;
    workers_[0]->FinishNext(StepOutcome::kSystem, MakeError(Reason::kDeviceLost, "GPU:0 is lost"));
    world_.RunFor(absl::Seconds(4));
  }
  EXPECT_FALSE(result->over);
}

// The program makes a new iterator for each pass.
TEST_F(CoordinatorCoreTest, WhatIsKnownOfPassesThatAreOverDoesNotGrow) {
  Start(1, 1);
  for (int pass = 0; pass < 300; ++pass) {
    RunRequest request;
    request.step.function = "step";
    request.source = "data";
    request.source_args = Nest(Tensor::Scalar<int64_t>(pass));
    const auto over = Run(request);
    world_.RunFor(absl::Milliseconds(20));
    while (!workers_[0]->dispatched.empty()) {
      const ResourceId iterator = workers_[0]->made.back().iterator;
      Report report;
      report.step = workers_[0]->dispatched[0].step;
      report.attempt = workers_[0]->dispatched[0].attempt;
      report.ended = {{iterator, 0}};
      workers_[0]->Say(std::move(report));
      workers_[0]->dispatched.erase(workers_[0]->dispatched.begin());
      world_.RunFor(absl::Milliseconds(20));
    }
    ASSERT_TRUE(over->over) << pass;
  }
  const std::map<std::string, int64_t> sizes = core_->Sizes();
  EXPECT_LE(sizes.at("iterators of workers"), 1);
  EXPECT_LE(sizes.at("known sizes of data"), 256);
  EXPECT_EQ(sizes.at("passes that have ended"), 0);
}

TEST_F(CoordinatorCoreTest, AStepPastItsDeadlineIsCancelledAndThenItsWorkerIsLost) {
  CoordinatorOptions options;
  options.step_deadline = absl::Seconds(20);
  Start(1, 1, options);
  Schedule("step");
  const SessionId session = workers_[0]->session;
  world_.RunFor(absl::Seconds(19));
  EXPECT_TRUE(workers_[0]->cancelled.empty());
  world_.RunFor(absl::Seconds(5));
  EXPECT_FALSE(workers_[0]->cancelled.empty());
  world_.RunFor(absl::Seconds(10));
  EXPECT_NE(workers_[0]->session, session);
}

// A lying worker said in each Pong that it waits for a ps, and kept its step for ever.
TEST_F(CoordinatorCoreTest, AStepWhoseWorkerWaitsForAServerThatServesHasTwiceItsDeadline) {
  CoordinatorOptions options;
  options.step_deadline = absl::Seconds(20);
  Start(1, 1, options);
  Schedule("step");
  workers_[0]->pong = Pong{0, 1, /*blocked_on_ps=*/0, absl::Seconds(1)};
  world_.RunFor(absl::Seconds(38));
  EXPECT_TRUE(workers_[0]->cancelled.empty());
  world_.RunFor(absl::Seconds(6));
  EXPECT_FALSE(workers_[0]->cancelled.empty());
}

TEST_F(CoordinatorCoreTest, AStepWhoseWorkerWaitsForAServerThatIsSilentKeepsIt) {
  CoordinatorOptions options;
  options.step_deadline = absl::Seconds(20);
  Start(1, 1, options);
  Schedule("step");
  ps_[0]->down = absl::UnavailableError("no answer");
  workers_[0]->pong = Pong{0, 1, /*blocked_on_ps=*/0, absl::Seconds(1)};
  const SessionId session = workers_[0]->session;
  world_.RunFor(absl::Minutes(2));
  EXPECT_TRUE(workers_[0]->cancelled.empty());
  EXPECT_EQ(workers_[0]->session, session) << "the worker was lost";
  EXPECT_EQ(core_->Snapshot().in_flight, 1);
}

TEST_F(CoordinatorCoreTest, AStepWhoseWorkerWaitsForAServerThatIsNotThereHasTwiceItsDeadline) {
  CoordinatorOptions options;
  options.step_deadline = absl::Seconds(20);
  Start(1, 1, options);
  Schedule("step");
  workers_[0]->pong = Pong{0, 1, /*blocked_on_ps=*/60'000, absl::Seconds(1)};
  world_.RunFor(absl::Seconds(38));
  EXPECT_TRUE(workers_[0]->cancelled.empty());
  world_.RunFor(absl::Seconds(6));
  EXPECT_FALSE(workers_[0]->cancelled.empty());
}

TEST_F(CoordinatorCoreTest, AStepThatObeysItsDeadlineIsRunAgainAndAtLastGivenUpByName) {
  CoordinatorOptions options;
  options.step_deadline = absl::Seconds(20);
  options.max_step_attempts = 2;
  Start(1, 1, options);
  const auto result = Schedule("slow");
  const auto join = Watch([&](StatusCallback done) { core_->Join(std::move(done)); });
  for (int attempt = 1; attempt <= 2; ++attempt) {
    ASSERT_EQ(workers_[0]->dispatched.size(), 1u) << attempt;
    world_.RunFor(absl::Seconds(24));
    ASSERT_FALSE(workers_[0]->cancelled.empty());
    workers_[0]->FinishNext(StepOutcome::kCancelled);
    world_.RunFor(absl::Milliseconds(50));
  }
  EXPECT_TRUE(result->over);
  EXPECT_EQ(join->status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(join->status.message()),
              HasSubstr("step slow was given up after 2 attempts: the last ran longer than "
                        "--step_deadline (20s)"));
}

TEST_F(CoordinatorCoreTest, SlotsThatAPsRefusesFailTheStepThatNeedsThemWithItsWords) {
  Start(1, 1);
  Create({"x", {4}});
  const auto result = Schedule("train");
  ps_[0]->refuses["CreateShards"] =
      MakeError(Reason::kMemoryLimit, "ps 0 has no memory for x/adam/m");
  workers_[0]->Say(NeedSlots{workers_[0]->dispatched[0].step, {{"x", Adam{0.001}}}});
  world_.RunFor(absl::Milliseconds(100));
  EXPECT_THAT(workers_[0]->cancelled, ElementsAre(workers_[0]->dispatched[0].step));
  workers_[0]->FinishNext(StepOutcome::kCancelled);
  world_.RunFor(absl::Milliseconds(50));
  EXPECT_EQ(ReasonOf(result->status), Reason::kMemoryLimit);
  EXPECT_THAT(std::string(result->status.message()), HasSubstr("no memory for x/adam/m"));
}

// The first step of each worker asks for the slots of every variable. With 40 workers and 100
// variables the coordinator once ran out of stack.
TEST_F(CoordinatorCoreTest, SlotsThatManyWorkersAskForAreCreatedOnceAndToldTogether) {
  constexpr int kVariables = 100, kRequests = 200;
  Start(1, 1);
  std::vector<std::pair<std::string, Optimizer>> missing;
  for (int i = 0; i < kVariables; ++i) {
    ASSERT_TRUE(Create({absl::StrCat("v", i), {4}})->status.ok());
    missing.emplace_back(absl::StrCat("v", i), Adam{0.001});
  }
  EXPECT_LT(workers_[0]->layouts, kVariables / 4) << "as many as pings, not as variables";
  Schedule("train");
  log_.clear();
  workers_[0]->layouts = 0;
  for (int i = 0; i < kRequests; ++i)
    workers_[0]->Say(NeedSlots{workers_[0]->dispatched[0].step, missing});
  world_.RunFor(absl::Seconds(2));
  EXPECT_TRUE(core_->layout()->Find("v99")->SlotsFor(Adam{0.001}).has_value());
  EXPECT_EQ(std::count(log_.begin(), log_.end(), "ps 0 CreateShards"), kVariables);
  EXPECT_GE(workers_[0]->layouts, 1);
  EXPECT_LT(workers_[0]->layouts, kVariables / 4);
}

// Pings, which would bring the layout too, come once a second.
TEST_F(CoordinatorCoreTest, AStepIsToldOfItsSlotsAtOnce) {
  Start(1, 1);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Create({absl::StrCat("v", i), {4}})->status.ok());
  Schedule("train");
  for (int i = 0; i < 5; ++i) {
    const int layouts = workers_[0]->layouts;
    workers_[0]->Say(
        NeedSlots{workers_[0]->dispatched[0].step, {{absl::StrCat("v", i), Adam{0.001}}}});
    world_.RunFor(absl::Milliseconds(100));
    EXPECT_GT(workers_[0]->layouts, layouts) << i;
  }
}

TEST_F(CoordinatorCoreTest, AGradientThatTheProgramAppliesItselfGetsItsSlotsFirst) {
  Start(1, 1);
  ASSERT_TRUE(Create({"x", {4}})->status.ok());
  StagedWrite write = WriteOf("x", {1, 2, 3, 4});
  write.op = WriteOp::kGradient;
  write.optimizer = Adam{0.001};
  log_.clear();
  const auto written = Watch([&](StatusCallback done) { core_->Write({write}, std::move(done)); });
  world_.RunFor(absl::Milliseconds(100));
  EXPECT_TRUE(written->over && written->status.ok()) << written->status;
  EXPECT_THAT(log_, ElementsAre("ps 0 CreateShards", "ps 0 Commit"));
}

// Cutting a write of gigabytes takes seconds. The completion of its slots' creation runs in the
// outbox, which must not wait so long.
TEST_F(CoordinatorCoreTest, AWriteThatHasWaitedForItsSlotsIsPlannedOnAThreadOfItsOwn) {
  Start(1, 1);
  ASSERT_TRUE(Create({"x", {4}})->status.ok());
  StagedWrite write = WriteOf("x", {1, 2, 3, 4});
  write.op = WriteOp::kGradient;
  write.optimizer = Adam{0.001};
  world_.HoldThreads();
  const auto written = Watch([&](StatusCallback done) { core_->Write({write}, std::move(done)); });
  world_.RunFor(absl::Seconds(20));
  EXPECT_THAT(log_, Contains("ps 0 CreateShards"));
  EXPECT_TRUE(ps_[0]->commits.empty()) << "the write was planned in the outbox";
  EXPECT_EQ(core_->Snapshot().lost_workers, 0) << "workers are answered during the planning";
  world_.ReleaseThreads();
  world_.RunFor(absl::Milliseconds(100));
  EXPECT_TRUE(written->over && written->status.ok()) << written->status;
  EXPECT_EQ(ps_[0]->commits.size(), 1u);
}

TEST_F(CoordinatorCoreTest, AGradientWhoseSlotsAreRefusedIsRefusedWithTheWordsOfThePs) {
  Start(1, 1);
  ASSERT_TRUE(Create({"x", {4}})->status.ok());
  ps_[0]->refuses["CreateShards"] = MakeError(Reason::kMemoryLimit, "no room for slots");
  StagedWrite write = WriteOf("x", {1, 2, 3, 4});
  write.op = WriteOp::kGradient;
  write.optimizer = Adam{0.001};
  const auto written = Watch([&](StatusCallback done) { core_->Write({write}, std::move(done)); });
  world_.RunFor(absl::Milliseconds(100));
  ASSERT_TRUE(written->over);
  EXPECT_EQ(ReasonOf(written->status), Reason::kMemoryLimit) << written->status;
  EXPECT_TRUE(ps_[0]->commits.empty());
}

TEST_F(CoordinatorCoreTest, AGradientOfTheProgramWhoseLearningRateCannotBeIsTheProgramsError) {
  Start(1, 1);
  ASSERT_TRUE(Create({"x", {4}})->status.ok());
  core_->SetLearningRateScale(1e300);
  StagedWrite write = WriteOf("x", {1, 2, 3, 4});
  write.op = WriteOp::kGradient;
  write.optimizer = Sgd{0.1};
  const auto written = Watch([&](StatusCallback done) { core_->Write({write}, std::move(done)); });
  world_.RunFor(absl::Milliseconds(100));
  ASSERT_TRUE(written->over);
  EXPECT_EQ(written->status.code(), absl::StatusCode::kInvalidArgument) << written->status;
  EXPECT_TRUE(ps_[0]->commits.empty());
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kRunning);
}

TEST_F(CoordinatorCoreTest, AWriteDoesNotWaitForAWorkerThatMayNeverComeBack) {
  Start(1, 1);
  ASSERT_TRUE(Create({"x", {4}})->status.ok());
  Schedule("step");
  workers_[0]->silent = true;
  workers_[0]->refuses = absl::UnavailableError("it is gone");
  world_.RunFor(absl::Seconds(20));
  const auto written = Watch([&](StatusCallback done) {
    core_->Write({WriteOf("x", {1, 2, 3, 4})}, std::move(done));
  });
  world_.RunFor(absl::Seconds(1));
  EXPECT_TRUE(written->over && written->status.ok()) << written->status;
}

TEST_F(CoordinatorCoreTest, StepsCommitBetweenTheWritesOfSeveralThreads) {
  Start(1, 1);
  ASSERT_TRUE(Create({"x", {4}})->status.ok());
  Schedule("step");
  std::function<void()> write_on = [&] {
    core_->Write({WriteOf("x", {1, 2, 3, 4})},
                 [&](const absl::Status&) { world_.Post([&] { write_on(); }); });
  };
  for (int threads = 0; threads < 2; ++threads) world_.Post([&] { write_on(); });
  world_.RunFor(absl::Seconds(2));
  const auto releases = std::count(log_.begin(), log_.end(), "worker 0 Release");
  EXPECT_GT(releases, 3);
  write_on = [] {};
}

TEST_F(CoordinatorCoreTest, ARunOverEachWorkersOwnDataWaitsForTheFirstWorkerAndEndsWithTheLast) {
  Start(1, 1);
  workers_[0]->silent = true;
  workers_[0]->refuses = absl::UnavailableError("it is being started");
  world_.RunFor(absl::Seconds(7));
  const auto ran = Run({{"step", Nest(), false}, "data", Nest(), /*leased=*/false, {}});
  world_.RunFor(absl::Seconds(1));
  EXPECT_FALSE(ran->over);
  workers_[0]->silent = false;
  workers_[0]->refuses = absl::OkStatus();
  world_.RunFor(absl::Seconds(10));
  ASSERT_FALSE(workers_[0]->dispatched.empty());
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(50));
  while (!workers_[0]->dispatched.empty())
    workers_[0]->FinishNext(StepOutcome::kEndOfData, EndOfData("end"));
  world_.RunFor(absl::Milliseconds(50));
  EXPECT_TRUE(ran->over);
  EXPECT_EQ(core_->step(), 1);
}

TEST_F(CoordinatorCoreTest, StepsThatAskForMoreThanEachWorkersDataEndWithItAndJoinReturns) {
  Start(1, 1);
  const ResourceId iterator = core_->MakeIterator("data", Nest(), /*leased=*/false);
  std::vector<absl::Status> results;
  for (int i = 0; i < 6; ++i) {
    core_->Schedule(
        {"step", Nest(Nest::List{Nest(PerWorkerHandle{iterator.value()})}), false},
        [&results](absl::StatusOr<Nest> value) { results.push_back(value.status()); },
        [](const absl::Status&) {});
  }
  world_.RunFor(absl::Milliseconds(50));
  const auto join = Watch([&](StatusCallback done) { core_->Join(std::move(done)); });
  while (!workers_[0]->dispatched.empty()) {
    workers_[0]->FinishNext(StepOutcome::kEndOfData, EndOfData("end"));
    world_.RunFor(absl::Milliseconds(50));
  }
  ASSERT_EQ(results.size(), 6u);
  for (const absl::Status& result : results) EXPECT_TRUE(IsEndOfData(result)) << result;
  EXPECT_TRUE(join->over);
  EXPECT_TRUE(join->status.ok()) << join->status;
}

class EndsTest : public CoordinatorCoreTest {
 protected:
  std::shared_ptr<Outcome> Read(const std::vector<ResourceId>& iterators) {
    auto result = std::make_shared<Outcome>();
    Nest::List args;
    for (const ResourceId id : iterators) args.push_back(Nest(PerWorkerHandle{id.value()}));
    core_->Schedule(
        {"step", Nest(std::move(args)), false},
        [result](absl::StatusOr<Nest> value) {
          *result = {true, value.status()};
        },
        [](absl::Status) {});
    world_.RunFor(absl::Milliseconds(20));
    return result;
  }
  void End(StepOutcome outcome, std::vector<EndedInput> ended) {
    const Dispatch dispatch = workers_[0]->dispatched.front();
    workers_[0]->dispatched.pop_front();
    Report report;
    report.step = dispatch.step;
    report.attempt = dispatch.attempt;
    report.outcome = outcome;
    if (outcome == StepOutcome::kEndOfData) report.error = EndOfData("its data has ended");
    report.ended = std::move(ended);
    workers_[0]->Say(std::move(report));
    world_.RunFor(absl::Milliseconds(20));
  }
};

TEST_F(EndsTest,
       TheEndOfOneDatasetIsNotTheEndOfAnotherAndWhatWasToBeReadOfThatIsReadByAnotherStep) {
  Start(1, 1);
  const ResourceId longer = core_->MakeIterator("longer", Nest(), true),
                   shorter = core_->MakeIterator("shorter", Nest(), true);
  workers_[0]->Say(ResourceReady{longer, absl::OkStatus(), 1000});
  world_.RunFor(absl::Milliseconds(20));
  Read({longer, shorter});
  End(StepOutcome::kOk, {});
  const auto last = Read({longer, shorter});
  End(StepOutcome::kEndOfData, {{shorter, 1}});
  EXPECT_TRUE(IsEndOfData(last->status)) << last->status;
  const auto next = Read({longer});
  ASSERT_EQ(workers_[0]->dispatched.size(), 1u) << next->status;
  EXPECT_THAT(workers_[0]->dispatched[0].inputs, ElementsAre(InputLease{longer, 1, 1}));
}

TEST_F(EndsTest, TheEndOfAWorkersOwnDataIsNotTheEndOfLeasedData) {
  Start(1, 1);
  const ResourceId leased = core_->MakeIterator("leased", Nest(), true),
                   own = core_->MakeIterator("own", Nest(), false);
  workers_[0]->Say(ResourceReady{leased, absl::OkStatus(), 1000});
  world_.RunFor(absl::Milliseconds(20));
  Read({leased, own});
  End(StepOutcome::kEndOfData, {{own, std::nullopt}});
  const auto next = Read({leased});
  ASSERT_EQ(workers_[0]->dispatched.size(), 1u) << next->status;
  EXPECT_THAT(workers_[0]->dispatched[0].inputs, ElementsAre(InputLease{leased, 0, 1}));
}

TEST_F(EndsTest, AStepOfTheProgramRunsAtTheEndOfItsDataTooForItMayHaveSomethingToDoThen) {
  Start(1, 1);
  const ResourceId data = core_->MakeIterator("data", Nest(), true);
  workers_[0]->Say(ResourceReady{data, absl::OkStatus(), 1});
  world_.RunFor(absl::Milliseconds(20));
  Read({data});
  End(StepOutcome::kOk, {});
  const auto beyond = Read({data});
  ASSERT_EQ(workers_[0]->dispatched.size(), 1u) << beyond->status;
  EXPECT_THAT(workers_[0]->dispatched[0].inputs, ElementsAre(InputLease{data, 1, 0}));
  End(StepOutcome::kOk, {{data, 1}});
  EXPECT_TRUE(beyond->over && beyond->status.ok()) << beyond->status;
}

TEST_F(EndsTest, ALoopOverDataOfUnknownSizeEndsAlsoWhereTheStepHandlesTheEnd) {
  Start(1, 1);
  const auto ran = Run({{"step", Nest(), false}, "data", Nest(), /*leased=*/true, {}});
  world_.RunFor(absl::Milliseconds(50));
  int64_t steps = 0;
  for (; steps < 100 && !ran->over; ++steps) {
    ASSERT_FALSE(workers_[0]->dispatched.empty());
    const InputLease lease = workers_[0]->dispatched[0].inputs.at(0);
    std::vector<EndedInput> ended;
    if (lease.first + lease.count > 10)
      ended.push_back({lease.iterator, std::max<int64_t>(10, lease.first)});
    End(StepOutcome::kOk, std::move(ended));
  }
  EXPECT_TRUE(ran->over && ran->status.ok()) << ran->status;
  EXPECT_LE(steps, 13) << "10 elements, and the steps that were in flight when the end was found";
  EXPECT_EQ(core_->epoch(), 1);
}

TEST_F(EndsTest, ALoopOverEachWorkersOwnDataEndsAlsoWhereTheStepHandlesTheEnd) {
  Start(1, 1);
  const auto ran = Run({{"step", Nest(), false}, "data", Nest(), /*leased=*/false, {}});
  world_.RunFor(absl::Milliseconds(50));
  End(StepOutcome::kOk, {});
  // The report names an iterator that the step does not have.
  End(StepOutcome::kOk, {{ResourceId(0), std::nullopt}});
  EXPECT_FALSE(ran->over);
  const uint64_t iterator = workers_[0]->dispatched[0].args.list()->at(0).handle()->id;
  End(StepOutcome::kOk, {{ResourceId(iterator), std::nullopt}});
  while (!workers_[0]->dispatched.empty())
    End(StepOutcome::kOk, {{ResourceId(iterator), std::nullopt}});
  EXPECT_TRUE(ran->over && ran->status.ok()) << ran->status;
}

TEST_F(EndsTest, APassThatIsOverWithoutAWorkerThatHasAPartOfItIsWarnedOf) {
  Boot(1, 2, {});
  workers_[1]->refuses = absl::UnavailableError("it is not there yet");
  world_.RunFor(absl::Milliseconds(500));
  const CapturedLog log;
  const auto ran = Run({{"step", Nest(), false}, "parts", Nest(), /*leased=*/false, {}});
  world_.RunFor(absl::Milliseconds(50));
  ASSERT_EQ(workers_[0]->made.at(0).num_workers, 2);
  while (!workers_[0]->dispatched.empty()) End(StepOutcome::kEndOfData, {});
  EXPECT_TRUE(ran->over && ran->status.ok()) << ran->status;
  EXPECT_THAT(
      log.lines(),
      Contains(
          AllOf(StartsWith(
                    "Wa pass over data source \"parts\" is over without worker 1, away at its end"),
                HasSubstr("use kLease"))));
}

TEST_F(EndsTest, APassThatEveryWorkerHasReadToItsEndIsNotWarnedOf) {
  Start(1, 2);
  const CapturedLog log;
  const auto ran = Run({{"step", Nest(), false}, "all parts", Nest(), /*leased=*/false, {}});
  world_.RunFor(absl::Milliseconds(50));
  while (!ran->over) {
    for (const auto& worker : workers_) {
      if (!worker->dispatched.empty())
        worker->FinishNext(StepOutcome::kEndOfData, EndOfData("its data has ended"));
    }
    world_.RunFor(absl::Milliseconds(20));
  }
  EXPECT_TRUE(ran->status.ok()) << ran->status;
  EXPECT_THAT(log.lines(), Not(Contains(HasSubstr("is over without"))));
}

// Seed 5 of the simulation: the data was cut for worker 0 alone, and the only worker, which joined
// a moment later, had another index.
TEST_F(EndsTest, WorkersThatComeBeforeAnyStepHasReadHaveAPartOfTheData) {
  Boot(1, 0, {});
  world_.RunFor(absl::Milliseconds(500));
  const auto ran = Run({{"step", Nest(), false}, "data", Nest(), /*leased=*/false, {}});
  for (const int index : {2, 1}) {
    Come(index);
    workers_.back()->opens = false;
    world_.RunFor(absl::Milliseconds(50));
  }
  for (const auto& worker : workers_) EXPECT_EQ(worker->made.back().num_workers, 3);
  EXPECT_FALSE(ran->over) << ran->status;
}

TEST_F(EndsTest, TheFirstWorkerMayHaveAnIndexFarAboveThoseThatFollow) {
  Boot(1, 0, {});
  world_.RunFor(absl::Milliseconds(500));
  const auto ran = Run({{"step", Nest(), false}, "data", Nest(), /*leased=*/false, {}});
  std::vector<int> shares;
  for (const int index : {40, 0}) {
    Come(index);
    workers_.back()->opens = false;
    world_.RunFor(absl::Milliseconds(50));
    shares.push_back(workers_[0]->made.back().num_workers);
  }
  EXPECT_THAT(shares, ElementsAre(41, 1))
      << "a single worker reads its share; with two, most shares would belong to no worker";
  EXPECT_FALSE(ran->over) << ran->status;
}

TEST_F(EndsTest, AWorkerThatComesAfterTheDataWasCutHasNoPartOfIt) {
  Start(1, 1);
  const auto ran = Run({{"step", Nest(), false}, "data", Nest(), /*leased=*/false, {}});
  world_.RunFor(absl::Milliseconds(50));
  workers_.push_back(std::make_shared<FakeWorker>(world_, log_, 1));
  workers_[1]->opens = false;
  RegisterRequest request;
  request.role = Role::kWorker;
  request.index = 1;
  request.incarnation = Incarnation(201);
  request.address = "worker1";
  core_->Call(request, [](const absl::StatusOr<RegisterReply>&) {});
  const uint64_t iterator = workers_[0]->dispatched[0].args.list()->at(0).handle()->id;
  world_.RunFor(absl::Milliseconds(500));
  EXPECT_TRUE(workers_[1]->dispatched.empty()) << "worker 1 has not reported whether it has a part";
  workers_[1]->Say(ResourceReady{
      ResourceId(iterator),
      absl::InvalidArgumentError("the data of 1 workers have no part for worker 1"), std::nullopt});
  world_.RunFor(absl::Milliseconds(500));
  for (int i = 0; i < 5; ++i) End(StepOutcome::kOk, {});
  EXPECT_FALSE(ran->over) << ran->status;
  while (!workers_[0]->dispatched.empty())
    End(StepOutcome::kOk, {{ResourceId(iterator), std::nullopt}});
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_TRUE(ran->over && ran->status.ok()) << ran->status;
  EXPECT_TRUE(workers_[1]->dispatched.empty());
}

TEST_F(EndsTest, ALoopEndsWithTheFirstOfItsDatasets) {
  Start(1, 1);
  const ResourceId shorter = core_->MakeIterator("shorter", Nest(), true);
  workers_[0]->Say(ResourceReady{shorter, absl::OkStatus(), 3});
  world_.RunFor(absl::Milliseconds(20));
  const auto ran = Run({{"step", Nest(Nest::List{Nest(PerWorkerHandle{shorter.value()})}), false},
                        "longer",
                        Nest(),
                        /*leased=*/true,
                        {}});
  world_.RunFor(absl::Milliseconds(50));
  std::vector<InputLease> read;
  while (!workers_[0]->dispatched.empty()) {
    for (const InputLease& lease : workers_[0]->dispatched[0].inputs) {
      if (lease.iterator == shorter) read.push_back(lease);
    }
    End(StepOutcome::kOk, {});
  }
  EXPECT_TRUE(ran->over && ran->status.ok()) << ran->status;
  EXPECT_THAT(read, ElementsAre(InputLease{shorter, 0, 1}, InputLease{shorter, 1, 1},
                                InputLease{shorter, 2, 1}));
}

TEST_F(EndsTest, DataThatEndsForEveryWorkerBeforeItsSizeSaysIsOver) {
  Start(1, 1);
  const auto ran = Run({{"step", Nest(), false}, "data", Nest(), /*leased=*/true, {}});
  world_.RunFor(absl::Milliseconds(50));
  const ResourceId data(workers_[0]->made.back().iterator);
  workers_[0]->Say(ResourceReady{data, absl::OkStatus(), 1000});
  world_.RunFor(absl::Milliseconds(20));
  End(StepOutcome::kOk, {});
  for (int i = 0; i < 20 && !workers_[0]->dispatched.empty(); ++i)
    End(StepOutcome::kEndOfData, {{data, workers_[0]->dispatched[0].inputs[0].first}});
  EXPECT_TRUE(ran->over && ran->status.ok()) << ran->status;
}

TEST_F(EndsTest, AnEndThatTheStepItselfSaysIsTheEndWhateverTheSize) {
  Start(1, 2);
  const auto ran = Run({{"step", Nest(), false}, "data", Nest(), /*leased=*/true, {}});
  world_.RunFor(absl::Milliseconds(50));
  const ResourceId data(workers_[0]->made.back().iterator);
  for (const auto& worker : workers_) worker->Say(ResourceReady{data, absl::OkStatus(), 1000});
  world_.RunFor(absl::Milliseconds(20));
  for (int i = 0; i < 20; ++i) {
    for (const auto& worker : workers_) {
      while (!worker->dispatched.empty())
        worker->FinishNext(StepOutcome::kEndOfData, EndOfData("enough"));
    }
    world_.RunFor(absl::Milliseconds(20));
  }
  EXPECT_TRUE(ran->over && ran->status.ok()) << ran->status;
}

TEST_F(EndsTest, LeasedDataThatOneWorkerCannotOpenIsReadByTheOthers) {
  Start(1, 2);
  const ResourceId data = core_->MakeIterator("data", Nest(), true);
  workers_[0]->Say(ResourceReady{data, absl::OkStatus(), 4});
  workers_[1]->Say(ResourceReady{data, absl::NotFoundError("no such file"), std::nullopt});
  world_.RunFor(absl::Milliseconds(20));
  for (int i = 0; i < 4; ++i) Read({data});
  EXPECT_TRUE(workers_[1]->dispatched.empty());
  EXPECT_EQ(workers_[0]->dispatched.size(), 3u);
}

TEST_F(EndsTest, AWorkerThatSaysAgainAndAgainThatItCannotReadDoesNotFillTheLog) {
  Start(1, 3);
  const ResourceId data = core_->MakeIterator("data", Nest(), true);
  const CapturedLog log;
  for (int i = 0; i < 50; ++i) {
    workers_[0]->Say(ResourceReady{data, absl::NotFoundError("no such file"), std::nullopt});
    // The first size is that of most workers, the second is not.
    for (const int64_t size : {1000, 3}) {
      workers_[2]->Say(ResourceReady{data, absl::OkStatus(), size});
      workers_[1]->Say(ResourceReady{data, absl::OkStatus(), 1000});
    }
    world_.RunFor(absl::Milliseconds(20));
  }
  EXPECT_EQ(log.Count("worker 0 cannot open data source"), 1);
  EXPECT_LE(log.lines().size(), 3u) << "one for each text";
  world_.RunFor(absl::Minutes(1));
  workers_[0]->Say(ResourceReady{data, absl::NotFoundError("no such file"), std::nullopt});
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_EQ(log.Count("worker 0 cannot open data source"), 2) << "a minute later";
}

TEST_F(EndsTest, AWorkerThatComesTooLateForAPassIsNoReasonForAWarning) {
  Start(1, 1);
  const CapturedLog log;
  const ResourceId data = core_->MakeIterator("parts", Nest(), false);
  Read({data});
  workers_.push_back(std::make_shared<FakeWorker>(world_, log_, 1));
  core_->Call({Role::kWorker, 1, Incarnation(201), "worker1"},
              [](const absl::StatusOr<RegisterReply>&) {});
  world_.RunFor(absl::Seconds(20));
  for (int i = 0; i < 3; ++i) {
    workers_[1]->Say(ResourceReady{data, absl::NotFoundError("no part"), std::nullopt});
    world_.RunFor(absl::Milliseconds(20));
  }
  EXPECT_THAT(
      log.lines(),
      Contains(AllOf(StartsWith("I"), HasSubstr("worker 1 has no part of data source \"parts\"")))
          .Times(1));
  EXPECT_THAT(log.lines(), Not(Contains(StartsWith("W"))));
}

TEST_F(EndsTest, AWorkerThatSaysOfEachStepThatItLostAGpuDoesNotFillTheLog) {
  Start(1, 1);
  const CapturedLog log;
  for (int i = 0; i < 5; ++i) Schedule("step");
  for (int i = 0; i < 20 && !workers_[0]->dispatched.empty(); ++i) {
    workers_[0]->FinishNext(StepOutcome::kSystem, MakeError(Reason::kDeviceLost, "GPU:0 is lost"));
    world_.RunFor(absl::Milliseconds(500));
  }
  EXPECT_EQ(log.Count("worker 0 has lost a GPU in step step"), 1);
}

TEST_F(EndsTest, LeasedDataThatNobodyCanOpenFailsTheStepThatReadsIt) {
  Start(1, 1);
  const ResourceId data = core_->MakeIterator("data", Nest(), true);
  workers_[0]->Say(ResourceReady{data, absl::NotFoundError("no such file"), std::nullopt});
  world_.RunFor(absl::Milliseconds(20));
  Read({data});
  EXPECT_EQ(workers_[0]->dispatched.size(), 1u) << "the step gets the error";
}

TEST_F(CoordinatorCoreTest, AWorkerThatDrainsGetsNoMoreSteps) {
  Start(1, 1);
  Schedule("step");
  workers_[0]->Say(Draining());
  world_.RunFor(absl::Milliseconds(20));
  Schedule("later");
  EXPECT_EQ(workers_[0]->dispatched.size(), 1u);
}

TEST_F(CoordinatorCoreTest, ARefusedCreateIsTakenBackEverywhereAndTheNameIsFree) {
  CoordinatorOptions options;
  options.partitioner = [](int num_ps) -> Partitioner { return FixedShardsPartitioner{num_ps}; };
  Start(2, 1, options);
  ps_[1]->refuses["CreateShards"] =
      MakeError(Reason::kMemoryLimit, "no memory: raise --memory_limit_bytes");
  const auto refused = Create({"table", {8, 2}});
  EXPECT_EQ(refused->status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(std::count(log_.begin(), log_.end(), "ps 0 DeleteShards"), 1);
  EXPECT_EQ(std::count(log_.begin(), log_.end(), "ps 1 DeleteShards"), 1);
  EXPECT_EQ(core_->layout()->Find("table"), nullptr);
  ps_[1]->refuses.clear();
  EXPECT_TRUE(Create({"table", {8, 2}})->status.ok());
  EXPECT_NE(core_->layout()->Find("table"), nullptr);
}

TEST_F(CoordinatorCoreTest, ShardsGoRoundRobinAndSlotsWithTheirVariable) {
  CoordinatorOptions options;
  options.partitioner = [](int) -> Partitioner { return FixedShardsPartitioner{2}; };
  Start(3, 1, options);
  Create({"a", {}});
  Create({"b", {4}, Zeros(), Adam{0.1}});
  Create({"c", {}});
  EXPECT_THAT(core_->layout()->Find("a")->ps, ElementsAre(0));
  EXPECT_THAT(core_->layout()->Find("b")->ps, ElementsAre(1, 2));
  EXPECT_THAT(core_->layout()->Find("c")->ps, ElementsAre(0));
  EXPECT_EQ(ps_[2]->created.size(), 4u);  // part 1 of b, and its m, v and t
}

TEST_F(CoordinatorCoreTest, MoreShardsThanAVariableCanHaveAreRefusedWithTheirNumber) {
  Start(1, 1);
  VariableSpec spec{"w", {70'000}};
  spec.partitioner = Partitioner(FixedShardsPartitioner{65'537});
  EXPECT_THAT(std::string(Create(spec)->status.message()),
              HasSubstr("cuts variable \"w\" into 65537 shards, more than 65536"));
  EXPECT_EQ(core_->layout()->Find("w"), nullptr);
}

TEST_F(CoordinatorCoreTest, AVariableWithWhichTheLayoutFitsNoMessageIsRefusedWithItsFix) {
  CoordinatorOptions options;
  options.max_layout_bytes = 1 << 20;  // three variables of 65,000 shards
  options.partitioner = [](int) -> Partitioner { return FixedShardsPartitioner{65'000}; };
  Start(1, 1, options);
  std::shared_ptr<Outcome> last;
  int created = 0;
  for (; created < 10; ++created) {
    last = Create({absl::StrCat("v", created), {70'000'000}});
    if (!last->status.ok()) break;
  }
  ASSERT_TRUE(last->over);
  EXPECT_EQ(last->status.code(), absl::StatusCode::kResourceExhausted) << last->status;
  EXPECT_THAT(std::string(last->status.message()),
              HasSubstr("let the partitioner make fewer, larger shards"));
  EXPECT_GE(created, 2);
  EXPECT_EQ(core_->layout()->Find(absl::StrCat("v", created)), nullptr);
}

TEST_F(CoordinatorCoreTest, ALearningRateScaleThatIsNoNumberIsRaisedAndTheOneBeforeItStays) {
  Start(1, 1);
  core_->SetLearningRateScale(0.5);
  core_->SetLearningRateScale(std::numeric_limits<double>::infinity());
  const auto join = Watch([&](StatusCallback done) { core_->Join(std::move(done)); });
  EXPECT_EQ(join->status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(join->status.message()), HasSubstr("SetLearningRateScale: inf"));
  Schedule("step");
  EXPECT_EQ(workers_[0]->dispatched.back().learning_rate_scale, 0.5);
}

TEST_F(CoordinatorCoreTest, TheTurnOfThePsDoesNotAdvanceForAVariableThatWasRefused) {
  Start(3, 1);
  Create({"first", {}});
  ps_[1]->refuses["CreateShards"] = MakeError(Reason::kMemoryLimit, "no memory");
  EXPECT_FALSE(Create({"refused", {8, 2}})->status.ok());
  EXPECT_FALSE(Create({"no name", {8, 2}})->status.ok());
  ps_[1]->refuses.clear();
  Create({"second", {}});
  EXPECT_THAT(core_->layout()->Find("second")->ps, ElementsAre(1));
}

TEST_F(CoordinatorCoreTest, AnotherFormOfAnOptimizerAddsOnlyTheSlotsThatAreMissing) {
  Start(1, 1);
  Create({"w", {4}, Zeros(), Adam{0.1}});
  workers_[0]->Say(
      NeedSlots{EntryId(1), {{"w", Adam{0.1, 0.9f, 0.999f, 1e-7f, 0, /*amsgrad=*/true}}}});
  world_.RunFor(absl::Milliseconds(100));
  const VariableLayout* w = core_->layout()->Find("w");
  std::vector<std::string> names;
  for (int i = 0; i < static_cast<int>(w->slots.size()); ++i) names.push_back(w->SlotName(i));
  EXPECT_THAT(names, ElementsAre("w/Adam/m", "w/Adam/v", "w/Adam/t", "w/Adam/vhat"));
}

TEST_F(CoordinatorCoreTest,
       AColocatedVariableLiesWithThatShardUncutAndTheRoundGoesOnAsIfItWereNotThere) {
  Start(3, 1);
  Create({"a", {}});
  VariableSpec cut{"b", {4}};
  cut.partitioner = FixedShardsPartitioner{2};
  Create(cut);
  Create({"c", {}});
  VariableSpec with_b{"d", {6}, Zeros(), Adam{0.1}};
  with_b.partitioner = FixedShardsPartitioner{3};
  EXPECT_TRUE(Create(with_b, Colocation{"b", 0})->status.ok());
  Create({"e", {}});
  const auto ps_of = [&](const char* name) { return core_->layout()->Find(name)->ps; };
  EXPECT_THAT(ps_of("a"), ElementsAre(0));
  EXPECT_THAT(ps_of("b"), ElementsAre(1, 2));
  EXPECT_THAT(ps_of("c"), ElementsAre(0));
  EXPECT_THAT(ps_of("d"), ElementsAre(1));
  EXPECT_THAT(core_->layout()->Find("d")->offsets, ElementsAre(0, 6));
  EXPECT_THAT(ps_of("e"), ElementsAre(1));
}

TEST_F(CoordinatorCoreTest, ColocationWithWhatIsNotThereIsRefused) {
  Start(2, 1);
  Create({"a", {2}});
  EXPECT_EQ(Create({"b", {}}, Colocation{"gone", 0})->status.code(), absl::StatusCode::kNotFound);
  const auto refused = Create({"b", {}}, Colocation{"a", 1});
  EXPECT_EQ(refused->status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused->status.message()),
              HasSubstr("\"a\" has 1 shards, and no shard 1"));
}

TEST_F(CoordinatorCoreTest, BalancedPlacementGivesToThePsWithTheFewestBytes) {
  CoordinatorOptions options;
  options.placement = StrategyOptions::Placement::kBalanced;
  Start(2, 1, options);
  Create({"large", {1000}});
  Create({"small", {1}});
  Create({"next", {1}});
  EXPECT_THAT(core_->layout()->Find("large")->ps, ElementsAre(0));
  EXPECT_THAT(core_->layout()->Find("small")->ps, ElementsAre(1));
  EXPECT_THAT(core_->layout()->Find("next")->ps, ElementsAre(1));
}

TEST_F(CoordinatorCoreTest, ADirectWriteIsSentUntilEveryPsHasIt) {
  CoordinatorOptions options;
  options.partitioner = [](int num_ps) -> Partitioner { return FixedShardsPartitioner{num_ps}; };
  Start(2, 1, options);
  Create({"x", {2}});
  ps_[1]->refuses["Commit"] = absl::UnavailableError("away");
  const StagedWrite write{"x", WriteOp::kAssign, Tensor::Vector<float>({1, 2}), {}, {}};
  const auto written = Watch([&](StatusCallback done) { core_->Write({write}, std::move(done)); });
  world_.RunFor(absl::Seconds(2));
  EXPECT_FALSE(written->over);
  ps_[1]->refuses.clear();
  world_.RunFor(absl::Seconds(5));
  EXPECT_TRUE(written->over && written->status.ok());
  EXPECT_EQ(ps_[0]->commits.size(), 1u);
  // A retry never changes the id.
  for (const EntryId id : ps_[1]->commits) EXPECT_EQ(id, ps_[0]->commits[0]);
}

TEST_F(CoordinatorCoreTest, AParameterServerThatStaysAwayIsUnavailableByName) {
  CoordinatorOptions options;
  options.ps_timeout = absl::Seconds(30);
  Start(2, 1, options);
  ps_[1]->down = absl::UnavailableError("connection refused");
  const auto join = Watch([&](StatusCallback done) { core_->Join(std::move(done)); });
  EXPECT_TRUE(join->over && join->status.ok());
  world_.RunFor(absl::Seconds(20));
  const auto snapshot = core_->Snapshot();
  ASSERT_FALSE(snapshot.waits.empty());
  EXPECT_THAT(snapshot.waits[0].text, HasSubstr("ps 1 (ps1): connection refused"));
  EXPECT_EQ(snapshot.ps_up, 1);
  world_.RunFor(absl::Seconds(20));
  const auto later = Watch([&](StatusCallback done) { core_->Join(std::move(done)); });
  EXPECT_EQ(later->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(later->status.message()), HasSubstr("ps 1 (ps1)"));
}

TEST_F(CoordinatorCoreTest, AStepThatRunsForLongIsNamedAmongWhatIsWaitedFor) {
  Start(1, 2);
  Schedule("hang");
  world_.RunFor(absl::Seconds(15));
  EXPECT_THAT(core_->Snapshot().waits, IsEmpty());
  world_.RunFor(absl::Seconds(40));
  ASSERT_EQ(core_->Snapshot().waits.size(), 1u);
  EXPECT_EQ(core_->Snapshot().waits[0].text, "step hang on worker 0");
  EXPECT_GT(core_->Snapshot().waits[0].since, absl::Seconds(50));
}

TEST_F(CoordinatorCoreTest, ACoordinatorThatIsNoLongerTheNewestStops) {
  Start(1, 1);
  ps_[0]->down = MakeError(Reason::kStaleEpoch, "epoch 1 is over");
  world_.RunFor(absl::Seconds(2));
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kFailed);
}

TEST_F(CoordinatorCoreTest, TheEndTellsWorkersFirstAndThenParameterServers) {
  Start(2, 2);
  log_.clear();
  const auto ended = Watch([&](StatusCallback done) { core_->EndJob(0, std::move(done)); });
  world_.RunFor(absl::Seconds(1));
  EXPECT_TRUE(ended->over && ended->status.ok());
  ASSERT_EQ(log_.size(), 4u);
  EXPECT_THAT(log_[0], HasSubstr("worker"));
  EXPECT_THAT(log_[1], HasSubstr("worker"));
  EXPECT_THAT(log_[2], HasSubstr("ps"));
  EXPECT_EQ(store_.Load()->job.state, JobRow::State::kComplete);
  RegisterReply reply;
  const RegisterRequest late{Role::kWorker, 7, Incarnation(9), "worker1", 1, {}, {}, ""};
  core_->Call(late, [&](absl::StatusOr<RegisterReply> answer) { reply = *answer; });
  EXPECT_EQ(reply.over, 0);
}

TEST_F(CoordinatorCoreTest, AJobThatFailsWhileItsEndIsBeingStoredStillTellsAllTasks) {
  Start(2, 2);
  log_.clear();
  store_.slow = true;
  const auto ended = Watch([&](StatusCallback done) { core_->EndJob(3, std::move(done)); });
  world_.RunFor(absl::Milliseconds(20));
  core_->Fail(absl::UnavailableError("gone"));
  EXPECT_THAT(log_, IsEmpty()) << "the end is not durable yet";
  store_.WriteAll();
  world_.RunFor(absl::Seconds(1));
  EXPECT_EQ(ended->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kFailed);
  ASSERT_EQ(log_.size(), 4u);
  EXPECT_THAT(std::vector<std::string>(log_.begin(), log_.begin() + 2),
              UnorderedElementsAre("worker 0 Shutdown", "worker 1 Shutdown"));
  EXPECT_THAT(std::vector<std::string>(log_.begin() + 2, log_.end()),
              UnorderedElementsAre("ps 0 Shutdown", "ps 1 Shutdown"));
}

TEST_F(CoordinatorCoreTest, AJobThatFailsWhileItsWorkersAreToldTheEndTellsTheParameterServersToo) {
  Start(2, 1);
  log_.clear();
  const auto ended = Watch([&](StatusCallback done) { core_->EndJob(0, std::move(done)); });
  while (log_.empty() && world_.RunOne()) {
  }
  ASSERT_THAT(log_, ElementsAre("worker 0 Shutdown"));
  core_->Fail(absl::UnavailableError("gone"));
  world_.RunFor(absl::Seconds(1));
  EXPECT_EQ(ended->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(log_, UnorderedElementsAre("worker 0 Shutdown", "ps 0 Shutdown", "ps 1 Shutdown"));
}

TEST_F(CoordinatorCoreTest, ARestartedCoordinatorTakesTheNextEpochAndFreshIds) {
  Start(1, 1);
  Schedule("step");
  const EntryId before = workers_[0]->dispatched[0].step;
  const Epoch epoch = core_->Snapshot().epoch_id;
  core_->Abandon();
  ps_.clear();
  workers_.clear();
  Start(1, 1);
  Schedule("step");
  EXPECT_EQ(core_->Snapshot().epoch_id, epoch.next());
  EXPECT_GT(workers_[0]->dispatched[0].step, before);
}

TEST_F(CoordinatorCoreTest, TheHorizonNamesWhatIsInFlight) {
  Start(1, 1);
  Schedule("a");
  Schedule("b");
  const EntryId a = workers_[0]->dispatched[0].step, b = workers_[0]->dispatched[1].step;
  world_.RunFor(absl::Seconds(2));
  EXPECT_THAT(ps_[0]->horizon.open, ElementsAre(a, b));
  EXPECT_EQ(ps_[0]->horizon.next, b.next());
  workers_[0]->FinishNext();
  world_.RunFor(absl::Seconds(2));
  EXPECT_THAT(ps_[0]->horizon.open, ElementsAre(b));
  EXPECT_TRUE(ps_[0]->horizon.IsClosed(a));
}

// ---- registration -------------------------------------------------------------------------------

class RegisterTest : public CoordinatorCoreTest {
 protected:
  static RegisterRequest From(Role role, int index, uint64_t incarnation, std::string address) {
    RegisterRequest request;
    request.role = role;
    request.index = index;
    request.incarnation = Incarnation(incarnation);
    request.address = std::move(address);
    return request;
  }
  absl::Status Register(RegisterRequest request) {
    std::optional<absl::Status> answer;
    core_->Call(std::move(request),
                [&](absl::StatusOr<RegisterReply> reply) { answer = reply.status(); });
    return answer.value();
  }
};

TEST_F(RegisterTest, WorkersThatAreHereTogetherHaveAsManyReplicas) {
  Start(1, 1);
  workers_.push_back(std::make_shared<FakeWorker>(world_, log_, 1));
  // The worker did not give this number when it registered.
  workers_[1]->replicas = 2;
  EXPECT_TRUE(Register(From(Role::kWorker, 1, 201, "worker1")).ok());
  world_.RunFor(absl::Seconds(20));
  EXPECT_EQ(core_->Snapshot().workers_up, 1);
  workers_[1]->replicas = 1;
  world_.RunFor(absl::Seconds(20));
  EXPECT_EQ(core_->Snapshot().workers_up, 2);
}

// A worker that registered first with a wrong number of replicas kept all others out for good.
TEST_F(RegisterTest, MostWorkersDecideHowManyReplicasAWorkerHas) {
  Boot(1, 3, {});
  workers_[0]->replicas = 9'000;
  for (int later : {1, 2}) workers_[later]->refuses = absl::UnavailableError("not there yet");
  RegisterRequest first = From(Role::kWorker, 0, 200, "worker0");
  first.replicas = 9'000;
  EXPECT_TRUE(Register(first).ok());
  world_.RunFor(absl::Milliseconds(100));
  RegisterRequest second = From(Role::kWorker, 1, 201, "worker1"),
                  third = From(Role::kWorker, 2, 202, "worker2");
  second.replicas = third.replicas = 1;
  const absl::Status tie = Register(second);
  EXPECT_EQ(ReasonOf(tie), Reason::kNotReady) << tie;
  EXPECT_THAT(
      std::string(tie.message()),
      HasSubstr("worker 1 (worker1) has 1 replica, and worker 0 (worker0) has 9000 replicas"));
  for (int later : {1, 2}) workers_[later]->refuses = absl::OkStatus();
  EXPECT_TRUE(Register(third).ok());
  EXPECT_TRUE(Register(second).ok());
  world_.RunFor(absl::Seconds(5));
  EXPECT_EQ(core_->Snapshot().workers_up, 2);
  EXPECT_EQ(ExitCodeOf(ReasonOf(Register(first))), 78);
}

TEST_F(RegisterTest,
       AWorkerOfAnotherNumberOfReplicasThanTheCoordinatorWasToldIsRefusedThoughItComesFirst) {
  CoordinatorOptions options;
  options.replicas_per_worker = 2;
  Boot(1, 0, options);
  workers_.push_back(std::make_shared<FakeWorker>(world_, log_, 0));
  workers_[0]->replicas = 1;
  RegisterRequest wrong = From(Role::kWorker, 0, 200, "worker0");
  wrong.replicas = 1;
  const absl::Status refused = Register(wrong);
  EXPECT_EQ(ExitCodeOf(ReasonOf(refused)), 78);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("worker 0 (worker0) has 1 replica, and the coordinator's "
                        "--replicas_per_worker is 2: give the worker 2 GPUs"));
  RegisterRequest right = wrong;
  right.replicas = workers_[0]->replicas = 2;
  EXPECT_TRUE(Register(right).ok());
  world_.RunFor(absl::Seconds(5));
  EXPECT_EQ(core_->Snapshot().workers_up, 1);
}

ProgramDescription ProgramOf(std::map<std::string, std::string> steps,
                             std::set<std::string> flags = {}) {
  return {std::move(steps), std::move(flags), ""};
}

TEST_F(RegisterTest, AWorkerOfAnotherProgramIsRefusedWithEachDifference) {
  CoordinatorOptions options;
  options.program = ProgramOf({{"train", "FidE"}, {"score", "FivE"}, {"count", "FvvE"}});
  options.program_flags = {{"rounds", "3"}, {"rows", "7"}};
  Start(1, 1, options);
  RegisterRequest other = From(Role::kWorker, 0, 200, "worker0");
  other.program = ProgramOf({{"train", "FieE"}, {"count", "FvvE"}}, {"rows"});
  const absl::Status refused = Register(other);
  EXPECT_EQ(ExitCodeOf(ReasonOf(refused)), 78);
  EXPECT_EQ(
      refused.message(),
      "worker 0 (worker0) runs another program than the coordinator: it has no step \"score\"; its "
      "step \"train\" is int (long double), and the "
      "coordinator's is int (double); it has no flag --rounds. Deploy one binary to all tasks; of "
      "a "
      "step that is missing: if it is defined in a static library, the linker has left it out: "
      "give the library alwayslink = True (Bazel), or link it between -Wl,--whole-archive and "
      "-Wl,--no-whole-archive");
  other.program = ProgramOf({{"train", "FieE"}, {"score", "FivE"}, {"count", "FvvE"}}, {"rows"});
  EXPECT_THAT(std::string(Register(other).message()), Not(HasSubstr("static library")))
      << "the worker has all steps, so the message does not mention the linker";
  RegisterRequest same = From(Role::kWorker, 0, 200, "worker0");
  same.program =
      ProgramOf({{"train", "FidE"}, {"score", "FivE"}, {"count", "FvvE"}, {"more", "FvvE"}},
                {"rows", "rounds"});
  EXPECT_TRUE(Register(same).ok());
  EXPECT_TRUE(Register(From(Role::kWorker, 0, 200, "worker0")).ok())
      << "the worker does not describe its program";
}

TEST_F(RegisterTest, WhatAProgramComparesBesideItsStepsIsNamedAsItIs) {
  CoordinatorOptions options;
  options.program = ProgramOf({{"train", "a step of (batch)"},
                               {"divvy:Python program", "divvy"},
                               {"divvy:variable v", "float32 (2,)"},
                               {"divvy:variable w", "float32 (2,)"}});
  Start(1, 1, options);
  RegisterRequest other = From(Role::kWorker, 0, 200, "worker0");
  other.program = ProgramOf({{"train", "a step of (batch)"},
                             {"divvy:Python program", "divvy"},
                             {"divvy:variable w", "float32 (3,)"}});
  EXPECT_EQ(Register(other).message(),
            "worker 0 (worker0) runs another program than the coordinator: it has no variable v; "
            "its variable w is float32 (3,), and the coordinator's is float32 (2,). Start the same "
            "files on all tasks");
}

TEST_F(RegisterTest, AWorkerOfAnotherProgramThatIsListedIsLeftAloneUntilItRunsTheSame) {
  CoordinatorOptions options;
  options.program = ProgramOf({{"train", "FidE"}});
  Boot(1, 1, options);
  workers_[0]->program = ProgramOf({{"train", "FivE"}});
  world_.RunFor(absl::Seconds(20));
  EXPECT_EQ(core_->Snapshot().workers_up, 0);
  ASSERT_FALSE(core_->Snapshot().waits.empty());
  EXPECT_THAT(core_->Snapshot().waits[0].text,
              HasSubstr("its step \"train\" is int (), and the coordinator's is int (double)"));
  workers_[0]->program = options.program;
  // Another build causes only a warning.
  workers_[0]->program.build = "another";
  world_.RunFor(absl::Seconds(20));
  EXPECT_EQ(core_->Snapshot().workers_up, 1);
}

TEST_F(RegisterTest, WhatCannotBeRightIsRefusedWithItsFix) {
  CoordinatorOptions options;
  options.cluster = {{"ps", {{0, "ps0"}, {1, "ps1"}}}};
  Start(2, 1, options);
  const absl::Status beyond = Register(From(Role::kPs, 2, 9, "ps2"));
  EXPECT_EQ(ReasonOf(beyond), Reason::kClusterMismatch);
  EXPECT_THAT(std::string(beyond.message()), HasSubstr("--num_ps"));
  RegisterRequest contradicts = From(Role::kWorker, 0, 200, "worker0");
  contradicts.cluster = {{"ps", {{1, "elsewhere"}}}};
  EXPECT_EQ(ReasonOf(Register(contradicts)), Reason::kClusterMismatch);
  const CapturedLog log;
  for (int i = 0; i < 1000; ++i) (void)Register(From(Role::kPs, 3, 9, "ps3"));
  world_.RunFor(absl::Milliseconds(1));
  EXPECT_EQ(log.lines().size(), 1u) << "one line a minute";
  RegisterRequest newer = From(Role::kWorker, 0, 200, "worker0");
  newer.protocol = {kOwnProtocol.newest + 1, kOwnProtocol.newest + 2};
  EXPECT_EQ(ReasonOf(Register(newer)), Reason::kVersionMismatch);
  RegisterRequest wider = From(Role::kWorker, 1, 201, "worker1");
  wider.replicas = 2;
  const absl::Status other_replicas = Register(wider);
  EXPECT_EQ(ExitCodeOf(ReasonOf(other_replicas)), 78);
  EXPECT_THAT(std::string(other_replicas.message()),
              HasSubstr("worker 1 (worker1) has 2 replicas, and worker 0 (worker0) has 1 replica "
                        "and registered first: all "
                        "workers of a job must have the same number"));
  EXPECT_THAT(std::string(other_replicas.message()),
              HasSubstr("--replicas_per_worker=2, which refuses workers with another number"));
  EXPECT_EQ(ReasonOf(Register(From(Role::kChief, 0, 9, "chief"))), Reason::kInvalid);
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kRunning);
}

TEST_F(RegisterTest, ASecondWorkerOfAnIndexThatAnswersIsRefused) {
  Start(1, 1);
  // The coordinator asks the first process whether it lives.
  EXPECT_EQ(ReasonOf(Register(From(Role::kWorker, 0, 9, "worker0"))), Reason::kNotReady);
  world_.RunFor(absl::Milliseconds(20));
  const absl::Status refused = Register(From(Role::kWorker, 0, 9, "worker0"));
  EXPECT_EQ(ReasonOf(refused), Reason::kDuplicateTask);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("worker 0 runs already, at worker0"));
  // The first process itself may register again.
  EXPECT_TRUE(Register(From(Role::kWorker, 0, 200, "worker0")).ok());
}

TEST_F(RegisterTest, AWorkerWhosePredecessorIsSilentTakesOverWhenThatIsLost) {
  Start(1, 1);
  workers_[0]->silent = true;
  workers_[0]->refuses = absl::DeadlineExceededError("no answer");
  EXPECT_EQ(ReasonOf(Register(From(Role::kWorker, 0, 9, "worker0"))), Reason::kNotReady);
  world_.RunFor(absl::Seconds(4));
  EXPECT_EQ(ReasonOf(Register(From(Role::kWorker, 0, 9, "worker0"))), Reason::kNotReady);
  world_.RunFor(absl::Seconds(3));
  EXPECT_TRUE(Register(From(Role::kWorker, 0, 9, "worker0")).ok());
}

TEST_F(RegisterTest, ASecondPsOfAnIndexThatAnswersIsRefused) {
  Start(1, 1);
  EXPECT_EQ(ReasonOf(Register(From(Role::kPs, 0, 9, "ps0"))), Reason::kNotReady);
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_EQ(ReasonOf(Register(From(Role::kPs, 0, 9, "ps0"))), Reason::kDuplicateTask);
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kRunning);
}

TEST_F(RegisterTest, APsThatCameBackEmptyIsToldAtOnceByNameAndRemedy) {
  CoordinatorOptions options;
  options.durability = Durability::kCheckpoint;
  Start(1, 1, options);
  // Another process answers at the address.
  ps_[0]->incarnation = 9;
  EXPECT_EQ(ReasonOf(Register(From(Role::kPs, 0, 9, "ps0"))), Reason::kNotReady);
  world_.RunFor(absl::Milliseconds(20));
  const auto join = Watch([&](StatusCallback done) { core_->Join(std::move(done)); });
  EXPECT_EQ(ReasonOf(join->status), Reason::kPsLost);
  EXPECT_THAT(std::string(join->status.message()),
              HasSubstr("ps 0 (ps0) restarted: the variables it held are gone"));
  // The ps has to wait for the next coordinator.
  EXPECT_EQ(ReasonOf(Register(From(Role::kPs, 0, 9, "ps0"))), Reason::kNotReady);
}

TEST_F(RegisterTest, OneFailedConnectionToAPsDoesNotGiveItsPlaceToATwinElsewhere) {
  Start(1, 1);
  ps_[0]->refuses["Attach"] = absl::UnavailableError("connection reset");
  EXPECT_EQ(ReasonOf(Register(From(Role::kPs, 0, 9, "twin0"))), Reason::kNotReady);
  world_.RunFor(absl::Milliseconds(100));
  ps_[0]->refuses.clear();
  world_.RunFor(absl::Seconds(1));
  EXPECT_EQ(ReasonOf(Register(From(Role::kPs, 0, 9, "twin0"))), Reason::kDuplicateTask);
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kRunning);
}

TEST_F(RegisterTest, APsThatIsStillStartingWhereItsPredecessorWasIsNotTakenForThat) {
  Start(1, 1);
  ps_[0]->refuses["Attach"] = MakeError(Reason::kNotReady, "the task is starting");
  EXPECT_EQ(ReasonOf(Register(From(Role::kPs, 0, 9, "ps0"))), Reason::kNotReady);
  world_.RunFor(absl::Milliseconds(100));
  // The new process is not refused for good: it registers again later.
  EXPECT_EQ(ReasonOf(Register(From(Role::kPs, 0, 9, "ps0"))), Reason::kNotReady);
  ps_[0]->refuses.clear();
  ps_[0]->incarnation = 9;
  world_.RunFor(absl::Seconds(1));
  EXPECT_TRUE(Register(From(Role::kPs, 0, 9, "ps0")).ok());
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kRunning);
}

TEST_F(RegisterTest, AnAddressThatIsNotKnownIsLearntAndWaitedForWithWords) {
  ps_.push_back(std::make_shared<FakePs>(world_, log_, 0));
  CoordinatorOptions options;
  options.incarnation = Incarnation(1);
  options.ps_addresses = {""};
  workers_.push_back(std::make_shared<FakeWorker>(world_, log_, 0));
  core_ = *CoordinatorCore::Start(options, world_, world_.clock(), *this, store_);
  world_.RunFor(absl::Seconds(6));
  const auto waits = core_->Snapshot().waits;
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_EQ(waits[0].text == "ps 0: it has not registered yet" ||
                waits[1].text == "ps 0: it has not registered yet",
            true)
      << waits[0].text << ", " << waits[1].text;
  EXPECT_TRUE(Register(From(Role::kPs, 0, 100, "ps0")).ok());
  EXPECT_TRUE(Register(From(Role::kWorker, 0, 200, "worker0")).ok());
  world_.RunFor(absl::Milliseconds(100));
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kRunning);
}

// ---- epochs, jobs and ends ----------------------------------------------------------------------

TEST_F(CoordinatorCoreTest, ACoordinatorThatMeetsALaterEpochWhileItAttachesBeginsOneAboveIt) {
  ps_.push_back(std::make_shared<FakePs>(world_, log_, 0));
  // The store of a former coordinator is lost, and a ps still obeys its epoch.
  ps_[0]->epoch = Epoch(40);
  workers_.push_back(std::make_shared<FakeWorker>(world_, log_, 0));
  CoordinatorOptions options;
  options.incarnation = Incarnation(1);
  options.job = JobId(77);
  options.ps_addresses = {"ps0"};
  options.worker_addresses[0] = "worker0";
  core_ = *CoordinatorCore::Start(options, world_, world_.clock(), *this, store_);
  world_.RunFor(absl::Milliseconds(500));
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kRunning);
  EXPECT_EQ(core_->Snapshot().epoch_id, Epoch(41));
  EXPECT_EQ(ps_[0]->attached.job, JobId(77));
  EXPECT_EQ(store_.Load()->job.epoch, Epoch(41));
}

TEST_F(CoordinatorCoreTest, AWorkerOfAnotherJobEndsTheCoordinatorNamingWhatToGiveIt) {
  workers_.push_back(std::make_shared<FakeWorker>(world_, log_, 0));
  workers_[0]->refuses = MakeError(Reason::kWrongJob, "worker 0: serves job 1");
  ps_.push_back(std::make_shared<FakePs>(world_, log_, 0));
  CoordinatorOptions options;
  options.incarnation = Incarnation(1);
  options.ps_addresses = {"ps0"};
  options.worker_addresses[0] = "worker0";
  core_ = *CoordinatorCore::Start(options, world_, world_.clock(), *this, store_);
  const auto join = Watch([&](StatusCallback done) { core_->Join(std::move(done)); });
  world_.RunFor(absl::Seconds(20));
  const auto later = Watch([&](StatusCallback done) { core_->Join(std::move(done)); });
  EXPECT_EQ(ExitCodeOf(later->status), 78);
  EXPECT_THAT(std::string(later->status.message()), HasSubstr("--state_dir"));
  EXPECT_THAT(std::string(later->status.message()), HasSubstr("--job_name"));
}

TEST_F(CoordinatorCoreTest,
       AWorkerThatObeysAnotherCoordinatorOfTheSameEpochSendsTheNextStartBeyondIt) {
  Boot(1, 1, {});
  ErrorDetail detail;
  detail.reason = Reason::kSecondCoordinator;
  detail.epoch = Epoch(7);
  workers_[0]->refuses = MakeError(detail, "worker 0: another coordinator holds epoch 7");
  world_.RunFor(absl::Seconds(20));
  const auto join = Watch([&](StatusCallback done) { core_->Join(std::move(done)); });
  EXPECT_EQ(ExitCodeOf(join->status), 138) << join->status;
  EXPECT_EQ(store_.Load()->job.epoch, Epoch(7));
}

// ---- claims of one worker -----------------------------------------------------------------------

absl::Status StaleEpoch(uint64_t epoch, Reason reason = Reason::kStaleEpoch) {
  ErrorDetail detail;
  detail.reason = reason;
  detail.epoch = Epoch(epoch);
  return MakeError(detail, absl::StrCat("epoch ", epoch, " has begun"));
}

// If the workers of a job are not listed, more workers may come after the first one.
TEST_F(CoordinatorCoreTest, AWorkerOfAnotherJobThatComesFirstDoesNotEndIt) {
  ps_.push_back(std::make_shared<FakePs>(world_, log_, 0));
  for (int i = 0; i < 2; ++i) workers_.push_back(std::make_shared<FakeWorker>(world_, log_, i));
  workers_[0]->refuses = MakeError(Reason::kWrongJob, "worker 0: serves job 1");
  CoordinatorOptions options;
  options.incarnation = Incarnation(1);
  options.ps_addresses = {"ps0"};
  core_ = *CoordinatorCore::Start(options, world_, world_.clock(), *this, store_);
  const auto come = [this](int index) {
    core_->Call({Role::kWorker, index, Incarnation(1'000 + index), absl::StrCat("worker", index)},
                [](const absl::StatusOr<RegisterReply>&) {});
  };
  come(0);
  world_.RunFor(absl::Minutes(2));
  come(1);
  world_.RunFor(absl::Seconds(5));
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kRunning);
  Schedule("step");
  EXPECT_EQ(workers_[1]->dispatched.size(), 1u);
}

TEST_F(CoordinatorCoreTest, AWorkerThatServesAnotherJobOrCoordinatorCostsItselfAlone) {
  for (const absl::Status& refusal : {MakeError(Reason::kWrongJob, "serves job 1"), StaleEpoch(7),
                                      StaleEpoch(~uint64_t{1}), StaleEpoch(~uint64_t{0})}) {
    if (core_ != nullptr) core_->Abandon();
    ps_.clear();
    workers_.clear();
    Boot(1, 2, {});
    const uint64_t epoch = core_->Snapshot().epoch_id.value();
    workers_[1]->refuses = refusal;
    for (int i = 0; i < 3; ++i) {
      world_.RunFor(absl::Minutes(5));
      const auto step = Schedule("step");
      ASSERT_EQ(workers_[0]->dispatched.size(), 1u) << refusal;
      workers_[0]->FinishNext();
      world_.RunFor(absl::Seconds(1));
      EXPECT_TRUE(step->over && step->status.ok()) << step->status;
    }
    EXPECT_EQ(store_.Load()->job.epoch, Epoch(epoch))
        << "an epoch that a worker reports is not stored";
  }
}

TEST_F(CoordinatorCoreTest, AnEpochWithoutSenseOfTheOnlyWorkerIsWaitedOutAndNotStored) {
  Boot(1, 1, {});
  for (const Reason reason : {Reason::kStaleEpoch, Reason::kSecondCoordinator}) {
    workers_[0]->refuses = StaleEpoch(~uint64_t{1}, reason);
    world_.RunFor(absl::Minutes(30));
  }
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kRunning);
  EXPECT_EQ(store_.Load()->job.epoch, Epoch(1));
  // Another process takes the place of the worker.
  workers_[0]->refuses = absl::OkStatus();
  world_.RunFor(absl::Seconds(20));
  Schedule("step");
  EXPECT_EQ(workers_[0]->dispatched.size(), 1u);
}

TEST_F(CoordinatorCoreTest, AnEpochWithoutSenseOfAPsEndsTheCoordinatorNamingThePsAndIsNotStored) {
  ps_.push_back(std::make_shared<FakePs>(world_, log_, 0));
  ps_[0]->epoch = Epoch(~uint64_t{1});
  workers_.push_back(std::make_shared<FakeWorker>(world_, log_, 0));
  CoordinatorOptions options;
  options.incarnation = Incarnation(1);
  options.ps_addresses = {"ps0"};
  options.worker_addresses[0] = "worker0";
  core_ = *CoordinatorCore::Start(options, world_, world_.clock(), *this, store_);
  world_.RunFor(absl::Seconds(1));
  const auto join = Watch([&](StatusCallback done) { core_->Join(std::move(done)); });
  EXPECT_THAT(std::string(join->status.message()),
              HasSubstr("ps 0 (ps0) says that it obeys epoch 18446744073709551614"));
  EXPECT_EQ(store_.Load()->job.epoch, Epoch(1));
}

TEST_F(CoordinatorCoreTest, AnEpochWithoutSenseInTheStoreIsRefusedWithItsFix) {
  CoordinatorOptions options;
  options.incarnation = Incarnation(1);
  options.ps_addresses = {"ps0"};
  JobRow row;
  row.job = JobId(5);
  row.state = JobRow::State::kRunning;
  row.epoch = Epoch(~uint64_t{0});
  store_.Put({row}, [](const absl::Status&) {});
  const absl::Status refused =
      CoordinatorCore::Start(options, world_, world_.clock(), *this, store_).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--state_dir"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--job_name"));
}

// A worker may report any number of elements.
TEST_F(CoordinatorCoreTest, TheLengthOfAPassIsAWholeNumberWhateverAWorkerSaysOfTheData) {
  Boot(1, 1, {});
  workers_[0]->opens = false;
  workers_[0]->replicas = 2;
  world_.RunFor(absl::Milliseconds(500));
  RunRequest request;
  request.step.function = "step";
  request.source = "data";
  Run(request);
  world_.RunFor(absl::Milliseconds(50));
  ASSERT_EQ(workers_[0]->made.size(), 1u);
  workers_[0]->Say(ResourceReady{workers_[0]->made[0].iterator, absl::OkStatus(),
                                 std::numeric_limits<int64_t>::max()});
  world_.RunFor(absl::Milliseconds(50));
  EXPECT_EQ(core_->Snapshot().progress->total, std::numeric_limits<int64_t>::max() / 2 + 1);
}

class DataSizeTest : public CoordinatorCoreTest {
 protected:
  ResourceId OpenData(const std::vector<std::optional<int64_t>>& sizes) {
    Start(1, static_cast<int>(sizes.size()));
    const ResourceId data = core_->MakeIterator("data", Nest(), true);
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i]) workers_[i]->Say(ResourceReady{data, absl::OkStatus(), *sizes[i]});
      world_.RunFor(absl::Milliseconds(20));
    }
    return data;
  }
  // The positions that each worker is given in a pass, in which every step finishes.
  std::vector<int64_t> Positions(ResourceId data) {
    std::vector<int64_t> positions(workers_.size());
    for (int i = 0; i < 100; ++i) {
      core_->Schedule(
          {"step", Nest(Nest::List{Nest(PerWorkerHandle{data.value()})}), false},
          [](const absl::StatusOr<Nest>&) {}, [](const absl::Status&) {});
      world_.RunFor(absl::Milliseconds(5));
      for (size_t w = 0; w < workers_.size(); ++w) {
        while (!workers_[w]->dispatched.empty())
          positions[w] += workers_[w]->FinishNext().inputs[0].count;
      }
      world_.RunFor(absl::Milliseconds(5));
    }
    return positions;
  }
};

TEST_F(DataSizeTest, AWorkerWithAShorterCopyReadsNothingWheneverItIsHeard) {
  for (size_t odd = 0; odd < 3; ++odd) {
    if (core_ != nullptr) core_->Abandon();
    ps_.clear();
    workers_.clear();
    std::vector<std::optional<int64_t>> sizes(3, 58);
    sizes[odd] = 56;
    const std::vector<int64_t> positions = Positions(OpenData(sizes));
    EXPECT_EQ(positions[odd], 0);
    EXPECT_EQ(positions[0] + positions[1] + positions[2], 58);
  }
}

TEST_F(DataSizeTest, AnOddWorkerIsNotGivenStepsWhileTheOthersAreAway) {
  const ResourceId data = OpenData({58, 58, 56});
  for (int i : {0, 1})
    workers_[i]->silent = true, workers_[i]->refuses = absl::UnavailableError("away");
  world_.RunFor(absl::Seconds(20));
  const std::vector<int64_t> positions = Positions(data);
  EXPECT_EQ(positions[2], 0);
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kRunning);
}

TEST_F(DataSizeTest, OneAgainstOneIsAnErrorThatNamesBoth) {
  OpenData({58, 56});
  const auto join = Watch([&](StatusCallback done) { core_->Join(std::move(done)); });
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_EQ(join->status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(join->status.message()),
              HasSubstr("differs between workers (58 elements at worker 0, 56 at worker 1)"));
}

TEST_F(DataSizeTest, AStepThatEndsBeforeTheDataDoesLeavesItsPositionsToTheOthers) {
  const ResourceId data = OpenData({58, 58});
  core_->Schedule(
      {"step", Nest(Nest::List{Nest(PerWorkerHandle{data.value()})}), false},
      [](const absl::StatusOr<Nest>&) {}, [](const absl::Status&) {});
  world_.RunFor(absl::Milliseconds(5));
  const int liar = workers_[0]->dispatched.empty() ? 1 : 0;
  Report report;
  report.step = workers_[liar]->dispatched[0].step;
  report.outcome = StepOutcome::kEndOfData;
  report.ended = {{data, workers_[liar]->dispatched[0].inputs[0].first}};
  workers_[liar]->dispatched.clear();
  workers_[liar]->Say(std::move(report));
  world_.RunFor(absl::Milliseconds(20));
  const std::vector<int64_t> positions = Positions(data);
  EXPECT_EQ(positions[liar], 0);
  EXPECT_EQ(positions[1 - liar], 58);
}

TEST_F(CoordinatorCoreTest, AnIndexThatSomebodyMerelyClaimsTakesNoShareOfTheData) {
  Start(1, 2);
  RegisterRequest phantom;
  phantom.role = Role::kWorker;
  phantom.incarnation = Incarnation(9);
  const auto num_workers = [&](int index) {
    phantom.index = index;
    phantom.address = "worker2";
    core_->Call(phantom, [](const absl::StatusOr<RegisterReply>&) {});
    return SharesOfData();
  };
  workers_.push_back(std::make_shared<FakeWorker>(world_, log_, 2));
  workers_[2]->refuses = absl::UnavailableError("nobody listens there");
  EXPECT_EQ(num_workers(65'534), 2);
  EXPECT_EQ(num_workers(2), 3) << "a worker that has just registered is about to serve";
  world_.RunFor(absl::Minutes(1));
  EXPECT_EQ(SharesOfData(), 2);
}

// The worker serves, so it exists. But of 65,535 shares, each other worker would have only one.
TEST_F(CoordinatorCoreTest, AWorkerOfAnIndexFarAboveAllOthersTakesNoShareOfTheData) {
  Start(1, 2);
  // The limit for an index is 16 + 4 * 5, because the three workers that come have served, too.
  for (const auto& [index, shares] : {std::pair(65'534, 2), std::pair(32, 2), std::pair(35, 36)}) {
    Come(index);
    world_.RunFor(absl::Seconds(1));
    EXPECT_EQ(SharesOfData(), shares) << index;
  }
}

// Seed 102 of the simulation with a lying worker: it claimed other indices again and again.
TEST_F(CoordinatorCoreTest, AnIndexThatIsClaimedAgainAndAgainIsNotWaitedFor) {
  Start(1, 1);
  workers_.push_back(std::make_shared<FakeWorker>(world_, log_, 1));
  workers_[1]->refuses = absl::UnavailableError("nobody listens there");
  for (int i = 0; i < 60; ++i) {
    core_->Call({Role::kWorker, 1, Incarnation(9), "worker1"},
                [](const absl::StatusOr<RegisterReply>&) {});
    world_.RunFor(absl::Seconds(1));
  }
  EXPECT_EQ(SharesOfData(), 1);
}

// Seed 47 of the simulation with a lying worker: it returned each step at once, had room again, and
// got the step again until its attempts were used up.
TEST_F(CoordinatorCoreTest, AStepThatAWorkerGivesBackGoesToAnother) {
  Start(1, 2);
  for (int i = 0; i < 10; ++i) {
    const auto result = Schedule("step");
    const int first = workers_[0]->dispatched.empty() ? 1 : 0;
    workers_[first]->FinishNext(i % 2 == 0 ? StepOutcome::kSystem : StepOutcome::kCancelled,
                                absl::InternalError("it cannot"));
    world_.RunFor(absl::Milliseconds(20));
    ASSERT_EQ(workers_[1 - first]->dispatched.size(), 1u);
    workers_[1 - first]->FinishNext();
    world_.RunFor(absl::Seconds(1));  // a worker that has returned several steps rests
    EXPECT_TRUE(result->over && result->status.ok()) << result->status;
  }
}

TEST_F(CoordinatorCoreTest, TheOnlyWorkerGetsItsStepAgainAfterARest) {
  Start(1, 1);
  const auto result = Schedule("step");
  absl::Duration before;
  for (int i = 0; i < 6; ++i) {
    // Nothing else happens that would make the coordinator look at its queue.
    for (int waited = 0; workers_[0]->dispatched.empty() && waited < 1'000; ++waited)
      world_.RunFor(absl::Milliseconds(20));
    ASSERT_EQ(workers_[0]->dispatched.size(), 1u) << i;
    workers_[0]->FinishNext(StepOutcome::kSystem, absl::InternalError("it cannot"));
    world_.RunFor(absl::Milliseconds(10));
  }
  EXPECT_TRUE(workers_[0]->dispatched.empty());
  world_.RunFor(absl::Seconds(20));
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_TRUE(result->over && result->status.ok()) << result->status;
}

// Two indices at one address had two votes on the content of the data.
TEST_F(CoordinatorCoreTest, AnAddressAtWhichAWorkerServesIsNobodyElses) {
  Start(1, 1);
  absl::Status answer;
  core_->Call({Role::kWorker, 7, Incarnation(9), "worker0"},
              [&](const absl::StatusOr<RegisterReply>& reply) { answer = reply.status(); });
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_EQ(ReasonOf(answer), Reason::kNotReady);
  EXPECT_THAT(std::string(answer.message()),
              HasSubstr("at which worker 0 serves: give each task an address of its own"));
}

// Seed 2097 of the simulation: the program treated the error as the end of its own job, and waited
// for that end.
TEST_F(CoordinatorCoreTest, AParameterServerDoesNotSayThatTheJobIsOver) {
  Start(1, 1);
  ASSERT_TRUE(Create({"table", {2}})->status.ok());
  ps_[0]->refuses["Pull"] = MakeError(Reason::kJobOver, "so it says");
  absl::Status error;
  core_->Read({{"table", std::nullopt}},
              [&error](const absl::StatusOr<std::vector<Tensor>>& read) { error = read.status(); });
  world_.RunFor(absl::Seconds(1));
  EXPECT_EQ(ReasonOf(error), Reason::kNone) << error;
  EXPECT_THAT(std::string(error.message()),
              HasSubstr("ps 0 (ps0) answered that the job is over, and it is not: so it says"));
}

// Seed 4 of the simulation with a lying worker: the program ended as if another coordinator had
// taken over its job.
TEST_F(CoordinatorCoreTest, AnErrorOfAStepHasNoneOfTheReasonsThatEndAJob) {
  for (const Reason reason : {Reason::kSecondCoordinator, Reason::kWrongJob, Reason::kPsLost,
                              Reason::kNotAuthorized, Reason::kJobOver}) {
    if (core_ != nullptr) core_->Abandon();
    ps_.clear();
    workers_.clear();
    Start(1, 1);
    Schedule("step");
    workers_[0]->FinishNext(StepOutcome::kFailed, MakeError(reason, "so it says"));
    world_.RunFor(absl::Milliseconds(20));
    const auto join = Watch([&](StatusCallback done) { core_->Join(std::move(done)); });
    world_.RunFor(absl::Milliseconds(20));
    EXPECT_EQ(ReasonOf(join->status), Reason::kNone) << join->status;
    EXPECT_THAT(std::string(join->status.message()), HasSubstr("worker 0: so it says"));
  }
}

TEST_F(CoordinatorCoreTest, AStoreOfAJobThatHasEndedOrOfAnotherNameIsRefusedAtStart) {
  CoordinatorOptions options;
  options.incarnation = Incarnation(1);
  options.ps_addresses = {"ps0"};
  JobRow row;
  row.job = JobId(5);
  row.epoch = Epoch(3);
  for (const auto& [state, exit_code] :
       {std::pair{JobRow::State::kComplete, 0}, std::pair{JobRow::State::kFailed, 65}}) {
    row.state = state;
    row.exit_code = exit_code;
    store_.Put({row}, [](const absl::Status&) {});
    const absl::Status ended =
        CoordinatorCore::Start(options, world_, world_.clock(), *this, store_).status();
    EXPECT_EQ(ReasonOf(ended), Reason::kJobOver);
    EXPECT_EQ(ExitCodeOf(ended), exit_code);
    EXPECT_THAT(std::string(ended.message()), HasSubstr("--state_dir"));
  }
  row.state = JobRow::State::kRunning;
  store_.Put({row}, [](const absl::Status&) {});
  options.job = JobId(6);
  EXPECT_EQ(
      ReasonOf(CoordinatorCore::Start(options, world_, world_.clock(), *this, store_).status()),
      Reason::kWrongJob);
}

TEST_F(CoordinatorCoreTest, OnlyStepIdsThatAreDurableAreGiven) {
  CoordinatorOptions options;
  options.id_block = 4;
  Start(1, 1, options);
  store_.slow = true;
  for (int i = 0; i < 10; ++i) Schedule("a");
  const auto run_all = [&] {
    size_t done = 0;
    for (int i = 0; i < 20; ++i) {
      world_.RunFor(absl::Milliseconds(10));
      while (done < workers_[0]->dispatched.size())
        workers_[0]->Finish(workers_[0]->dispatched[done++]);
    }
    return done;
  };
  const uint64_t durable_end = store_.Load()->job.id_block_end;
  const size_t before = run_all();
  EXPECT_LE(before, 4u);
  for (const Dispatch& dispatch : workers_[0]->dispatched)
    EXPECT_LT(dispatch.step.value(), durable_end);
  store_.WriteAll();
  EXPECT_EQ(run_all(), 10u);
  EXPECT_GT(store_.Load()->job.id_block_end, workers_[0]->dispatched.back().step.value());
}

TEST_F(CoordinatorCoreTest, ADrainWaitsForWhatIsInFlightAndThenCancelsWhatWaits) {
  Start(1, 1);
  const auto running = Schedule("a");
  const auto join = Watch([&](StatusCallback done) { core_->Join(std::move(done)); });
  bool drained = false;
  core_->Drain([&] { drained = true; });
  const auto late = Schedule("b");
  world_.RunFor(absl::Seconds(1));
  EXPECT_EQ(workers_[0]->dispatched.size(), 1u) << "nothing new is dispatched";
  EXPECT_FALSE(drained || join->over);
  EXPECT_TRUE(core_->Snapshot().draining);
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_TRUE(running->over && running->status.ok());
  EXPECT_TRUE(drained);
  EXPECT_EQ(join->status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(ReasonOf(join->status), Reason::kJobOver);
  EXPECT_EQ(std::count(log_.begin(), log_.end(), "ps 0 Shutdown") +
                std::count(log_.begin(), log_.end(), "worker 0 Shutdown"),
            0);
  // The job goes on with the next coordinator.
  EXPECT_EQ(store_.Load()->job.state, JobRow::State::kRunning);
}

TEST_F(CoordinatorCoreTest, ADrainBeforeAnythingRunsIsOverAtOnce) {
  CoordinatorOptions options;
  options.incarnation = Incarnation(1);
  options.ps_addresses = {""};
  core_ = *CoordinatorCore::Start(options, world_, world_.clock(), *this, store_);
  const auto ready = Watch([&](StatusCallback done) { core_->WhenRunning(std::move(done)); });
  bool drained = false;
  core_->Drain([&] { drained = true; });
  EXPECT_TRUE(drained);
  EXPECT_EQ(ReasonOf(ready->status), Reason::kJobOver);
}

TEST_F(CoordinatorCoreTest, AVariableWhoseNumberIsBeingStoredIsAnsweredByADrain) {
  Start(1, 1);
  store_.slow = true;
  const auto created = Create({"table", {2}});
  EXPECT_FALSE(created->over);
  core_->Drain([] {});
  EXPECT_EQ(ReasonOf(created->status), Reason::kJobOver);
  store_.WriteAll();
  world_.RunFor(absl::Milliseconds(20));
}

// ---- checkpoints ----

class FakeCatalog : public CheckpointCatalog {
 public:
  absl::StatusOr<std::optional<JobState>> Newest(std::optional<CheckpointId> below) override {
    for (auto state = states.rbegin(); state != states.rend(); ++state) {
      if (!below || state->checkpoint < *below) return std::optional<JobState>(*state);
    }
    return std::optional<JobState>();
  }
  absl::Status Commit(const JobState& state,
                      const std::vector<std::vector<SavedSlice>>& parts) override {
    if (!error.ok()) return error;
    states.push_back(state);
    return absl::OkStatus();
  }
  absl::Status Collect(int keep, CheckpointId base, CheckpointId below,
                       std::vector<CheckpointId>& removed) override {
    removed = collected;
    return absl::OkStatus();
  }
  absl::Status Export(CheckpointId checkpoint, const std::string& path,
                      const ExportOptions&) override {
    return absl::OkStatus();
  }

  // The committed states, in order.
  std::vector<JobState> states;
  // The ids that each Collect reports as removed.
  std::vector<CheckpointId> collected;
  absl::Status error;
};

class CheckpointTest : public CoordinatorCoreTest {
 protected:
  void Start(int num_ps, int num_workers, CoordinatorOptions options = {}) {
    options.checkpoints = &catalog_;
    CoordinatorCoreTest::Start(num_ps, num_workers, options);
    log_.clear();
  }
  std::shared_ptr<Outcome> Save() {
    return Watch([&](StatusCallback done) {
      core_->SaveCheckpoint(
          [done](const absl::StatusOr<CheckpointId>& saved) { done(saved.status()); });
    });
  }
  FakeCatalog catalog_;
};

// A server finds that the newest checkpoint is damaged after the coordinator has restored its
// state.
TEST_F(CheckpointTest, AnOlderCheckpointHasTheNumbersThatHadFinishedByThen) {
  const auto schedule_once = [this](int64_t number) {
    StepRequest request{"step", Nest(), false};
    request.once = StepNumber{"chunks", number};
    auto accepted = std::make_shared<absl::Status>(absl::InternalError("no answer"));
    core_->Schedule(
        request, [](absl::StatusOr<Nest>) {},
        [accepted](absl::Status answer) { *accepted = std::move(answer); });
    world_.RunFor(absl::Milliseconds(20));
    return *accepted;
  };
  Start(1, 1);
  ASSERT_TRUE(Create({"table", {2}})->status.ok());
  for (const int64_t number : {0, 1}) {
    ASSERT_TRUE(schedule_once(number).ok());
    workers_[0]->FinishNext();
    Save();
    world_.RunFor(absl::Seconds(1));
  }
  ASSERT_EQ(catalog_.states.size(), 2u);
  core_->Abandon();
  workers_[0]->dispatched.clear();
  ps_[0]->damaged = catalog_.states[1].checkpoint;
  CoordinatorOptions options;
  options.incarnation = Incarnation(2);
  options.checkpoints = &catalog_;
  options.ps_addresses = {"ps0"};
  options.worker_addresses[0] = "worker0";
  core_ = *CoordinatorCore::Start(options, world_, world_.clock(), *this, store_);
  world_.RunFor(absl::Milliseconds(500));
  ASSERT_TRUE(Create({"table", {2}})->status.ok());
  absl::StatusOr<int64_t> restored = absl::InternalError("no answer");
  core_->RestoreLatest([&restored](absl::StatusOr<int64_t> steps) { restored = std::move(steps); });
  world_.RunFor(absl::Seconds(1));
  ASSERT_EQ(restored, absl::StatusOr<int64_t>(1));
  EXPECT_EQ(schedule_once(0).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(schedule_once(1).ok()) << "step 1 had not finished at the older checkpoint";
}

// A job has saved "table" and "old". Another program, or a changed version of the same program, is
// started with its directory.
class OtherModelTest : public CheckpointTest {
 protected:
  void SetUp() override {
    Start(1, 1);
    for (const char* name : {"table", "old"}) ASSERT_TRUE(Create({name, {2}})->status.ok());
    Save();
    world_.RunFor(absl::Seconds(1));
    ASSERT_EQ(catalog_.states.size(), 1u);
    core_->Abandon();
    CoordinatorOptions options;
    options.incarnation = Incarnation(2);
    options.checkpoints = &catalog_;
    options.ps_addresses = {"ps0"};
    options.worker_addresses[0] = "worker0";
    core_ = *CoordinatorCore::Start(options, world_, world_.clock(), *this, store_);
    world_.RunFor(absl::Milliseconds(500));
  }
  // The log lines, each with its severity in front, of a program that declares these variables and
  // restores.
  std::vector<std::string> LoggedWhenRestoredWith(const std::vector<std::string>& declared) {
    for (const std::string& name : declared) EXPECT_TRUE(Create({name, {2}})->status.ok());
    const CapturedLog log;
    core_->RestoreLatest([this](absl::StatusOr<int64_t> steps) { restored_ = std::move(steps); });
    world_.RunFor(absl::Seconds(1));
    return log.lines();
  }
  std::string name() const { return catalog_.states[0].checkpoint.name(); }

  absl::StatusOr<int64_t> restored_ = absl::InternalError("no answer");
};

TEST_F(OtherModelTest, WhatWasNotFoundAndWhatNobodyHasCreatedIsWarnedOfInOneLine) {
  EXPECT_THAT(LoggedWhenRestoredWith({"table", "new"}),
              Contains(absl::StrCat("W", name(),
                                    ": 1 variable of the program not in it, with initial values: "
                                    "new; 1 variable in it that the program has not ",
                                    "created: old")));
  EXPECT_TRUE(restored_.ok()) << restored_.status();
}

TEST_F(OtherModelTest, VariablesThatThePartsOfAProgramCreateLaterAreNoReasonToWarn) {
  EXPECT_THAT(LoggedWhenRestoredWith({"table"}),
              Contains(absl::StrCat("I", name(),
                                    ": 1 variable in it that the program has not created: old")));
  EXPECT_TRUE(restored_.ok()) << restored_.status();
}

TEST_F(OtherModelTest, OneWithNoVariableOfTheProgramIsRefusedAndNothingOfItIsTaken) {
  EXPECT_THAT(LoggedWhenRestoredWith({"mine"}), IsEmpty());
  EXPECT_EQ(restored_.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(restored_.status().message()),
      HasSubstr(absl::StrCat("no variable of this program is in ", name(), ": it has old, table")));
  EXPECT_THAT(std::string(restored_.status().message()),
              HasSubstr("Give this model a --checkpoint_dir (and --state_dir) of its own"));
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kChoosing);
}

class RegisterForCheckpointsTest : public RegisterTest {
 protected:
  FakeCatalog catalog_;
};

TEST_F(RegisterForCheckpointsTest, APsWithoutADirectoryIsRefusedWhereTheJobKeepsCheckpoints) {
  CoordinatorOptions options;
  options.checkpoints = &catalog_;
  Boot(2, 1, options);
  ps_[1]->holds.without_checkpoints = true;
  world_.RunFor(absl::Seconds(8));
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kAttaching);
  EXPECT_THAT(
      core_->Snapshot().waits,
      Contains(Field(&CoordinatorSnapshot::Wait::text,
                     HasSubstr("ps 1 (ps1) has no --checkpoint_dir, and the coordinator has"))));
  RegisterRequest without = From(Role::kPs, 1, 101, "ps1");
  without.without_checkpoints = true;
  const absl::Status refused = Register(without);
  EXPECT_EQ(ExitCodeOf(ReasonOf(refused)), 78);
  EXPECT_THAT(
      std::string(refused.message()),
      HasSubstr(
          "Start it with the coordinator's --checkpoint_dir, a directory that all of them reach"));
  ps_[1]->holds.without_checkpoints = false;
  ++ps_[1]->incarnation;
  EXPECT_TRUE(Register(From(Role::kPs, 1, 102, "ps1")).ok());
  world_.RunFor(absl::Seconds(15));
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kRunning);
}

TEST_F(RegisterForCheckpointsTest, APsThatComesBeforeTheResizeIsLetWaitForAMinute) {
  CoordinatorOptions options;
  options.checkpoints = &catalog_;
  Start(1, 1, options);
  const RegisterRequest early = From(Role::kPs, 1, 101, "ps1");
  EXPECT_EQ(ReasonOf(Register(early)), Reason::kNotReady);
  world_.RunFor(absl::Seconds(58));
  const absl::Status waits = Register(early);
  EXPECT_EQ(ReasonOf(waits), Reason::kNotReady);
  EXPECT_THAT(std::string(waits.message()), HasSubstr("`divvyctl resize --ps=2`, or more"));
  world_.RunFor(absl::Seconds(4));
  EXPECT_EQ(ExitCodeOf(ReasonOf(Register(early))), 78);
}

TEST_F(RegisterForCheckpointsTest, ParameterServersThatComeBeforeTheResizeDoNotFillTheLog) {
  CoordinatorOptions options;
  options.checkpoints = &catalog_;
  Start(1, 1, options);
  const CapturedLog log;
  for (int i = 1; i <= 150; ++i)
    EXPECT_EQ(ReasonOf(Register(From(Role::kPs, i, 100 + i, absl::StrCat("ps", i)))),
              Reason::kNotReady);
  EXPECT_EQ(log.lines().size(), 100u) << "the limit for all registrations in a minute";
}

TEST_F(RegisterForCheckpointsTest, APsWithADirectoryMayServeAJobThatKeepsNone) {
  Boot(1, 1, {});
  ps_[0]->holds.without_checkpoints = true;
  world_.RunFor(absl::Seconds(1));
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kRunning)
      << "a ps without a checkpoint directory may join a job without checkpoints";
  RegisterRequest request = From(Role::kPs, 0, 100, "ps0");
  for (const bool without : {true, false}) {
    request.without_checkpoints = without;
    EXPECT_TRUE(Register(request).ok());
  }
}

TEST_F(CheckpointTest, AnOperatorsSaveDecidesNothingForAProgramThatHasNotAskedForItsCheckpointYet) {
  Start(1, 1);
  Save();
  world_.RunFor(absl::Milliseconds(100));
  core_->Abandon();
  ps_.clear();
  workers_.clear();
  CoordinatorOptions options;
  options.checkpoints = &catalog_;
  Boot(1, 1, options);
  const auto saved = Watch([&](StatusCallback done) {
    core_->SaveCheckpoint(
        [done](const absl::StatusOr<CheckpointId>& saved) { done(saved.status()); },
        CoordinatorCore::Asker::kOperator);
  });
  world_.RunFor(absl::Milliseconds(500));
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kChoosing);
  EXPECT_FALSE(saved->over);
  const auto restored = Watch([&](StatusCallback done) {
    core_->RestoreLatest([done](const absl::StatusOr<int64_t>& steps) { done(steps.status()); });
  });
  world_.RunFor(absl::Seconds(2));
  EXPECT_TRUE(restored->over && restored->status.ok()) << restored->status;
  EXPECT_TRUE(saved->over && saved->status.ok()) << saved->status;
}

TEST_F(CheckpointTest, WorkersAreHeldUntilEveryPsHasMarkedAndReleasedBeforeAnythingIsWritten) {
  Start(2, 2);
  const auto saved = Save();
  world_.RunFor(absl::Milliseconds(100));
  ASSERT_TRUE(saved->over && saved->status.ok()) << saved->status;
  const auto at = [this](const std::string& line) {
    return std::find(log_.begin(), log_.end(), line) - log_.begin();
  };
  for (const std::string i : {"0", "1"}) {
    for (const std::string j : {"0", "1"}) {
      EXPECT_LT(at("worker " + i + " Hold"), at("ps " + j + " Snapshot"));
      EXPECT_LT(at("ps " + j + " Snapshot"), at("worker " + i + " Release"));
    }
  }
  ASSERT_EQ(catalog_.states.size(), 1u);
  EXPECT_EQ(catalog_.states[0].checkpoint, (CheckpointId{Epoch(1), 1}));
  EXPECT_EQ(store_.Load()->job.next_serial, 2u) << "durable before it was used";
  EXPECT_EQ(store_.Load()->checkpoints.at(0).state, CheckpointRow::State::kCommitted);
}

TEST_F(CheckpointTest, TheStoreForgetsWhatWasCollected) {
  Start(1, 1);
  Save();
  world_.RunFor(absl::Milliseconds(100));
  catalog_.collected = {{Epoch(1), 1}};
  Save();
  world_.RunFor(absl::Milliseconds(100));
  const std::vector<CheckpointRow> rows = store_.Load()->checkpoints;
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].id, (CheckpointId{Epoch(1), 2}));
}

TEST_F(CheckpointTest, ItHasTheStepsThatWereReportedBeforeTheCutAndNoOthers) {
  Start(1, 1);
  Schedule("a");
  Schedule("b");
  workers_[0]->FinishNext();
  core_->SetProgramState("bytes");
  Save();
  world_.RunFor(absl::Milliseconds(100));
  ASSERT_EQ(catalog_.states.size(), 1u);
  EXPECT_EQ(catalog_.states[0].finished_steps, 1);
  EXPECT_EQ(catalog_.states[0].cut.open, std::vector<EntryId>{workers_[0]->dispatched[0].step});
  EXPECT_EQ(catalog_.states[0].program_state, "bytes");
  EXPECT_EQ(core_->durable_steps(), 1);
}

TEST_F(CheckpointTest, WhatAFailedStepOfALoopHasReadIsUnreadInACutBeforeTheErrorIsRaised) {
  Start(1, 1);
  const auto ran = Run({{"step", Nest(), false}, "data", Nest(), /*leased=*/true, {}});
  world_.RunFor(absl::Milliseconds(50));
  ASSERT_EQ(workers_[0]->dispatched.size(), 3u);
  workers_[0]->FinishNext(StepOutcome::kFailed, absl::InvalidArgumentError("a bad record"));
  world_.RunFor(absl::Milliseconds(50));
  EXPECT_FALSE(ran->over) << "two steps are still in flight";
  Save();
  world_.RunFor(absl::Milliseconds(100));
  ASSERT_EQ(catalog_.states.size(), 1u);
  ASSERT_EQ(catalog_.states[0].data.size(), 1u);
  EXPECT_EQ(catalog_.states[0].data[0].unread.count(0), 1u);
}

TEST_F(CheckpointTest,
       ALoopWhoseErrorIsNotRaisedAnyMoreIsInTheLastCutOfACoordinatorThatIsAskedToEnd) {
  Start(1, 1);
  const auto ran = Run({{"step", Nest(), false}, "data", Nest(), /*leased=*/true, {}});
  world_.RunFor(absl::Milliseconds(50));
  workers_[0]->FinishNext();
  workers_[0]->FinishNext(StepOutcome::kFailed, absl::InvalidArgumentError("a bad record"));
  world_.RunFor(absl::Milliseconds(10));
  core_->Drain([] {});
  while (!workers_[0]->dispatched.empty()) workers_[0]->FinishNext(StepOutcome::kCancelled);
  world_.RunFor(absl::Milliseconds(200));
  ASSERT_TRUE(ran->over);
  EXPECT_EQ(ReasonOf(ran->status), Reason::kJobOver);
  ASSERT_EQ(catalog_.states.size(), 1u);
  ASSERT_EQ(catalog_.states[0].data.size(), 1u);
  EXPECT_EQ(catalog_.states[0].data[0].finished, 1);
  EXPECT_EQ(catalog_.states[0].data[0].unread.count(1), 1u);
}

TEST_F(CheckpointTest, AWorkerThatIsLostMeanwhileGivesItUpAndItIsTriedAgain) {
  Start(1, 2);
  workers_[1]->obeys_hold = false;
  const auto saved = Save();
  world_.RunFor(absl::Milliseconds(100));
  EXPECT_FALSE(saved->over);
  workers_[1]->silent = true;  // it is fenced after 5 s
  workers_[1]->refuses = absl::UnavailableError("gone");
  world_.RunFor(absl::Seconds(20));
  EXPECT_TRUE(saved->over && saved->status.ok()) << saved->status;
  EXPECT_GT(catalog_.states.at(0).checkpoint.serial, 1u) << "a name is never used twice";
  EXPECT_EQ(store_.Load()->checkpoints.size(), 1u);
}

TEST_F(CheckpointTest, AHoldThatTakesLongerThanFiveSecondsEndsAndCommitsGoOn) {
  Start(1, 2);
  workers_[1]->obeys_hold = false;
  Save();
  world_.RunFor(absl::Seconds(7));
  EXPECT_GE(std::count(log_.begin(), log_.end(), "worker 0 Release"), 1);
}

TEST_F(CheckpointTest, ADiskThatFailsIsToldToWhoAskedAndTrainingGoesOn) {
  Start(1, 1);
  ps_[0]->refuses["Snapshot, written"] = MakeError(Reason::kDisk, "no space");
  const auto failed = Save();
  world_.RunFor(absl::Seconds(2));
  EXPECT_EQ(ReasonOf(failed->status), Reason::kDisk);
  ps_[0]->refuses.clear();
  catalog_.error = absl::ResourceExhaustedError("no space for the index");
  const auto failed_too = Save();
  world_.RunFor(absl::Seconds(2));
  EXPECT_EQ(ReasonOf(failed_too->status), Reason::kDisk);
  catalog_.error = absl::OkStatus();
  const auto saved = Save();
  world_.RunFor(absl::Seconds(2));
  EXPECT_TRUE(saved->status.ok()) << saved->status;
}

TEST_F(CheckpointTest, WhoAsksAfterTheCutGetsAnother) {
  Start(1, 1);
  ps_[0]->refuses["Snapshot, written"] = absl::UnavailableError("the way is broken");
  const auto first = Save();
  // The checkpoint is cut and not yet written.
  world_.RunFor(absl::Milliseconds(50));
  Schedule("step");
  workers_[0]->FinishNext();
  const auto second = Save();
  world_.RunFor(absl::Milliseconds(50));
  ps_[0]->refuses.clear();
  world_.RunFor(absl::Seconds(5));
  ASSERT_TRUE(first->over && second->over);
  ASSERT_EQ(catalog_.states.size(), 2u);
  EXPECT_EQ(catalog_.states[0].finished_steps, 0);
  EXPECT_EQ(catalog_.states[1].finished_steps, 1);
}

TEST_F(CheckpointTest, WritesAndNewVariablesWaitWhileItIsCut) {
  Start(1, 1);
  ASSERT_TRUE(Create({"table", {2}})->status.ok());
  workers_[0]->obeys_hold = false;
  Save();
  world_.RunFor(absl::Milliseconds(50));
  StagedWrite write = WriteOf("table", {1, 2});
  const auto written = Watch([&](StatusCallback done) { core_->Write({write}, std::move(done)); });
  const auto created = Create({"late", {2}});
  EXPECT_FALSE(written->over || created->over);
  workers_[0]->Say(Held{1});
  world_.RunFor(absl::Milliseconds(100));
  EXPECT_TRUE(written->status.ok() && created->status.ok() && written->over && created->over);
  ASSERT_EQ(catalog_.states.size(), 1u);
  EXPECT_EQ(catalog_.states[0].layout->Find("late"), nullptr);
}

TEST_F(CheckpointTest, NoneIsCutBeforeFirstValuesHaveBeenBrought) {
  Start(1, 1);
  core_->ExpectValues(+1);
  const auto saved = Save();
  world_.RunFor(absl::Seconds(5));
  EXPECT_FALSE(saved->over);
  core_->ExpectValues(-1);
  world_.RunFor(absl::Milliseconds(100));
  EXPECT_TRUE(saved->over && saved->status.ok()) << saved->status;
}

TEST_F(CheckpointTest, ADrainDoesNotWaitForValuesThatNobodyBrings) {
  Start(1, 1);
  core_->ExpectValues(+1);
  bool drained = false;
  core_->Drain([&] { drained = true; });
  world_.RunFor(absl::Milliseconds(100));
  EXPECT_TRUE(drained);
  EXPECT_TRUE(catalog_.states.empty());
}

TEST_F(CheckpointTest, ADrainSavesWhatIsThereAfterADiskHasFailedOnce) {
  Start(1, 1);
  ps_[0]->refuses["Snapshot, written"] = MakeError(Reason::kDisk, "no space");
  Save();
  world_.RunFor(absl::Seconds(2));
  ps_[0]->refuses.clear();
  bool drained = false;
  core_->Drain([&] { drained = true; });
  world_.RunFor(absl::Seconds(2));
  EXPECT_TRUE(drained);
  EXPECT_EQ(catalog_.states.size(), 1u);
}

TEST_F(CheckpointTest, AJobEndsWithAllThatItHasFinished) {
  Start(1, 1);
  Schedule("step");
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  const auto ended = Watch([&](StatusCallback done) { core_->EndJob(0, std::move(done)); });
  world_.RunFor(absl::Seconds(3));
  ASSERT_TRUE(ended->over && ended->status.ok()) << ended->status;
  EXPECT_EQ(catalog_.states.back().finished_steps, 1);
}

TEST_F(CheckpointTest, AJobWhoseDirectoryGoesWithItMakesNoLastOne) {
  CoordinatorOptions options;
  options.final_checkpoint = false;
  Start(1, 1, options);
  const auto ended = Watch([&](StatusCallback done) { core_->EndJob(0, std::move(done)); });
  world_.RunFor(absl::Seconds(3));
  ASSERT_TRUE(ended->over && ended->status.ok()) << ended->status;
  EXPECT_TRUE(catalog_.states.empty());
}

TEST_F(CoordinatorCoreTest, AWorkersRefusalIsShownWhileItIsWaitedFor) {
  CoordinatorOptions options;
  options.program_flags = {{"depth", "3"}};
  Start(1, 2, options);
  EXPECT_EQ(workers_[0]->flags.at("depth"), "3");
  workers_[1]->refuses = absl::FailedPreconditionError("worker 1 cannot take the program's flags");
  workers_[1]->silent = true;
  world_.RunFor(absl::Seconds(10));
  const auto waits = core_->Snapshot().waits;
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0].text, "worker 1 (worker1): worker 1 cannot take the program's flags");
}

TEST_F(CoordinatorCoreTest, ADirectWriteLargerThanAPsTakesIsRefused) {
  max_commit_bytes_ = 7;
  Start(1, 1);
  Create({"x", {2}});
  const StagedWrite write{"x", WriteOp::kAssign, Tensor::Vector<float>({1, 2}), {}, {}};
  const auto written = Watch([&](StatusCallback done) { core_->Write({write}, std::move(done)); });
  EXPECT_EQ(written->status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(written->status.message()), HasSubstr("8 bytes"));
}

TEST_F(CoordinatorCoreTest, ArgumentsThatNoMessageCanCarryAreRefusedBeforeTheyAreQueued) {
  CoordinatorOptions options;
  options.max_args_bytes = 100;
  Start(1, 1, options);
  const Nest large(std::string(101, 'x'));
  const auto scheduled = Watch([&](StatusCallback accepted) {
    core_->Schedule(
        {"step", large, false}, [](absl::StatusOr<Nest>) {}, std::move(accepted));
  });
  EXPECT_EQ(scheduled->status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(scheduled->status.message()),
              HasSubstr("the arguments of step step are 133 bytes, more than the limit of 100"));
  const auto ran = Run({{"step", Nest(), false}, "data", large, true, {}});
  EXPECT_THAT(std::string(ran->status.message()),
              HasSubstr("the arguments of data source data are 133 bytes"));
  EXPECT_TRUE(workers_[0]->dispatched.empty());
}

TEST_F(CoordinatorCoreTest, APsThatIsAskedToEndIsSaidAtOnce) {
  CoordinatorOptions options;
  options.durability = Durability::kCheckpoint;
  Start(1, 1, options);
  ps_[0]->draining = true;
  world_.RunFor(absl::Seconds(1.5));
  const auto join = Watch([&](StatusCallback done) { core_->Join(std::move(done)); });
  EXPECT_EQ(ReasonOf(join->status), Reason::kPsLost);
  EXPECT_THAT(std::string(join->status.message()), HasSubstr("ps 0 (ps0) was asked to end"));
}

// ---- resize ----

// The partitioner cuts each variable into as many shards as there are servers. It returns an error
// for three servers.
class ResizeTest : public CheckpointTest {
 protected:
  void Start(int num_ps) {
    CoordinatorOptions options;
    options.checkpoints = &catalog_;
    options.partitioner = [](int num_ps) -> Partitioner {
      return FixedShardsPartitioner{num_ps == 3 ? 0 : num_ps};
    };
    CoordinatorCoreTest::Start(num_ps, 1, options);
    ASSERT_TRUE(Create({"table", {4}})->status.ok());
    log_.clear();
  }
  std::shared_ptr<Outcome> Resize(int num_ps) {
    auto resized = Watch([&](StatusCallback done) { core_->Resize(num_ps, std::move(done)); });
    for (int index = static_cast<int>(ps_.size()); index < num_ps; ++index) Join(index);
    world_.RunFor(absl::Seconds(2));
    return resized;
  }
  std::vector<std::string> ShutDown() const {
    std::vector<std::string> lines;
    std::copy_if(log_.begin(), log_.end(), std::back_inserter(lines),
                 [](const std::string& line) { return absl::StrContains(line, "Shutdown"); });
    return lines;
  }

 private:
  void Join(int index) {
    ps_.push_back(std::make_shared<FakePs>(world_, log_, index));
    RegisterRequest request;
    request.role = Role::kPs;
    request.index = index;
    request.incarnation = Incarnation(ps_.back()->incarnation);
    request.address = absl::StrCat("ps", index);
    core_->Call(request, [](const absl::StatusOr<RegisterReply>&) {});
  }
};

TEST_F(ResizeTest, ThoseThatStayLoadTheCheckpointByTheNewLayoutAndTheOthersEnd) {
  Start(2);
  const auto resized = Resize(1);
  ASSERT_TRUE(resized->over && resized->status.ok()) << resized->status;
  EXPECT_THAT(ShutDown(), ElementsAre("ps 1 Shutdown"));
  EXPECT_EQ(ps_[0]->loaded.from, LoadRequest::From::kCheckpoint);
  ASSERT_EQ(ps_[0]->loaded.shards.size(), 1u);
  EXPECT_EQ(core_->layout()->Find("table")->num_shards(), 1);
  EXPECT_EQ(core_->Snapshot().num_ps, 1);
}

TEST_F(ResizeTest, ANumberThatThePartitionerRefusesChangesNothing) {
  Start(4);
  const auto refused = Resize(3);
  ASSERT_TRUE(refused->over);
  EXPECT_EQ(refused->status.code(), absl::StatusCode::kInvalidArgument) << refused->status;
  EXPECT_THAT(ShutDown(), ElementsAre());
  EXPECT_EQ(core_->Snapshot().num_ps, 4);
  EXPECT_EQ(core_->layout()->Find("table")->num_shards(), 4);
  const auto step = Schedule("step");
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_TRUE(step->over && step->status.ok()) << "the job goes on: " << step->status;
  const auto again = Resize(2);
  EXPECT_TRUE(again->over && again->status.ok()) << again->status;
}

TEST_F(ResizeTest, AServerThatHadJoinedInVainIsNamedWithWhatToDo) {
  Start(2);
  const auto uncut = Resize(3);
  ASSERT_TRUE(uncut->over);
  EXPECT_EQ(uncut->status.code(), absl::StatusCode::kInvalidArgument) << uncut->status;
  EXPECT_THAT(std::string(uncut->status.message()),
              HasSubstr("the number of parameter servers stays 2: "));
  EXPECT_THAT(
      std::string(uncut->status.message()),
      HasSubstr(
          "Fix this, start ps 2 again (it exits, because the job does not wait for it any more), "
          "and repeat the resize"));
}

TEST_F(ResizeTest, ServersThatHadJoinedBeforeADiskFailedAreNamedWithWhatToDo) {
  Start(2);
  catalog_.error = absl::ResourceExhaustedError("no space for the index");
  const auto full = Resize(4);
  ASSERT_TRUE(full->over);
  EXPECT_EQ(ReasonOf(full->status), Reason::kDisk) << full->status;
  EXPECT_THAT(std::string(full->status.message()),
              HasSubstr("the number of parameter servers stays 2: no space for the index. Fix "
                        "this, start ps 2 to 3 again"));
}

TEST_F(ResizeTest, ADiskThatFailsTheCheckpointEndsItAndTheJobGoesOn) {
  Start(2);
  catalog_.error = absl::ResourceExhaustedError("no space for the index");
  const auto refused = Resize(1);
  ASSERT_TRUE(refused->over);
  EXPECT_THAT(std::string(refused->status.message()), HasSubstr("no space for the index"));
  EXPECT_EQ(core_->Snapshot().num_ps, 2);
  const auto step = Schedule("step");
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_TRUE(step->over && step->status.ok()) << step->status;
}

TEST_F(ResizeTest, AServerThatJoinsLoadsItsShareOfWhatThereIs) {
  Start(1);
  const auto resized = Resize(2);
  ASSERT_TRUE(resized->over && resized->status.ok()) << resized->status;
  EXPECT_THAT(ShutDown(), ElementsAre());
  EXPECT_EQ(ps_[1]->loaded.from, LoadRequest::From::kCheckpoint);
  EXPECT_EQ(ps_[1]->loaded.shards.size(), 1u);
}

TEST_F(ResizeTest, AVariableThatLiesBesideAnotherDoesSoAfterwards) {
  Start(2);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Create({absl::StrCat("other", i), {4}})->status.ok());
  ASSERT_TRUE(Create({"beside", {4}}, Colocation{"table", 1})->status.ok());
  const auto resized = Resize(4);
  ASSERT_TRUE(resized->over && resized->status.ok()) << resized->status;
  EXPECT_EQ(core_->layout()->Find("beside")->ps,
            std::vector<int>{core_->layout()->Find("table")->ps[1]});
}

// A variable that is created after the cut is not in the checkpoint. The resize is quiet at the cut
// and at the commit.
class ResizeWithValuesTest : public ResizeTest, public ::testing::WithParamInterface<int> {};
TEST_P(ResizeWithValuesTest, AVariableThatIsBroughtWhileTheCheckpointIsWrittenIsThereAfterwards) {
  Start(2);
  for (const auto& ps : ps_)
    ps->refuses["Snapshot, written"] = absl::UnavailableError("a slow disk");
  const auto resized = Resize(GetParam());
  ASSERT_FALSE(resized->over);
  core_->ExpectValues(+1);
  const auto created = Create({"brought", {4}});
  ASSERT_TRUE(created->over && created->status.ok()) << created->status;
  StagedWrite write = WriteOf("brought", {1, 2, 3, 4});
  const auto written = Watch([&](StatusCallback done) { core_->Write({write}, std::move(done)); });
  world_.RunFor(absl::Milliseconds(100));
  ASSERT_TRUE(written->over && written->status.ok());
  core_->ExpectValues(-1);
  for (const auto& ps : ps_) ps->refuses.clear();
  world_.RunFor(absl::Seconds(20));
  EXPECT_TRUE(resized->over && resized->status.ok()) << resized->status;
  EXPECT_EQ(core_->Snapshot().num_ps, GetParam());
  EXPECT_NE(core_->layout()->Find("brought"), nullptr) << "the program was told that it exists";
}
INSTANTIATE_TEST_SUITE_P(FewerAndMore, ResizeWithValuesTest, ::testing::Values(1, 4));

// ---- rewind and replay ----

class ReplayTest : public CheckpointTest {
 protected:
  void StartWith(CoordinatorOptions options, bool checkpoints = true) {
    if (checkpoints) options.checkpoints = &catalog_;
    CoordinatorCoreTest::Start(2, 1, options);
    log_.clear();
  }
  void Start() { StartWith({}); }
  std::shared_ptr<Outcome> Finished(const std::string& function) {
    const auto result = Schedule(function);
    workers_[0]->FinishNext();
    world_.RunFor(absl::Milliseconds(20));
    return result;
  }
  // Schedules the steps together and lets all of them finish.
  void FinishedTogether(const std::vector<std::string>& functions) {
    for (const std::string& function : functions) Schedule(function);
    for (size_t i = 0; i < functions.size(); ++i) {
      workers_[0]->FinishNext();
      world_.RunFor(absl::Milliseconds(20));
    }
  }
  std::vector<std::string> Dispatched() {
    std::vector<std::string> functions;
    for (const Dispatch& dispatch : workers_[0]->dispatched) functions.push_back(dispatch.function);
    return functions;
  }
};

TEST_F(ReplayTest, WhatIsLoadedAndRunAgainIsToldWithItsShare) {
  using Kind = CoordinatorSnapshot::Work::Kind;
  Start();
  Finished("before");
  Save();
  world_.RunFor(absl::Milliseconds(100));
  FinishedTogether({"a", "b", "c", "d"});
  EXPECT_FALSE(core_->Snapshot().work);
  for (const auto& ps : ps_) ps->load_progress = {250, 750};
  LosePs(1);
  ASSERT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kLoading);
  ASSERT_TRUE(core_->Snapshot().work);
  EXPECT_EQ(core_->Snapshot().work->kind, Kind::kRestore);
  EXPECT_EQ(core_->Snapshot().work->total, 0) << "no server has said it";
  world_.RunFor(absl::Milliseconds(600));
  ASSERT_TRUE(core_->Snapshot().work);
  EXPECT_EQ(core_->Snapshot().work->done, 500);
  EXPECT_EQ(core_->Snapshot().work->total, 2000);
  EXPECT_GE(core_->Snapshot().work->since, absl::Milliseconds(500));
  world_.RunFor(absl::Milliseconds(600));
  ASSERT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kReplaying);
  ASSERT_TRUE(core_->Snapshot().work);
  EXPECT_EQ(core_->Snapshot().work->kind, Kind::kReplay);
  EXPECT_EQ(core_->Snapshot().work->done, 0);
  EXPECT_EQ(core_->Snapshot().work->total, 4);
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_EQ(core_->Snapshot().work->done, 1);
  for (int i = 0; i < 3; ++i) {
    workers_[0]->FinishNext();
    world_.RunFor(absl::Milliseconds(20));
  }
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kRunning);
  EXPECT_FALSE(core_->Snapshot().work);
}

TEST_F(ReplayTest, StepsThatAreRunAgainAreNoSamples) {
  Start();
  core_->SampleSteps();
  FinishedTogether({"a", "b"});
  EXPECT_EQ(core_->TakeWorkerSteps().at(0).steps, 2);
  core_->WantGradients();
  LosePs(1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(workers_[0]->dispatched.front().want_gradients);
    workers_[0]->FinishNext();
    world_.RunFor(absl::Milliseconds(20));
  }
  EXPECT_TRUE(core_->TakeWorkerSteps().empty());
  Schedule("c");
  EXPECT_TRUE(workers_[0]->dispatched.front().want_gradients);
}

TEST_F(CoordinatorCoreTest, OneStepIsAskedForItsGradientsAndTheyAreKeptUntilTheyAreTaken) {
  Start(1, 1);
  core_->SampleSteps();
  core_->WantGradients();
  Schedule("a");
  Schedule("b");
  ASSERT_EQ(workers_[0]->dispatched.size(), 2u);
  EXPECT_TRUE(workers_[0]->dispatched[0].want_gradients);
  EXPECT_FALSE(workers_[0]->dispatched[1].want_gradients);
  workers_[0]->Finish(workers_[0]->dispatched[1], StepOutcome::kOk, {}, {0});
  Report report;
  report.step = workers_[0]->dispatched[0].step;
  report.attempt = workers_[0]->dispatched[0].attempt;
  report.participants = {0};
  report.staleness = 4;
  report.took = absl::Seconds(2);
  report.gradients = {{"w", {-1, 1, {3, 4}}}};
  workers_[0]->Say(report);
  world_.RunFor(absl::Milliseconds(20));
  const GradientSample sample = core_->TakeGradients();
  EXPECT_EQ(sample.step, 2);
  ASSERT_EQ(sample.gradients.size(), 1u);
  EXPECT_EQ(sample.gradients[0].values.counts, (std::vector<uint64_t>{3, 4}));
  EXPECT_TRUE(core_->TakeGradients().gradients.empty());
  EXPECT_EQ(core_->TakeStaleness(), (std::map<uint64_t, int64_t>{{0, 1}, {4, 1}}));
  EXPECT_EQ(core_->TakeWorkerSteps().at(0).took, absl::Seconds(2));
}

TEST_F(CoordinatorCoreTest, AnotherStepIsAskedForGradientsWhereTheFirstTellsNone) {
  Start(1, 1);
  core_->SampleSteps();
  core_->WantGradients();
  Schedule("assigns");
  EXPECT_TRUE(workers_[0]->FinishNext().want_gradients);
  world_.RunFor(absl::Milliseconds(20));
  Schedule("is tried twice");
  EXPECT_TRUE(workers_[0]
                  ->FinishNext(StepOutcome::kSystem, absl::AbortedError("its input is gone"))
                  .want_gradients);
  world_.RunFor(absl::Milliseconds(20));
  ASSERT_EQ(workers_[0]->dispatched.size(), 1u);
  const Dispatch again = workers_[0]->dispatched.front();
  EXPECT_TRUE(again.want_gradients);
  Report report;
  report.step = again.step;
  report.attempt = again.attempt;
  report.gradients = {{"w", {-1, 1, {3, 4}}}};
  workers_[0]->dispatched.pop_front();
  workers_[0]->Say(report);
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_EQ(core_->TakeGradients().step, 2);
  Schedule("later");
  EXPECT_FALSE(workers_[0]->FinishNext().want_gradients);
}

TEST_F(ReplayTest, WhatHadFinishedIsRunAgainAsItWasAndCountsOnceThenWhatHadNot) {
  Start();
  Finished("a");
  Schedule("b");
  Schedule("c");
  const EntryId first(workers_[0]->dispatched[0].step.value() - 1);
  // Step c finishes before step b.
  workers_[0]->Finish(workers_[0]->dispatched[1]);
  world_.RunFor(absl::Milliseconds(20));
  LosePs(1);
  ASSERT_THAT(Dispatched(), ElementsAre("a"));
  EXPECT_EQ(workers_[0]->dispatched[0].step, first);
  EXPECT_EQ(workers_[0]->dispatched[0].ordinal, 0);
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  ASSERT_THAT(Dispatched(), ElementsAre("c"));
  EXPECT_EQ(workers_[0]->dispatched[0].ordinal, 2);
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kReplaying);
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kRunning);
  ASSERT_THAT(Dispatched(), ElementsAre("b"));
  EXPECT_EQ(workers_[0]->dispatched[0].ordinal, 1);
  EXPECT_EQ(core_->step(), 2);
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_EQ(core_->step(), 3);
  EXPECT_TRUE(WhyOver().ok());
}

// The update tells workers to drop all values that they have read, also those read during the
// replay.
TEST_F(ReplayTest, WorkersAreToldTheLayoutOnceMoreBetweenTheLastStepThatIsRunAgainAndTheNext) {
  Start();
  FinishedTogether({"a", "b"});
  Schedule("c");
  LosePs(1);
  ASSERT_THAT(Dispatched(), ElementsAre("a", "b"));
  const int layouts = workers_[0]->layouts;
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_EQ(workers_[0]->layouts, layouts);
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  ASSERT_THAT(Dispatched(), ElementsAre("c"));
  EXPECT_EQ(workers_[0]->layouts_at_dispatch, layouts + 1);
}

TEST_F(ReplayTest, AHorizonInTheMiddleOfAReplayCountsNoStepThatIsOpen) {
  Start();
  FinishedTogether({"a", "b"});
  LosePs(1);
  world_.RunFor(absl::Seconds(2));
  ASSERT_THAT(Dispatched(), ElementsAre("a", "b"));
  EXPECT_EQ(ps_[0]->horizon.open.size(), 2u);
  EXPECT_EQ(ps_[0]->horizon.finished_steps, 0u)
      << "a coordinator that adopts the state would count them twice";
  workers_[0]->FinishNext();
  workers_[0]->FinishNext();
  world_.RunFor(absl::Seconds(2));
  EXPECT_EQ(ps_[0]->horizon.finished_steps, 2u);
}

TEST_F(ReplayTest, TheStoreIsToldOfEachOrdinalThatIsLostBeforeTheNextStep) {
  Start();
  Finished("a");
  Schedule("fails");
  workers_[0]->FinishNext(StepOutcome::kFailed, absl::InvalidArgumentError("a bad record"));
  world_.RunFor(absl::Milliseconds(50));
  EXPECT_FALSE(WhyOver().ok());
  Schedule("next");
  ASSERT_THAT(Dispatched(), ElementsAre("next"));
  const JobState stored = store_.Load()->state->state;
  EXPECT_EQ(stored.next_ordinal - stored.finished_steps, 1);
}

TEST_F(ReplayTest, AllServersLoadTheNewestCheckpointAndOnlyWhatCameAfterItIsRun) {
  Start();
  ASSERT_TRUE(Create({"old", {2}})->status.ok());
  Finished("a");
  Save();
  world_.RunFor(absl::Milliseconds(100));
  ASSERT_EQ(catalog_.states.size(), 1u);
  ASSERT_TRUE(Create({"new", {2}})->status.ok());
  Finished("b");
  ps_[0]->created.clear(), ps_[1]->created.clear();
  LosePs(0);
  for (const auto& ps : ps_) {
    EXPECT_EQ(ps->loaded.from, LoadRequest::From::kCheckpoint);
    EXPECT_EQ(ps->loaded.checkpoint, (CheckpointId{Epoch(1), 1}));
    EXPECT_EQ(ps->attached.epoch, Epoch(2));
  }
  ASSERT_EQ(ps_[0]->loaded.shards.size(), 1u);
  EXPECT_EQ(ps_[0]->loaded.shards[0].name, "old");
  ASSERT_EQ(ps_[1]->created.size(), 1u);
  EXPECT_EQ(ps_[1]->created[0].name, "new");
  EXPECT_THAT(Dispatched(), ElementsAre("b"));
  EXPECT_EQ(store_.Load()->job.lineage, Epoch(1))
      << "no coordinator may adopt a state from which steps are missing";
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_EQ(store_.Load()->job.lineage, Epoch(2));
}

TEST_F(ReplayTest, AReadIsOfOneState) {
  CoordinatorOptions options;
  options.partitioner = [](int num_ps) -> Partitioner { return FixedShardsPartitioner{num_ps}; };
  StartWith(options);
  ASSERT_TRUE(Create({"table", {2}})->status.ok());
  ps_[1]->refuses["Pull"] = absl::UnavailableError("the connection broke");
  core_->Read({{"table", std::nullopt}}, [](const absl::StatusOr<std::vector<Tensor>>&) {});
  world_.RunFor(absl::Milliseconds(20));
  ASSERT_EQ(std::count(log_.begin(), log_.end(), "ps 0 Pull"), 1);
  LosePs(1);
  world_.RunFor(absl::Seconds(2));
  EXPECT_EQ(std::count(log_.begin(), log_.end(), "ps 0 Pull"), 2)
      << "the first answer of ps 0 is of the state before the loss";
}

TEST_F(ReplayTest, AWriteIsRunAgainAloneInItsPlace) {
  Start();
  ASSERT_TRUE(Create({"table", {2}})->status.ok());
  StagedWrite write = WriteOf("table", {1, 2});
  Finished("before");
  ASSERT_TRUE(Watch([&](StatusCallback done) { core_->Write({write}, std::move(done)); }));
  world_.RunFor(absl::Milliseconds(20));
  Finished("after");
  ASSERT_EQ(ps_[0]->commits.size(), 1u);
  LosePs(0);
  EXPECT_THAT(Dispatched(), ElementsAre("before"));
  EXPECT_EQ(ps_[0]->commits.size(), 1u);
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  ASSERT_EQ(ps_[0]->commits.size(), 2u);
  EXPECT_EQ(ps_[0]->commits[0], ps_[0]->commits[1]);
  EXPECT_THAT(Dispatched(), ElementsAre("after"));
}

// A step that is open while the program writes comes after the write, in the first run and in each
// replay.
TEST_F(ReplayTest, AStepThatWasOpenBesideAWriteIsRunAgainAfterIt) {
  Start();
  ASSERT_TRUE(Create({"counter", {2}})->status.ok());
  StagedWrite write = WriteOf("counter", {100, 100});
  const auto step = Schedule("add");
  log_.clear();
  const auto written = Watch([&](StatusCallback done) { core_->Write({write}, std::move(done)); });
  world_.RunFor(absl::Milliseconds(20));
  ASSERT_TRUE(written->over && written->status.ok());
  EXPECT_THAT(log_, ElementsAre("worker 0 Hold", "ps 0 Commit", "worker 0 Release"));
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  ASSERT_TRUE(step->over);
  log_.clear();
  LosePs(1);
  EXPECT_EQ(std::count(log_.begin(), log_.end(), "ps 0 Commit"), 1);
  EXPECT_THAT(Dispatched(), ElementsAre("add"));
}

// Otherwise a retry of the write on one ps could come long after the step has committed on another.
TEST_F(ReplayTest, AStepIsDispatchedBehindTheWriteThatBeganBeforeItAndTheNextWriteBehindTheStep) {
  Start();
  ASSERT_TRUE(Create({"counter", {2}})->status.ok());
  const auto write = [this] {
    return Watch([&](StatusCallback done) {
      core_->Write({WriteOf("counter", {100, 100})}, std::move(done));
    });
  };
  ps_[0]->refuses["Commit"] = absl::UnavailableError("the connection broke");
  const auto first = write();
  world_.RunFor(absl::Milliseconds(20));
  Schedule("add");
  const auto second = write();
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_THAT(Dispatched(), ElementsAre());
  ps_[0]->refuses.clear();
  ps_[0]->commits.clear(), log_.clear();
  world_.RunFor(absl::Seconds(2));
  ASSERT_TRUE(first->over && first->status.ok());
  EXPECT_TRUE(second->over && second->status.ok());
  EXPECT_THAT(Dispatched(), ElementsAre("add"));
  EXPECT_EQ(std::count(log_.begin(), log_.end(), "worker 0 Hold"), 1)
      << "the second write came when the step was open";
}

// The size of the data is not known, and the last step reads fewer positions than it was given.
TEST_F(ReplayTest, WhatAStepHasNotReadIsNotItsOwnInAReplay) {
  CoordinatorOptions options;
  options.checkpoints = &catalog_;
  Boot(2, 1, options);
  workers_[0]->replicas = 2;
  world_.RunFor(absl::Milliseconds(500));
  RunRequest request;
  request.step.function = "step";
  request.source = "data";
  Run(request);
  world_.RunFor(absl::Milliseconds(20));
  ASSERT_FALSE(workers_[0]->dispatched.empty());
  const Dispatch& first = workers_[0]->dispatched[0];
  Report report;
  report.step = first.step;
  report.attempt = first.attempt;
  report.ended = {{first.inputs.at(0).iterator, first.inputs.at(0).first + 1}};
  workers_[0]->Say(std::move(report));
  workers_[0]->dispatched.erase(workers_[0]->dispatched.begin());
  world_.RunFor(absl::Milliseconds(20));
  LosePs(1);
  world_.RunFor(absl::Seconds(2));
  ASSERT_FALSE(ps_[0]->horizon.passes.empty());
  for (const PassProgress& pass : ps_[0]->horizon.passes) {
    int64_t beyond = 0;
    for (const auto& [position, count] : pass.unread) {
      EXPECT_GE(position, beyond) << "ranges overlap";
      EXPECT_GT(count, 0);
      beyond = position + count;
    }
  }
}

TEST_F(ReplayTest, AWriteBehindAStepThatNobodyCanRunBegins) {
  Start();
  ASSERT_TRUE(Create({"counter", {2}})->status.ok());
  const auto write = [this] {
    return Watch([&](StatusCallback done) {
      core_->Write({WriteOf("counter", {100, 100})}, std::move(done));
    });
  };
  ps_[0]->refuses["Commit"] = absl::UnavailableError("the connection broke");
  write();
  world_.RunFor(absl::Milliseconds(20));
  Schedule("add");
  const auto second = write();
  workers_[0]->Say(Draining());
  ps_[0]->refuses.clear();
  world_.RunFor(absl::Seconds(3));
  EXPECT_TRUE(second->over && second->status.ok());
  EXPECT_THAT(Dispatched(), ElementsAre());
}

TEST_F(ReplayTest, AWriteWaitsForTheCommitThatIsUnderWayAndIsGivenUpAndTriedAgainWithItsWorker) {
  Start();
  ASSERT_TRUE(Create({"counter", {2}})->status.ok());
  StagedWrite write = WriteOf("counter", {100, 100});
  Schedule("add");
  workers_[0]->obeys_hold = false;
  const auto written = Watch([&](StatusCallback done) { core_->Write({write}, std::move(done)); });
  world_.RunFor(absl::Seconds(4));
  EXPECT_FALSE(written->over);
  EXPECT_TRUE(ps_[0]->commits.empty());
  world_.RunFor(absl::Seconds(3));
  EXPECT_EQ(std::count(log_.begin(), log_.end(), "worker 0 Release"), 1)
      << "commits wait for 5 s at most";
  workers_[0]->obeys_hold = true;
  world_.RunFor(absl::Seconds(7));
  EXPECT_TRUE(written->over && written->status.ok());
}

TEST_F(ReplayTest, ADrainLetsGoOfTheCommitsThatAWriteHolds) {
  Start();
  ASSERT_TRUE(Create({"counter", {2}})->status.ok());
  StagedWrite write = WriteOf("counter", {100, 100});
  Schedule("add");
  workers_[0]->obeys_hold = false;
  const auto written = Watch([&](StatusCallback done) { core_->Write({write}, std::move(done)); });
  world_.RunFor(absl::Milliseconds(20));
  bool drained = false;
  core_->Drain([&] { drained = true; });
  world_.RunFor(absl::Seconds(2));
  EXPECT_EQ(std::count(log_.begin(), log_.end(), "worker 0 Release"), 1);
  workers_[0]->obeys_hold = true;
  workers_[0]->FinishNext();
  world_.RunFor(absl::Seconds(10));
  EXPECT_TRUE(drained);
  EXPECT_EQ(ReasonOf(written->status), Reason::kJobOver) << written->status;
}

TEST_F(ReplayTest, StepsThatFollowedEachOtherDoSoAgain) {
  Start();
  Finished("a");
  Finished("b");
  LosePs(0);
  EXPECT_THAT(Dispatched(), ElementsAre("a")) << "b had begun after a had finished";
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_THAT(Dispatched(), ElementsAre("b"));
}

// Step a is lost with its worker. It is dispatched again after step b, which was scheduled later,
// has finished.
TEST_F(ReplayTest, AStepThatWasItselfRunAgainComesAfterWhatHadFinishedByThen) {
  CoordinatorOptions options;
  options.checkpoints = &catalog_;
  CoordinatorCoreTest::Start(2, 2, options);
  Schedule("a");
  Schedule("b");
  ASSERT_EQ(workers_[0]->dispatched.size(), 1u);
  ASSERT_EQ(workers_[1]->dispatched.size(), 1u);
  workers_[0]->silent = true;
  workers_[1]->FinishNext();
  // Worker 0 is lost, and worker 1 gets its step.
  world_.RunFor(absl::Seconds(7));
  ASSERT_EQ(workers_[1]->dispatched.size(), 1u);
  workers_[1]->FinishNext();
  workers_[0]->silent = false;
  world_.RunFor(absl::Seconds(7));
  LosePs(0);
  ASSERT_EQ(workers_[1]->dispatched.size(), 1u);
  EXPECT_EQ(workers_[1]->dispatched[0].function, "b");
  workers_[1]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  ASSERT_EQ(workers_[1]->dispatched.size(), 1u);
  EXPECT_EQ(workers_[1]->dispatched[0].function, "a");
  workers_[1]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kRunning);
}

TEST_F(ReplayTest, JoinReadsAndWritesWaitUntilAllIsThereAgain) {
  Start();
  ASSERT_TRUE(Create({"table", {2}})->status.ok());
  Finished("a");
  LosePs(0);
  log_.clear();
  StagedWrite write = WriteOf("table", {1, 2});
  const auto written = Watch([&](StatusCallback done) { core_->Write({write}, std::move(done)); });
  const auto joined = Watch([&](StatusCallback done) { core_->Join(std::move(done)); });
  core_->Read({{"table", std::nullopt}}, [](const absl::StatusOr<std::vector<Tensor>>&) {});
  world_.RunFor(absl::Milliseconds(100));
  EXPECT_FALSE(written->over || joined->over);
  EXPECT_EQ(std::count(log_.begin(), log_.end(), "ps 0 Pull"), 0);
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(100));
  EXPECT_TRUE(written->over && joined->over);
  EXPECT_EQ(std::count(log_.begin(), log_.end(), "ps 0 Pull"), 1);
}

TEST_F(ReplayTest, AFurtherLossOnTheWayBeginsItAgain) {
  Start();
  FinishedTogether({"a", "b"});
  LosePs(0);
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  LosePs(1);
  EXPECT_THAT(Dispatched(), ElementsAre("a", "b"));
  EXPECT_EQ(core_->Snapshot().epoch_id, Epoch(3));
  workers_[0]->FinishNext();
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kRunning);
  EXPECT_EQ(core_->step(), 2);
}

TEST_F(ReplayTest, AStepThatFailedIsNotRunAgainAndItsErrorStaysRaised) {
  Start();
  Schedule("fails");
  workers_[0]->FinishNext(StepOutcome::kFailed, absl::InvalidArgumentError("no"));
  world_.RunFor(absl::Milliseconds(20));
  LosePs(0);
  EXPECT_THAT(Dispatched(), ElementsAre());
  EXPECT_EQ(WhyOver().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(WhyOver().ok());
}

TEST_F(ReplayTest, AHalfAppliedStepThatFailsWhenRunAgainIsTakenBack) {
  Start();
  const auto result = Schedule("step");
  const EntryId id = workers_[0]->dispatched[0].step;
  ps_[0]->applied[id] = 2;
  workers_[0]->silent = true;
  world_.RunFor(absl::Seconds(7));
  workers_[0]->silent = false;
  world_.RunFor(absl::Seconds(10));
  ASSERT_THAT(Dispatched(), ElementsAre("step"));
  workers_[0]->FinishNext(StepOutcome::kFailed, absl::InvalidArgumentError("no"));
  world_.RunFor(absl::Milliseconds(100));
  EXPECT_EQ(result->status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(core_->Snapshot().epoch_id, Epoch(2));
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kRunning);
  EXPECT_EQ(WhyOver().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ReplayTest, AStepThatHadFinishedAndNowFailsEndsTheJobWithTheRuleItBreaks) {
  CoordinatorOptions options;
  options.max_step_attempts = 2;
  StartWith(options);
  Finished("reads_a_clock");
  LosePs(0);
  for (int attempt = 0; attempt < 2; ++attempt) {
    ASSERT_THAT(Dispatched(), ElementsAre("reads_a_clock"));
    workers_[0]->FinishNext(StepOutcome::kFailed, absl::InvalidArgumentError("it is too late"));
    world_.RunFor(absl::Milliseconds(20));
  }
  const absl::Status over = WhyOver();
  EXPECT_EQ(over.code(), absl::StatusCode::kUnavailable)
      << "the next start goes on from the checkpoint, and runs nothing again";
  EXPECT_EQ(ReasonOf(over), Reason::kPsLost);
  EXPECT_THAT(std::string(over.message()), HasSubstr("it is too late"));
  EXPECT_THAT(std::string(over.message()),
              HasSubstr("A step must depend on its args, inputs, variables and seed() alone"));
}

TEST_F(ReplayTest, ABaseThatCannotBeReadIsDataLossAndWorthAnotherStart) {
  Start();
  Save();
  world_.RunFor(absl::Milliseconds(100));
  ps_[0]->refuses["Load"] = MakeError(Reason::kCheckpointCorrupt, "ckpt-1-1 is damaged");
  LosePs(1);
  EXPECT_EQ(WhyOver().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(WhyOver().message()), HasSubstr("ckpt-1-1 is damaged"));
  EXPECT_EQ(ExitCodeOf(WhyOver()), 138);
}

TEST_F(ReplayTest, MoreRecoveriesThanAllowedWithinTenMinutesEndTheJob) {
  CoordinatorOptions options;
  options.max_recoveries = 2;
  StartWith(options);
  LosePs(0);
  world_.RunFor(absl::Minutes(11));
  LosePs(0);
  LosePs(0);
  EXPECT_TRUE(WhyOver().ok()) << "two within 10 minutes";
  LosePs(0);
  EXPECT_THAT(std::string(WhyOver().message()), HasSubstr("--max_recoveries (2)"));
  EXPECT_EQ(ExitCodeOf(WhyOver()), 70);
}

TEST_F(ReplayTest, AServerThatEndsWheneverItLoadsEndsTheJobAfterAllRecoveries) {
  CoordinatorOptions options;
  options.max_recoveries = 5;
  StartWith(options);
  Finished("a");
  Save();
  world_.RunFor(absl::Milliseconds(100));
  ps_[0]->refuses["Load"] = absl::UnavailableError("it ran out of memory while it loaded");
  for (int i = 0; i < 5; ++i) {
    LosePs(0);
    world_.RunFor(absl::Milliseconds(300));
    ASSERT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kLoading);
  }
  LosePs(0);
  world_.RunFor(absl::Milliseconds(300));
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kFailed);
  EXPECT_THAT(std::string(WhyOver().message()), HasSubstr("--max_recoveries"));
}

// Nothing has run yet, so nothing is lost. But without a limit, a server with too little memory
// would be restarted for ever.
TEST_F(CoordinatorCoreTest, AServerThatEndsAtTheFirstLoadOfAllEndsTheJobAfterAllRecoveries) {
  CoordinatorOptions options;
  options.max_recoveries = 3;
  Boot(2, 1, options);
  ps_[0]->refuses["Load"] = absl::UnavailableError("it ran out of memory while it loaded");
  world_.RunFor(absl::Milliseconds(300));
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kLoading)
        << "after " << i << " losses";
    LosePs(0);
    world_.RunFor(absl::Milliseconds(300));
  }
  ASSERT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kLoading);
  LosePs(0);
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kFailed);
  EXPECT_EQ(core_->Snapshot().recoveries, 4);
  EXPECT_THAT(std::string(WhyOver().message()),
              HasSubstr("ps 0 (ps0) restarted before it had loaded its variables"));
  EXPECT_THAT(std::string(WhyOver().message()), HasSubstr("--max_recoveries (3)"));
  EXPECT_EQ(ExitCodeOf(WhyOver()), 70);
}

TEST_F(ReplayTest, AHalfFullLogWantsACheckpointAndAFullOneNoStepUntilItIsThere) {
  CoordinatorOptions options;
  options.redo_log_bytes = 1'500;  // some four steps
  StartWith(options);
  ps_[0]->refuses["Snapshot, written"] = absl::UnavailableError("slow");
  for (int i = 0; i < 4; ++i) Finished("step");
  EXPECT_TRUE(core_->Snapshot().checkpoint.has_value())
      << "the log is half full; no call has asked for a checkpoint, and none is scheduled";
  while (core_->Snapshot().redo_log_bytes < options.redo_log_bytes) Finished("step");
  const int64_t finished = core_->step();
  Schedule("waits");
  EXPECT_THAT(Dispatched(), ElementsAre());
  ps_[0]->refuses.clear();
  world_.RunFor(absl::Seconds(5));
  EXPECT_THAT(Dispatched(), ElementsAre("waits"));
  EXPECT_GE(core_->durable_steps(), 1);
  EXPECT_EQ(core_->step(), finished);
}

TEST_F(ReplayTest, AFullLogThatNoCheckpointEmptiesEndsTheJobInTheEnd) {
  CoordinatorOptions options;
  options.redo_log_bytes = 300;
  options.checkpoint_stall_timeout = absl::Seconds(30);
  StartWith(options);
  ps_[0]->refuses["Snapshot, written"] = MakeError(Reason::kDisk, "no space");
  Finished("step");
  world_.RunFor(absl::Seconds(20));
  Schedule("waits");
  EXPECT_THAT(Dispatched(), ElementsAre());
  world_.RunFor(absl::Seconds(20));
  EXPECT_THAT(std::string(WhyOver().message()), HasSubstr("the redo log has been full for"));
  EXPECT_EQ(ExitCodeOf(WhyOver()), 74);
}

TEST_F(ReplayTest, WithoutCheckpointsTheLogFromTheStartIsTheBaseUntilItIsFull) {
  CoordinatorOptions options;
  options.redo_log_bytes = 1'500;
  StartWith(options, /*checkpoints=*/false);
  Finished("a");
  LosePs(0);
  EXPECT_EQ(ps_[0]->loaded.from, LoadRequest::From::kEmpty);
  ASSERT_THAT(Dispatched(), ElementsAre("a"));
  workers_[0]->FinishNext();
  for (int i = 0; i < 10; ++i) Finished("step");
  EXPECT_EQ(core_->step(), 11) << "the job goes on";
  LosePs(0);
  EXPECT_EQ(ReasonOf(WhyOver()), Reason::kPsLost);
}

// The log charges the args of a dataset to the first step that finishes.
TEST_F(ReplayTest, ALogThatTheArgsOfDataFillIsGivenUpAndTheLoopGoesOn) {
  CoordinatorOptions options;
  options.redo_log_bytes = 2'000;
  StartWith(options, /*checkpoints=*/false);
  RunRequest request;
  request.step.function = "step";
  request.source = "data";
  request.source_args = Nest(*Tensor::Zeros(DType::kFloat32, {1'000}));
  Run(request);
  for (int i = 0; i < 10; ++i) {
    world_.RunFor(absl::Milliseconds(20));
    ASSERT_FALSE(workers_[0]->dispatched.empty()) << "after " << i << " steps";
    workers_[0]->FinishNext();
  }
}

// A log that is being replayed must not be given up before the end of the replay.
TEST_F(ReplayTest, ALogThatAVariableFillsDuringAReplayIsGivenUpBehindIt) {
  CoordinatorOptions options;
  options.redo_log_bytes = 800;
  StartWith(options, /*checkpoints=*/false);
  Finished("a");
  Finished("b");
  LosePs(0);
  const auto created = Create({"table", {2}});
  ASSERT_TRUE(created->over && created->status.ok()) << created->status;
  ASSERT_THAT(Dispatched(), ElementsAre("a"));
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  ASSERT_THAT(Dispatched(), ElementsAre("b"));
  workers_[0]->FinishNext();
  Finished("c");
  EXPECT_EQ(core_->step(), 3);
  LosePs(0);
  EXPECT_EQ(ReasonOf(WhyOver()), Reason::kPsLost) << "the log was given up after the first replay";
}

TEST_F(ReplayTest, ACoordinatorThatIsAskedToEndOnTheWayEndsAtOnce) {
  Start();
  Finished("a");
  LosePs(0);
  bool drained = false;
  core_->Drain([&] { drained = true; });
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_TRUE(drained);
  EXPECT_EQ(ReasonOf(WhyOver()), Reason::kJobOver);
}

TEST_F(ReplayTest, AJobThatLosesAServerAsItEndsEndsWithAllThatItHasFinished) {
  Start();
  Finished("a");
  // Every call fails, also the last Sync.
  ps_[1]->refuses[""] = MakeError(Reason::kWrongIncarnation, "another life");
  ps_[1]->incarnation = 9;
  const auto ended = Watch([&](StatusCallback done) { core_->EndJob(0, std::move(done)); });
  world_.RunFor(absl::Milliseconds(5));
  ps_[1]->refuses.clear();
  world_.RunFor(absl::Milliseconds(100));
  EXPECT_FALSE(ended->over);
  ASSERT_THAT(Dispatched(), ElementsAre("a"));
  workers_[0]->FinishNext();
  world_.RunFor(absl::Seconds(5));
  ASSERT_TRUE(ended->over && ended->status.ok()) << ended->status;
  EXPECT_EQ(catalog_.states.back().finished_steps, 1);
}

// A step that the program does not wait for is half applied, and its next attempt touches another
// ps.
class EndWithHalfAStepTest : public ReplayTest {
 protected:
  void RunUntilTheEndIsBeingStored(CoordinatorOptions options) {
    StartWith(std::move(options), /*checkpoints=*/false);
    result_ = Schedule("step");
    ps_[0]->applied[workers_[0]->dispatched[0].step] = 2;
    workers_[0]->silent = true;
    world_.RunFor(absl::Seconds(7));
    workers_[0]->silent = false;
    world_.RunFor(absl::Seconds(10));
    ASSERT_FALSE(workers_[0]->dispatched.empty());
    store_.slow = true;
    ended_ = Watch([&](StatusCallback done) { core_->EndJob(3, std::move(done)); });
    world_.RunFor(absl::Milliseconds(20));
    workers_[0]->FinishNext(StepOutcome::kOk, {}, {1});
    world_.RunFor(absl::Milliseconds(100));
  }
  void ExpectThatTheJobEnds() {
    EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kEnding);
    store_.WriteAll();
    world_.RunFor(absl::Milliseconds(100));
    ASSERT_TRUE(ended_->over);
    EXPECT_EQ(ended_->status, absl::OkStatus());
    EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kOver);
    std::optional<int> over;
    core_->Call({Role::kPs, 0, Incarnation(9), "ps0"},
                [&](const absl::StatusOr<RegisterReply>& reply) {
                  over = reply.ok() ? reply->over : std::nullopt;
                });
    EXPECT_EQ(over, 3);
  }
  std::shared_ptr<Outcome> result_, ended_;
};

TEST_F(EndWithHalfAStepTest, WhileTheEndIsBeingStoredNoServerGoesBack) {
  RunUntilTheEndIsBeingStored({});
  EXPECT_EQ(core_->Snapshot().recoveries, 0);
  ExpectThatTheJobEnds();
}

TEST_F(EndWithHalfAStepTest, WhileTheEndIsBeingStoredTheJobDoesNotFailThatCannotGoBack) {
  CoordinatorOptions options;
  options.durability = Durability::kCheckpoint;
  RunUntilTheEndIsBeingStored(options);
  ExpectThatTheJobEnds();
}

// ---- dynamic tables ----

DynamicTable UsersWith(int64_t max_rows, TableOptions::Full full) {
  DynamicTable table("user", {.width = 4, .max_rows = max_rows, .full = full});
  table.partitioner = FixedShardsPartitioner{2};
  return table;
}

class FullTableTest : public CoordinatorCoreTest {
 protected:
  void StartWith(TableOptions::Full full) {
    Start(2, 1);
    ASSERT_TRUE(Create(UsersWith(100, full))->status.ok());
    Tell(0, 10, 0);
    Tell(1, 20, 0);
  }
  void Tell(size_t ps, int64_t rows, int64_t refused) {
    const ShardKey part = {core_->layout()->Find("user")->id, 0, static_cast<uint16_t>(ps)};
    ps_[ps]->tables = {{part, {rows, 0, 1000, rows, refused, 0}}};
  }
  static void ExpectFull(const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("dynamic table \"user\" is full: 3 writes to new keys found no room on "
                          "ps 1 (it has 50 rows there, and max_rows=100 gives this part 50)"));
  }
};

TEST_F(FullTableTest, ItsNumbersAreInTheStatus) {
  StartWith(TableOptions::Full::kRefuse);
  Tell(1, 50, 3);
  world_.RunFor(absl::Seconds(2));
  const CoordinatorSnapshot now = core_->Snapshot();
  EXPECT_EQ(now.phase, CoordinatorSnapshot::Phase::kRunning) << "it refuses keys, and goes on";
  ASSERT_EQ(now.tables.size(), 1u);
  EXPECT_EQ(now.tables[0].name, "user");
  EXPECT_EQ(now.tables[0].max_rows, 100);
  EXPECT_EQ(now.tables[0].stats, (TablePartStats{60, 0, 2000, 60, 3, 0}));
}

TEST_F(FullTableTest, EndsTheJobSoonIfItIsToFail) {
  StartWith(TableOptions::Full::kFail);
  Schedule("step");
  world_.RunFor(absl::Seconds(2));
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kRunning);
  Tell(1, 50, 3);
  world_.RunFor(absl::Seconds(2));
  ExpectFull(WhyOver());
}

// The last step of the job may be the one that met the full table.
TEST_F(FullTableTest, EndsTheJobBeforeItCountsAsComplete) {
  StartWith(TableOptions::Full::kFail);
  world_.RunFor(absl::Seconds(2));
  Tell(1, 50, 3);
  const auto ended = Watch([&](StatusCallback done) { core_->EndJob(0, std::move(done)); });
  world_.RunFor(absl::Seconds(5));
  ASSERT_TRUE(ended->over);
  ExpectFull(ended->status);
  EXPECT_NE(store_.Load()->job.state, JobRow::State::kComplete);
}

// ---- adoption ----

class AdoptTest : public CoordinatorCoreTest {
 protected:
  void SetUp() override {
    Start(2, 1);
    ASSERT_TRUE(Create({"table", {2}})->status.ok());
  }
  // The coordinator dies. The servers keep the state that they were last told, and another
  // coordinator is started with the same store.
  void StartAgain() {
    const std::shared_ptr<const Layout> layout = core_->layout();
    core_->Abandon();
    CoordinatorOptions options;
    options.incarnation = Incarnation(2);
    for (size_t i = 0; i < ps_.size(); ++i) {
      ps_[i]->holds.state = PsState::kFrozen;
      ps_[i]->holds.lineage = Epoch(1);
      ps_[i]->holds.layout_version = layout->version();
      ps_[i]->holds.layout_hash = layout->hash();
      ps_[i]->holds.horizon = ps_[i]->horizon;
      options.ps_addresses.push_back(absl::StrCat("ps", i));
    }
    options.worker_addresses[0] = "worker0";
    workers_[0]->dispatched.clear();
    core_ = *CoordinatorCore::Start(options, world_, world_.clock(), *this, store_);
    world_.RunFor(absl::Milliseconds(500));
  }
  absl::StatusOr<int64_t> Restore() {
    auto restored = std::make_shared<absl::StatusOr<int64_t>>(absl::InternalError("no answer"));
    core_->RestoreLatest(
        [restored](absl::StatusOr<int64_t> steps) { *restored = std::move(steps); });
    world_.RunFor(absl::Milliseconds(500));
    return *restored;
  }
  void FinishOne() {
    Schedule("step");
    workers_[0]->FinishNext();
    // A Sync tells the servers that the step has finished.
    world_.RunFor(absl::Seconds(2));
  }
};

TEST_F(AdoptTest, ACoordinatorThatIsStartedAgainKeepsWhatTheServersHold) {
  core_->SetProgramState("round 3");
  FinishOne();
  StartAgain();
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kChoosing);
  EXPECT_TRUE(Create({"table", {2}})->status.ok());
  EXPECT_TRUE(Create({"new", {2}})->status.ok());
  EXPECT_EQ(*Restore(), 1);
  EXPECT_EQ(core_->Snapshot().adopted_steps, 1);
  EXPECT_EQ(core_->program_state(), "round 3");
  EXPECT_TRUE(core_->WasRestored("table"));
  EXPECT_FALSE(core_->WasRestored("new"));
  for (const auto& ps : ps_) {
    EXPECT_EQ(ps->loaded.from, LoadRequest::From::kKeep);
    EXPECT_EQ(ps->loaded.expected_lineage, Epoch(1));
    EXPECT_EQ(ps->loaded.horizon.finished_steps, 1u);
  }
  EXPECT_EQ(store_.Load()->job.lineage, Epoch(1));
  Schedule("step");
  ASSERT_EQ(workers_[0]->dispatched.size(), 1u);
  EXPECT_EQ(workers_[0]->dispatched[0].ordinal, 1);
}

TEST_F(AdoptTest, ATableThatTheServersHoldGetsTheOptionsOfTheProgram) {
  ASSERT_TRUE(Create(UsersWith(100, TableOptions::Full::kFail))->status.ok());
  const VariableId user = core_->layout()->Find("user")->id;
  FinishOne();
  for (const auto& ps : ps_) ps->created.clear();
  StartAgain();
  EXPECT_TRUE(Create({"table", {2}})->status.ok());
  EXPECT_TRUE(Create(UsersWith(200, TableOptions::Full::kRefuse))->status.ok());
  testing::internal::CaptureStderr();
  EXPECT_EQ(*Restore(), 1);
  const std::string log = testing::internal::GetCapturedStderr();
  const std::vector<int> servers = core_->layout()->Find("user")->ps;
  for (uint16_t part = 0; part < 2; ++part) {
    const FakePs& ps = *ps_[static_cast<size_t>(servers[part])];
    EXPECT_EQ(ps.loaded.from, LoadRequest::From::kKeep);
    ASSERT_EQ(ps.created.size(), 1u) << "and not the variable, which has no options";
    EXPECT_EQ(ps.created[0].key, (ShardKey{user, 0, part}));
    EXPECT_EQ(ps.created[0].table->max_rows, 200);
  }
  EXPECT_EQ(core_->layout()->Find("user")->spec.table->max_rows, 200);
  EXPECT_THAT(log, HasSubstr("dynamic table \"user\" has other options than in"));
  EXPECT_THAT(log, HasSubstr("max_rows 100 -> 200, full kFail -> kRefuse"));
  // The next one adopts what this one has stored.
  FinishOne();
  for (const auto& ps : ps_) ps->created.clear();
  StartAgain();
  EXPECT_TRUE(Create(UsersWith(200, TableOptions::Full::kRefuse))->status.ok());
  EXPECT_EQ(*Restore(), 2);
  EXPECT_TRUE(ps_[0]->created.empty()) << "the same options again";
}

// The servers of a killed job still hold its state. A program with another model is started with
// the state directory of that job.
TEST_F(AdoptTest, AnotherModelIsRefusedAndNothingIsKept) {
  FinishOne();
  StartAgain();
  EXPECT_TRUE(Create({"other", {2}})->status.ok());
  const absl::Status refused = Restore().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  for (const char* words : {"what the parameter servers hold", "table", "other", "--state_dir"}) {
    EXPECT_NE(refused.message().find(words), absl::string_view::npos) << refused;
  }
  EXPECT_FALSE(core_->Snapshot().adopted_steps.has_value());
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kChoosing);
}

TEST_F(AdoptTest, AProgramThatDoesNotAskBeginsAnew) {
  FinishOne();
  StartAgain();
  Schedule("step");
  world_.RunFor(absl::Milliseconds(500));
  EXPECT_EQ(ps_[0]->loaded.from, LoadRequest::From::kEmpty);
  EXPECT_EQ(core_->step(), 0);
  EXPECT_EQ(Restore().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(AdoptTest, AServerThatRestartsBeforeAllHaveKeptTheirsTakesItBack) {
  FinishOne();
  StartAgain();
  ASSERT_TRUE(Create({"table", {2}})->status.ok());
  ps_[1]->refuses["Load"] = MakeError(Reason::kWrongIncarnation, "another life");
  ps_[1]->incarnation = 999;
  ps_[1]->holds = PsAttachReply();
  core_->RestoreLatest([](const absl::StatusOr<int64_t>&) {});
  world_.RunFor(absl::Milliseconds(1));
  ps_[1]->refuses.clear();
  world_.RunFor(absl::Seconds(3));
  EXPECT_EQ(core_->Snapshot().phase, CoordinatorSnapshot::Phase::kRunning);
  EXPECT_FALSE(core_->Snapshot().adopted_steps.has_value());
  EXPECT_EQ(ps_[0]->loaded.from, LoadRequest::From::kEmpty);
  EXPECT_EQ(core_->step(), 0);
}

// The next coordinator computes the next ordinal from the finished steps and from the lost ordinals
// in the store. If the store did not know of a lost ordinal, the next coordinator could give an
// ordinal that a finished step already has.
TEST_F(AdoptTest, AStepThatFailedIsOpenToTheServersUntilTheStoreKnowsThatItsOrdinalIsLost) {
  Start(1, 1);
  Schedule("fails");
  const EntryId failed = workers_[0]->dispatched.front().step;
  store_.slow = true;
  workers_[0]->FinishNext(StepOutcome::kFailed, absl::InvalidArgumentError("no"));
  world_.RunFor(absl::Seconds(2));
  EXPECT_THAT(ps_[0]->horizon.open, ElementsAre(failed));
  store_.WriteAll();
  world_.RunFor(absl::Seconds(2));
  EXPECT_THAT(ps_[0]->horizon.open, IsEmpty());
}

TEST_F(AdoptTest, NoStepBeginsBeforeTheProgramsBytesAreStored) {
  store_.slow = true;
  core_->SetProgramState("round 4");
  Schedule("step");
  EXPECT_TRUE(workers_[0]->dispatched.empty());
  store_.WriteAll();
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_EQ(workers_[0]->dispatched.size(), 1u);
  EXPECT_EQ(store_.Load()->state->state.program_state, "round 4");
}

TEST_F(AdoptTest, TheStoreKnowsOfAPassOverLeasedDataBeforeItsFirstStepBegins) {
  store_.slow = true;
  RunRequest request;
  request.step.function = "step";
  request.source = "source";
  const auto over = Run(request);
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_TRUE(workers_[0]->dispatched.empty());
  store_.WriteAll();
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_FALSE(workers_[0]->dispatched.empty());
  ASSERT_EQ(store_.Load()->state->state.data.size(), 1u);
  EXPECT_EQ(store_.Load()->state->state.data[0].source, "source");
}

class SeriesTest : public AdoptTest {
 protected:
  struct Numbered {
    Outcome accepted, result;
  };
  std::shared_ptr<Numbered> ScheduleOnce(int64_t number, const std::string& series = "chunks",
                                         bool read_only = false) {
    auto numbered = std::make_shared<Numbered>();
    StepRequest request{"step", Nest(), read_only};
    request.once = StepNumber{series, number};
    core_->Schedule(
        request,
        [numbered](absl::StatusOr<Nest> value) {
          numbered->result = {true, value.status()};
        },
        [numbered](absl::Status accepted) {
          numbered->accepted = {true, std::move(accepted)};
        });
    world_.RunFor(absl::Milliseconds(20));
    return numbered;
  }
};

TEST_F(SeriesTest, ANumberThatHasFinishedIsNotQueuedAgain) {
  ScheduleOnce(3);
  ASSERT_EQ(workers_[0]->dispatched.size(), 1u);
  EXPECT_EQ(ScheduleOnce(3)->accepted.status.code(), absl::StatusCode::kFailedPrecondition)
      << "step 3 is running";
  workers_[0]->FinishNext();
  world_.RunFor(absl::Milliseconds(20));
  const auto again = ScheduleOnce(3);
  EXPECT_EQ(again->accepted.status.code(), absl::StatusCode::kAlreadyExists)
      << again->accepted.status;
  EXPECT_FALSE(again->result.over);
  EXPECT_TRUE(ScheduleOnce(3, "others")->accepted.status.ok()) << "another series";
  EXPECT_TRUE(ScheduleOnce(2)->accepted.status.ok());
}

TEST_F(SeriesTest, ANumberThatFailedMayBeScheduledAgain) {
  ScheduleOnce(0);
  workers_[0]->FinishNext(StepOutcome::kFailed, absl::InternalError("no luck"));
  world_.RunFor(absl::Milliseconds(20));
  const auto join = Watch([&](StatusCallback done) { core_->Join(std::move(done)); });
  world_.RunFor(absl::Milliseconds(20));
  ASSERT_TRUE(join->over && !join->status.ok());
  EXPECT_TRUE(ScheduleOnce(0)->accepted.status.ok());
}

TEST_F(SeriesTest, WhatCannotBeRememberedIsRefused) {
  EXPECT_EQ(ScheduleOnce(-1)->accepted.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ScheduleOnce(1, "")->accepted.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ScheduleOnce(1, "chunks", /*read_only=*/true)->accepted.status.code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(SeriesTest, ANumberThatHasFinishedIsKnownToACoordinatorThatAdopts) {
  ScheduleOnce(0);
  workers_[0]->FinishNext();
  // A Sync tells the servers.
  world_.RunFor(absl::Seconds(2));
  StartAgain();
  EXPECT_TRUE(Create({"table", {2}})->status.ok());
  ASSERT_EQ(Restore(), absl::StatusOr<int64_t>(1));
  EXPECT_EQ(ScheduleOnce(0)->accepted.status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(ScheduleOnce(1)->accepted.status.ok());
}

TEST_F(SeriesTest, TheStoreNamesTheSeriesAndServersAreToldTheNumbers) {
  ScheduleOnce(0);
  ScheduleOnce(5);
  ASSERT_EQ(store_.Load()->state->state.data.size(), 1u);
  EXPECT_EQ(store_.Load()->state->state.data[0].source, "chunks");
  EXPECT_TRUE(store_.Load()->state->state.data[0].is_series);
  const InputLease lease = workers_[0]->dispatched[1].inputs.at(0);
  EXPECT_EQ(lease, (InputLease{store_.Load()->state->state.data[0].iterator, 5, 1}));
  workers_[0]->FinishNext();
  world_.RunFor(absl::Seconds(2));
  ASSERT_EQ(ps_[0]->horizon.passes.size(), 1u);
  EXPECT_EQ(ps_[0]->horizon.passes[0].next, 1) << "0 has finished, 5 has not";
}

TEST_F(AdoptTest, WhatWaitsForFirstValuesIsNotAdopted) {
  core_->ExpectValues(+1);
  ASSERT_TRUE(Create({"brought", {2}})->status.ok());
  EXPECT_EQ(store_.Load()->state->held, StateRow::Held::kFirstValues);
  core_->ExpectValues(-1);
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_EQ(store_.Load()->state->held, StateRow::Held::kAll);
}

TEST_F(AdoptTest, WithoutCheckpointsALostServerEndsTheJobFromThenOn) {
  FinishOne();
  StartAgain();
  ASSERT_TRUE(Restore().ok());
  ps_[0]->incarnation = 999;
  ps_[0]->down = MakeError(Reason::kWrongIncarnation, "another life");
  const auto join = Watch([&](StatusCallback done) { core_->WhenRunning(std::move(done)); });
  world_.RunFor(absl::Seconds(3));
  const auto after = Watch([&](StatusCallback done) { core_->WhenRunning(std::move(done)); });
  world_.RunFor(absl::Milliseconds(20));
  EXPECT_EQ(ReasonOf(after->status), Reason::kPsLost);
}

}  // namespace
}  // namespace divvy
