// A coordinator in virtual time, with a program that makes any calls, and with parameter servers
// and workers that answer anything, late, twice or never. The coordinator does not crash, answers
// each call of the program once, and keeps no more than a job of this size needs.
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/testing/fuzz.h"
#include "base/testing/in_memory_file_system.h"
#include "base/testing/sim_executor.h"
#include "coordinator/checkpoint/bundle_catalog.h"
#include "coordinator/core/coordinator_core.h"
#include "coordinator/core/store.h"
#include "protocol/resumable_stream.h"
#include "tests/fuzz/choices.h"

namespace divvy {
namespace {

constexpr int kMostTasks = 3;
constexpr int64_t kMostEntries = 100'000;  // in all structures together

// Chooses how a call ends, by the fuzzer's bytes.
class Answers {
 public:
  Answers(fuzz::Choices& choices, SimExecutor& executor) : choices_(choices), executor_(executor) {}

  template <typename Reply>
  void Give(ResultCallback<Reply> done, Reply proper) {
    absl::StatusOr<Reply> reply = std::move(proper);
    if (!choices_.Often()) {
      const absl::Status refusal = choices_.Any<absl::Status>();
      if (!refusal.ok()) reply = refusal;
    }
    const absl::Duration delay =
        choices_.Often() ? absl::Milliseconds(1) : absl::Seconds(choices_.Below(20));
    if (choices_.Often())
      executor_.PostAfter(delay,
                          [done = std::move(done), reply = std::move(reply)] { done(reply); });
  }
  // Answers with the proper reply, or with any reply of its type.
  template <typename Reply>
  void GiveAny(ResultCallback<Reply> done, Reply proper) {
    if (!choices_.Often()) proper = choices_.Any<Reply>();
    Give(std::move(done), std::move(proper));
  }
  fuzz::Choices& choices() { return choices_; }
  SimExecutor& executor() { return executor_; }

 private:
  fuzz::Choices& choices_;
  SimExecutor& executor_;
};

class AnyPs : public Sends<AnyPs, ParameterClient> {
 public:
  AnyPs(Answers& answers, int index) : answers_(answers), index_(index) {}
  template <typename Request>
  void Send(Request request, ResultCallback<ReplyTo<Request>> done) {
    answers_.GiveAny(std::move(done), Proper(request));
  }
  void Send(PullRequest request, ResultCallback<PullReply> done) {
    answers_.Give(std::move(done), Generator().ReplyTo(request));
  }
  void Send(CommitRequest request, ResultCallback<CommitReply> done) {
    answers_.Give(std::move(done), Generator().ReplyTo(request));
  }

 private:
  template <typename Request>
  ReplyTo<Request> Proper(const Request&) {
    return {};
  }
  PsAttachReply Proper(const PsAttachRequest&) {
    PsAttachReply reply;
    reply.incarnation = Incarnation(100 + static_cast<uint64_t>(index_));
    return reply;
  }
  LoadReply Proper(const LoadRequest& request) { return {false, 0, request.layout_hash}; }
  SyncReply Proper(const SyncRequest& request) {
    SyncReply reply;
    reply.seq = request.seq;
    return reply;
  }
  SnapshotReply Proper(const SnapshotRequest&) {
    SnapshotReply reply;
    reply.done = true;
    return reply;
  }
  wire::testing::Generator Generator() {
    return wire::testing::Generator(answers_.choices().Number());
  }

  Answers& answers_;
  const int index_;
};

class AnyWorker : public WorkerClient, public std::enable_shared_from_this<AnyWorker> {
 public:
  AnyWorker(Answers& answers, int index) : answers_(answers), index_(index) {}
  void Call(WorkerAttachRequest request, ResultCallback<WorkerAttachReply> done) override {
    session_ = request.fence.session;
    stream_ = std::make_unique<ResumableStream<FromWorker, ToWorker>>(session_);
    answers_.GiveAny(std::move(done),
                     WorkerAttachReply{Incarnation(200 + static_cast<uint64_t>(index_)), 1, 1, {}});
  }
  void Call(ShutdownRequest, ResultCallback<ShutdownReply> done) override {
    answers_.Give(std::move(done), ShutdownReply());
  }
  std::shared_ptr<StreamConnection<ToWorker>> OpenSteps(
      std::shared_ptr<StreamListener<FromWorker>> listener) override {
    struct Connection : StreamConnection<ToWorker> {
      explicit Connection(std::weak_ptr<AnyWorker> worker) : worker(std::move(worker)) {}
      void Send(StreamFrame<ToWorker> frame) override {
        if (const auto alive = worker.lock()) alive->Take(std::move(frame));
      }
      void Close() override {}
      const std::weak_ptr<AnyWorker> worker;
    };
    listener_ = std::move(listener);
    if (stream_ != nullptr) Pass(stream_->Connect());
    return std::make_shared<Connection>(weak_from_this());
  }

  void SayAny() { Say(answers_.choices().Any<StreamFrame<FromWorker>>().message.value_or(Pong())); }
  void SayRawAny() {
    auto frame = answers_.choices().Any<StreamFrame<FromWorker>>();
    if (answers_.choices().Often()) frame.session = session_;
    Pass(std::move(frame));
  }
  // Reports on the step that the worker received first, whatever its state.
  void SayReport() {
    if (steps_.empty()) return;
    auto report = answers_.choices().Any<Report>();
    report.step = steps_.front().step;
    report.attempt = steps_.front().attempt;
    if (answers_.choices().Often())
      report.outcome = StepOutcome::kOk, report.error = absl::OkStatus();
    if (answers_.choices().Often()) steps_.pop_front();
    Say(std::move(report));
  }
  void Break() {
    if (stream_ != nullptr) stream_->Disconnect();
    if (auto listener = std::exchange(listener_, nullptr))
      answers_.executor().Post([listener] { listener->OnBroken(); });
  }

 private:
  void Pass(StreamFrame<FromWorker> frame) {
    answers_.executor().Post([listener = listener_, frame = std::move(frame)] {
      if (listener != nullptr) listener->OnFrame(frame);
    });
  }
  void Say(FromWorker message) {
    if (stream_ == nullptr) return;
    if (auto frame = stream_->Send(std::move(message))) Pass(*std::move(frame));
  }
  void Take(StreamFrame<ToWorker> frame) {
    std::vector<StreamFrame<FromWorker>> resend;
    std::optional<ToWorker> message;
    if (stream_ == nullptr || !stream_->Receive(std::move(frame), resend, message).ok() || !message)
      return;
    if (auto* dispatch = std::get_if<Dispatch>(&*message)) steps_.push_back(*dispatch);
    if (auto* make = std::get_if<MakeResource>(&*message))
      Say(ResourceReady{make->iterator, absl::OkStatus(), std::nullopt, std::nullopt});
    if (auto* hold = std::get_if<Hold>(&*message)) Say(Held{hold->number});
    if (std::holds_alternative<Ping>(*message)) Say(Pong());
  }

  Answers& answers_;
  const int index_;
  SessionId session_;
  std::unique_ptr<ResumableStream<FromWorker, ToWorker>> stream_;
  std::deque<Dispatch> steps_;
  std::shared_ptr<StreamListener<FromWorker>> listener_;
};

class Run : public Dialer {
 public:
  explicit Run(absl::string_view bytes)
      : choices_(bytes), answers_(choices_, executor_), store_(executor_) {
    for (int i = 0; i < kMostTasks; ++i) {
      ps_.push_back(std::make_shared<AnyPs>(answers_, i));
      workers_.push_back(std::make_shared<AnyWorker>(answers_, i));
    }
    CoordinatorOptions options;
    options.incarnation = Incarnation(1);
    options.job = JobId(9);
    options.ps_addresses = {"ps0", "ps1"};
    options.worker_addresses = {{0, "worker0"}, {1, "worker1"}};
    options.redo_log_bytes = 1 << 20;
    catalog_ = *OpenBundleCatalog(files_, "/checkpoints");
    options.checkpoints = catalog_.get();
    options.checkpoint_every = absl::Seconds(5);
    options.keep_checkpoints = 2;
    core_ = *CoordinatorCore::Start(options, executor_, executor_.clock(), *this, store_);
  }
  ~Run() override { core_->Abandon(); }

  std::shared_ptr<ParameterClient> ParameterServer(const std::string& address) override {
    return ps_[IndexOf(address)];
  }
  std::shared_ptr<WorkerClient> Worker(const std::string& address) override {
    return workers_[IndexOf(address)];
  }

  void Play() {
    executor_.RunFor(absl::Milliseconds(100));
    while (!choices_.done()) Next();
    executor_.RunFor(absl::Seconds(30));
    (void)core_->Snapshot();
    (void)core_->Inspect();
    int64_t entries = 0;
    for (const auto& [name, size] : core_->Sizes()) entries += size;
    fuzz::Require(entries < kMostEntries, "more is kept than a job of this size needs");
  }

 private:
  static size_t IndexOf(const std::string& address) {
    return address.empty() ? 0 : static_cast<unsigned char>(address.back()) % kMostTasks;
  }

  void Register() {
    auto request = choices_.Any<RegisterRequest>();
    if (choices_.Often()) request.index = static_cast<int>(choices_.Below(4));
    if (choices_.Often())
      request.address =
          absl::StrCat(request.role == Role::kPs ? "ps" : "worker", choices_.Below(kMostTasks));
    if (choices_.Often())
      request.cluster = {}, request.program = {}, request.protocol = ProtocolRange();
    core_->Call(std::move(request), fuzz::Once<RegisterReply>(open_));
  }
  StatusCallback Done() {
    return [done = fuzz::Once<bool>(open_)](const absl::Status&) { done(true); };
  }
  std::string Variable() { return absl::StrCat("v", choices_.Below(4)); }
  void CreateVariable() {
    const Shape shape{static_cast<int64_t>(1 + choices_.Below(4)), 2};
    choices_.Often()
        ? core_->CreateVariable({Variable(), shape, Zeros(), Sgd{0.1}}, std::nullopt, Done())
        : core_->CreateVariable({Variable(), shape, Zeros(), {}}, Colocation{Variable()}, Done());
  }
  void Write() {
    StagedWrite write;
    write.variable = Variable();
    write.value =
        *Tensor::Zeros(DType::kFloat32, Shape{static_cast<int64_t>(1 + choices_.Below(4)), 2});
    core_->Write({write}, Done());
  }
  void Schedule() {
    core_->Schedule({"step", Nest(), !choices_.Often()}, fuzz::Once<Nest>(open_), Done());
  }
  void RunLoop() {
    RunRequest request;
    request.step = {"step", Nest(), false};
    request.source = "data";
    request.leased = choices_.Often();
    request.token = choices_.Below(3);
    if (choices_.Often()) request.last_step = static_cast<int64_t>(choices_.Below(20));
    if (!choices_.Often()) core_->StopRun(choices_.Below(3));
    core_->Run(
        std::move(request), [](const Nest&) {}, Done());
  }

  void Next() {
    AnyWorker& worker = *workers_[choices_.Below(kMostTasks)];
    switch (choices_.Below(22)) {
      case 0: return Register();
      case 1: return CreateVariable();
      case 2: return Write();
      case 3:
        return core_->Read({{Variable(), std::nullopt}}, fuzz::Once<std::vector<Tensor>>(open_));
      case 4: return RunLoop();
      case 5: return core_->Join(Done());
      case 6: return core_->RestoreLatest(fuzz::Once<int64_t>(open_));
      case 7: return core_->SetProgramState("state");
      case 8: return core_->SaveCheckpoint(fuzz::Once<CheckpointId>(open_));
      case 9: return core_->Done(fuzz::Once<bool>(open_));
      case 10: return worker.SayAny();
      case 11: return worker.SayRawAny();
      case 12: return worker.Break();
      case 13:
      case 14: return worker.SayReport();
      case 15:
      case 16:
        return executor_.RunFor(absl::Milliseconds(1) *
                                static_cast<double>(uint64_t{1} << choices_.Below(13)));
      case 17: return core_->Resize(1 + static_cast<int>(choices_.Below(kMostTasks)), Done());
      case 18: return core_->Rebalance(fuzz::Once<CoordinatorCore::Rebalanced>(open_));
      case 19:
        if (!choices_.Often()) core_->Drain([] {});
        return;
      case 20:
        for (uint64_t i = choices_.Below(16); i > 0; --i) executor_.RunOne();
        return;
      default: return Schedule();
    }
  }

  fuzz::Choices choices_;
  SimExecutor executor_{1};
  Answers answers_;
  InMemoryFileSystem files_;
  std::unique_ptr<CheckpointCatalog> catalog_;
  MemoryStore store_;
  std::vector<std::shared_ptr<AnyPs>> ps_;
  std::vector<std::shared_ptr<AnyWorker>> workers_;
  const std::shared_ptr<int> open_ = std::make_shared<int>(0);
  std::shared_ptr<CoordinatorCore> core_;
};

void Try(absl::string_view bytes) { Run(bytes).Play(); }

}  // namespace
}  // namespace divvy

DIVVY_FUZZ(divvy::Try)
