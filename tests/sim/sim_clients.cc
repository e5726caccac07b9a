#include "tests/sim/sim_clients.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/coordinator_core.h"
#include "protocol/testing/request_name.h"
#include "ps_server/core/memory_budget.h"
#include "ps_server/core/parameter_server_core.h"
#include "tests/sim/lying_server.h"
#include "variables/transfer_plan.h"
#include "worker/core/worker_core.h"

namespace divvy::sim {
namespace {

constexpr absl::Duration kUnaryDeadline = absl::Seconds(1), kStreamProgress = absl::Seconds(3);

// Gives the true answer or, at a lying server, a false one.
template <typename Request, typename Reply>
void AnswerFrom(const Node& node, const Request& request, const absl::StatusOr<Reply>& reply,
                const ResultCallback<Reply>& answer) {
  if (node.lies == nullptr) return answer(reply);
  if (const auto instead = node.lies->Instead(request, reply)) answer(*instead);
}

// Reports the arrival of a request at a ps to the site.
template <typename Request>
void TellArrival(SimSite& site, const Node& at, const Request& request) {
  if constexpr (std::is_same_v<Request, LoadRequest>) site.OnLoad(at, request);
  if constexpr (std::is_same_v<Request, CreateShardsRequest>) site.OnCreateShards(at, request);
}

// Checks that nothing changes of what pulls have borrowed of a ps' memory, while the answers are
// under way.
class Borrowed {
 public:
  void OnAnswer(const absl::StatusOr<PullReply>& reply) {
    if (!reply.ok()) return;
    for (const PullPartReply& part : reply->parts) {
      if (part.lent != nullptr) seen_[part.lent] = *part.lent->Joined();
    }
  }
  void OnArrival(SimSite& site, const std::string& line,
                 const absl::StatusOr<PullReply>& reply) const {
    if (!reply.ok()) return;
    for (const PullPartReply& part : reply->parts) {
      const auto seen = seen_.find(part.lent);
      if (seen != seen_.end() && !BitwiseEqual(seen->second, *part.lent->Joined()))
        site.Violation("X23", absl::StrCat(line, ": values that were lent have changed"));
    }
  }
  // Other answers borrow nothing.
  template <typename Reply>
  void OnAnswer(const absl::StatusOr<Reply>&) {}
  template <typename Reply>
  void OnArrival(SimSite&, const std::string&, const absl::StatusOr<Reply>&) const {}

 private:
  std::map<std::weak_ptr<const ScatteredTensor>, Tensor, std::owner_less<>> seen_;
};

class SimPsClient : public Sends<SimPsClient, ParameterClient> {
 public:
  SimPsClient(SimSite& site, std::shared_ptr<Node> from, std::string to)
      : site_(site), from_(std::move(from)), to_(std::move(to)) {}
  // Like the real client: requests in flight end with Cancelled.
  ~SimPsClient() override {
    for (const auto& [number, cancel] : *open_) from_->executor->Post(cancel);
    open_->clear();
  }
  template <typename Request>
  void Send(Request request, ResultCallback<ReplyTo<Request>> done);
  void Send(SnapshotRequest request, ResultCallback<SnapshotReply> done) {
    site_.OnSnapshot(*from_, request.checkpoint);
    const auto marked = [site = &site_, from = from_, request,
                         done = std::move(done)](absl::StatusOr<SnapshotReply> reply) {
      if (reply.ok() && !request.wait) site->OnMarked(*from, request.checkpoint);
      done(std::move(reply));
    };
    Send<SnapshotRequest>(std::move(request), marked);
  }
  void Send(CommitRequest request, ResultCallback<CommitReply> done);

 private:
  // Runs `done` with the answer or with its cancellation, whichever comes first.
  template <typename Reply>
  ResultCallback<Reply> Opened(ResultCallback<Reply> done) {
    const uint64_t number = ++calls_;
    open_->emplace(number, [done] { done(absl::CancelledError("the client is closed")); });
    return [open = open_, number, done = std::move(done)](absl::StatusOr<Reply> reply) {
      if (open->erase(number) > 0) done(std::move(reply));
    };
  }
  SimSite& site_;
  static void ReceiveCommit(SimSite& site, Node& node, const CommitRequest& request,
                            ResultCallback<CommitReply> answer, std::function<void()> waits);
  const std::shared_ptr<Node> from_;
  const std::string to_;
  uint64_t calls_ = 0;
  const std::shared_ptr<std::map<uint64_t, std::function<void()>>> open_ =
      std::make_shared<std::map<uint64_t, std::function<void()>>>();
};

class SimWorkerClient : public WorkerClient {
 public:
  SimWorkerClient(SimSite& site, std::shared_ptr<Node> from, std::string to)
      : site_(site), from_(std::move(from)), to_(std::move(to)) {}
  void Call(WorkerAttachRequest request, ResultCallback<WorkerAttachReply> done) override;
  void Call(ShutdownRequest request, ResultCallback<ShutdownReply> done) override;
  std::shared_ptr<StreamConnection<ToWorker>> OpenSteps(
      std::shared_ptr<StreamListener<FromWorker>> listener) override;

 private:
  SimSite& site_;
  const std::shared_ptr<Node> from_;
  const std::string to_;
};

class SimCoordinatorClient : public CoordinatorClient {
 public:
  SimCoordinatorClient(SimSite& site, std::shared_ptr<Node> from)
      : site_(site), from_(std::move(from)) {}
  void Call(RegisterRequest request, ResultCallback<RegisterReply> done) override;

 private:
  SimSite& site_;
  const std::shared_ptr<Node> from_;
};

template <typename Request>
void SimPsClient::Send(Request request, ResultCallback<ReplyTo<Request>> done) {
  using Reply = ReplyTo<Request>;
  const std::string line = absl::StrCat(from_->address, " -> ", to_, " ", RequestName<Request>());
  const absl::Duration deadline =
      std::is_same_v<Request, PullRequest> ? kStreamProgress : kUnaryDeadline;
  const auto borrowed = std::make_shared<Borrowed>();
  const auto arrived = [site = &site_, line, borrowed,
                        done = std::move(done)](absl::StatusOr<Reply> reply) {
    borrowed->OnArrival(*site, line, reply);
    done(std::move(reply));
  };
  site_.network().Call<Reply>(
      from_, to_, deadline,
      // This client may be destroyed by then.
      [site = &site_, request, line, borrowed](Node& node, ResultCallback<Reply> answer) {
        site->Trace(line);
        TellArrival(*site, node, request);
        if (!node.executor->alive()) return;  // killed by the observer
        const auto core = std::static_pointer_cast<ParameterServerCore>(node.core);
        core->Call(request, [site, line, answer, request, borrowed,
                             at = &node](absl::StatusOr<Reply> reply) {
          if (!reply.ok()) site->Trace(absl::StrCat(line, ": ", reply.status().message()));
          borrowed->OnAnswer(reply);
          AnswerFrom(*at, request, reply, answer);
        });
      },
      Opened<Reply>(arrived));
}

void SimPsClient::Send(CommitRequest request, ResultCallback<CommitReply> done) {
  const std::string name =
      absl::StrCat("Commit id ", request.entry.value(), " attempt ", request.attempt, " session ",
                   request.fence.session.value());
  const std::string line = absl::StrCat(from_->address, " -> ", to_, " ", name);
  const auto count = [site = &site_, done = std::move(done)](absl::StatusOr<CommitReply> reply) {
    site->OnCommitAnswered(reply.status());
    done(std::move(reply));
  };
  site_.network().CallThatMayWait<CommitReply>(
      from_, to_, kStreamProgress,
      [site = &site_, request, line](Node& node, ResultCallback<CommitReply> answer,
                                     const std::function<void()>& waits) {
        site->Trace(line);
        // A fenced session never comes back. (It may be fenced while its commit is applied: the
        // Sync waits for that.)
        const SessionId session = request.fence.session;
        const std::vector<SessionId> sessions =
            std::static_pointer_cast<ParameterServerCore>(node.core)
                ->Inspect(ParameterServerCore::Detail::kWithoutValues)
                .sessions;
        const bool fenced = session != kCoordinatorSession &&
                            std::count(sessions.begin(), sessions.end(), session) == 0;
        site->OnCommit(request);
        const auto checked = [site, line, answer, fenced, request,
                              at = &node](absl::StatusOr<CommitReply> reply) {
          if (reply.ok() && !reply->duplicate) site->OnApplied(*at, request);
          if (fenced && reply.ok() && !reply->duplicate)
            site->Violation("X6", absl::StrCat(line, " was applied, but its session is fenced"));
          if (!reply.ok()) site->Trace(absl::StrCat(line, ": ", reply.status().message()));
          AnswerFrom(*at, request, reply, answer);
        };
        ReceiveCommit(*site, node, request, checked, waits);
      },
      Opened<CommitReply>(count));
}

// Calls `waits` now and then, as long as `waiting` is true and the process lives.
void SayThatItWaits(const std::shared_ptr<NodeExecutor>& executor,
                    const std::shared_ptr<bool>& waiting, const std::function<void()>& waits) {
  executor->PostAfter(kStreamProgress / 4, [executor, waiting, waits] {
    if (!*waiting) return;
    waits();
    SayThatItWaits(executor, waiting, waits);
  });
}

// Receives a commit as a data stream does: the header, a reservation of memory, then the payload.
// The sender is told while it waits for the reservation. A stream that breaks or stays silent
// releases its reservation. Its payload may still arrive, late.
void SimPsClient::ReceiveCommit(SimSite& site, Node& node, const CommitRequest& request,
                                ResultCallback<CommitReply> answer, std::function<void()> waits) {
  const auto core = std::static_pointer_cast<ParameterServerCore>(node.core);
  const std::shared_ptr<MemoryBudget> budget = node.commit_budget;
  if (budget == nullptr) return core->Call(request, std::move(answer));
  const std::shared_ptr<NodeExecutor> executor = node.executor;
  const auto ticket = std::make_shared<MemoryBudget::Ticket>();
  const auto waiting = std::make_shared<bool>(true);
  const auto give_back = [budget, ticket] { budget->Release(*ticket); };
  *ticket = budget->Reserve(
      PayloadBytes(request.parts),
      [&site, core, executor, request, answer, give_back, waiting](const absl::Status& granted) {
        *waiting = false;
        if (!granted.ok()) return answer(granted);
        const bool breaks = site.network().BreaksStream();
        if (breaks) executor->Post(give_back);
        // The rest of the payload never arrives.
        if (breaks && site.network().PayloadDelay() < absl::Milliseconds(1)) return;
        executor->PostAfter(
            site.PayloadTime() * (breaks ? 500 : 1), [core, request, answer, give_back] {
              core->Call(request, [answer, give_back](absl::StatusOr<CommitReply> reply) {
                give_back();
                answer(std::move(reply));
              });
            });
        executor->PostAfter(kStreamProgress, give_back);
      });
  if (*waiting)
    SayThatItWaits(executor, waiting, [&site, waits = std::move(waits)] {
      site.OnWaits();
      waits();
    });
}

void SimWorkerClient::Call(WorkerAttachRequest request, ResultCallback<WorkerAttachReply> done) {
  const std::string line =
      absl::StrCat(from_->address, " -> ", to_, " Attach session ", request.fence.session.value());
  site_.network().Call<WorkerAttachReply>(
      from_, to_, kUnaryDeadline,
      [site = &site_, request, line](Node& node, ResultCallback<WorkerAttachReply> answer) {
        site->OnAttach(node, request);
        site->Trace(line);
        if (node.stand_in != nullptr) return node.stand_in->Attach(request, answer);
        std::static_pointer_cast<WorkerCore>(node.core)->Call(request, answer);
      },
      std::move(done));
}

void SimWorkerClient::Call(ShutdownRequest request, ResultCallback<ShutdownReply> done) {
  site_.network().Call<ShutdownReply>(
      from_, to_, kUnaryDeadline,
      [request](Node& node, ResultCallback<ShutdownReply> answer) {
        if (node.stand_in == nullptr)
          std::static_pointer_cast<WorkerCore>(node.core)->Call(request, answer);
      },
      std::move(done));
}

// Stands between a connection and the worker's core. A frame names its session and nothing else, so
// a worker that has a session with this number must have it from the sender.
class CheckedListener : public StreamListener<ToWorker> {
 public:
  CheckedListener(SimSite& site, Epoch sender, std::shared_ptr<WorkerCore> worker,
                  std::shared_ptr<StreamListener<ToWorker>> listener)
      : site_(site), sender_(sender), worker_(std::move(worker)), listener_(std::move(listener)) {}

  void OnFrames(std::vector<StreamFrame<ToWorker>> frames) override {
    const WorkerSnapshot worker = worker_->Inspect();
    for (const StreamFrame<ToWorker>& frame : frames) {
      if (worker.attached && worker.session == frame.session && worker.epoch != sender_) {
        site_.Violation("X6", absl::StrCat("a frame of the coordinator of epoch ", sender_.value(),
                                           " was taken for one of session ", frame.session.value(),
                                           " of epoch ", worker.epoch.value()));
      }
      if (frame.message) site_.OnToWorker(sender_, *frame.message);
    }
    listener_->OnFrames(std::move(frames));
  }
  void OnBroken() override { listener_->OnBroken(); }

 private:
  SimSite& site_;
  const Epoch sender_;
  const std::shared_ptr<WorkerCore> worker_;
  const std::shared_ptr<StreamListener<ToWorker>> listener_;
};

// Reports what a worker sends to the site, when it is sent.
class WatchedConnection : public StreamConnection<FromWorker> {
 public:
  WatchedConnection(SimSite& site, const Node& from,
                    std::shared_ptr<StreamConnection<FromWorker>> connection)
      : site_(site), from_(from), connection_(std::move(connection)) {}
  void Send(StreamFrame<FromWorker> frame) override {
    const Report* const report = frame.message ? std::get_if<Report>(&*frame.message) : nullptr;
    if (report != nullptr && report->outcome == StepOutcome::kOk)
      site_.OnReported(from_, frame.session, report->step);
    connection_->Send(std::move(frame));
  }
  void Close() override { connection_->Close(); }

 private:
  SimSite& site_;
  const Node& from_;
  const std::shared_ptr<StreamConnection<FromWorker>> connection_;
};

std::shared_ptr<StreamConnection<ToWorker>> SimWorkerClient::OpenSteps(
    std::shared_ptr<StreamListener<FromWorker>> listener) {
  const Epoch sender = std::static_pointer_cast<CoordinatorCore>(from_->core)->Snapshot().epoch_id;
  return site_.network().Open(
      from_, to_, std::move(listener),
      [&site = site_, sender](Node& node, std::shared_ptr<StreamConnection<FromWorker>> connection)
          -> std::shared_ptr<StreamListener<ToWorker>> {
        if (node.stand_in != nullptr) return node.stand_in->Accept(std::move(connection));
        auto worker = std::static_pointer_cast<WorkerCore>(node.core);
        auto accepted =
            worker->Accept(std::make_shared<WatchedConnection>(site, node, std::move(connection)));
        return std::make_shared<CheckedListener>(site, sender, std::move(worker),
                                                 std::move(accepted));
      });
}

void SimCoordinatorClient::Call(RegisterRequest request, ResultCallback<RegisterReply> done) {
  site_.network().Call<RegisterReply>(
      from_, site_.chief_address(), kUnaryDeadline,
      [request](Node& node, ResultCallback<RegisterReply> answer) {
        std::static_pointer_cast<CoordinatorCore>(node.core)->Call(request, answer);
      },
      std::move(done));
}

}  // namespace

std::shared_ptr<ParameterClient> SimDialer::ParameterServer(const std::string& address) {
  return std::make_shared<SimPsClient>(site_, from_, address);
}

std::shared_ptr<WorkerClient> SimDialer::Worker(const std::string& address) {
  return std::make_shared<SimWorkerClient>(site_, from_, address);
}

std::shared_ptr<CoordinatorClient> SimDialer::Coordinator() {
  return std::make_shared<SimCoordinatorClient>(site_, from_);
}

}  // namespace divvy::sim
