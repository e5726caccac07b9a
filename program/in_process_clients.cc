#include "program/in_process_clients.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace divvy {
namespace {

// Calls the core of the task at `address`, if it exists. The request and the answer go through the
// Executor.
template <typename Core, typename Request>
void CallCore(Executor& executor, const std::shared_ptr<Core>& core, const std::string& address,
              Request request, ResultCallback<ReplyTo<Request>> done) {
  using Reply = ReplyTo<Request>;
  if (core == nullptr) {
    return executor.Post([done = std::move(done), address] {
      done(absl::UnavailableError(absl::StrCat(address, ": no such task in this process")));
    });
  }
  executor.Post([&executor, core, request = std::move(request), done = std::move(done)]() mutable {
    core->Call(std::move(request),
               [&executor, done = std::move(done)](absl::StatusOr<Reply> reply) {
                 executor.Post([done, reply = std::move(reply)] { done(reply); });
               });
  });
}

class PsClient : public Sends<PsClient, ParameterClient> {
 public:
  PsClient(InProcessNetwork& network, std::string address)
      : network_(network), address_(std::move(address)) {}
  template <typename Request>
  void Send(Request request, ResultCallback<ReplyTo<Request>> done) {
    CallCore(network_.executor(), network_.FindPs(address_), address_, std::move(request),
             std::move(done));
  }

 private:
  InProcessNetwork& network_;
  const std::string address_;
};

// One connection of a Steps stream. Each direction is a queue of its own, so frames keep their
// order. The side that closes gets no more calls. The two ends keep this object alive; frames in
// the queues do not, so nothing remains when the executor stops.
class Pipe : public std::enable_shared_from_this<Pipe> {
 public:
  Pipe(Executor& executor, std::shared_ptr<StreamListener<FromWorker>> coordinator)
      : to_worker_(executor), to_coordinator_(executor), coordinator_(std::move(coordinator)) {}

  void Accept(std::shared_ptr<WorkerCore> core);
  void ToTheWorker(StreamFrame<ToWorker> frame) {
    Post(to_worker_, [frame = std::move(frame)](Pipe& pipe) {
      if (pipe.worker_ != nullptr && !pipe.closed()) pipe.worker_->OnFrame(frame);
    });
  }
  void ToTheCoordinator(StreamFrame<FromWorker> frame) {
    Post(to_coordinator_, [frame = std::move(frame)](Pipe& pipe) {
      if (!pipe.closed()) pipe.coordinator_->OnFrame(frame);
    });
  }
  // The first side to close wins; a later call does nothing.
  void CloseByCoordinator() {
    if (SetClosed()) return;
    Post(to_worker_, [](Pipe& pipe) {
      if (pipe.worker_ != nullptr) pipe.worker_->OnBroken();
    });
  }
  void CloseByWorker() {
    if (SetClosed()) return;
    Post(to_coordinator_, [](Pipe& pipe) { pipe.coordinator_->OnBroken(); });
  }

 private:
  void Post(SerialExecutor& queue, std::function<void(Pipe&)> deliver) {
    queue.Post([weak = weak_from_this(), deliver = std::move(deliver)] {
      if (const auto pipe = weak.lock()) deliver(*pipe);
    });
  }
  bool closed() {
    MutexLock lock(mu_);
    return closed_;
  }
  // returns whether it was closed before
  bool SetClosed() {
    MutexLock lock(mu_);
    return std::exchange(closed_, true);
  }

  SerialExecutor to_worker_, to_coordinator_;
  const std::shared_ptr<StreamListener<FromWorker>> coordinator_;
  // used only by to_worker_
  std::shared_ptr<StreamListener<ToWorker>> worker_;
  Mutex mu_;
  bool closed_ DIVVY_GUARDED_BY(mu_) = false;
};

class CoordinatorEnd : public StreamConnection<ToWorker> {
 public:
  explicit CoordinatorEnd(std::shared_ptr<Pipe> pipe) : pipe_(std::move(pipe)) {}
  void Send(StreamFrame<ToWorker> frame) override { pipe_->ToTheWorker(std::move(frame)); }
  void Close() override { pipe_->CloseByCoordinator(); }

 private:
  const std::shared_ptr<Pipe> pipe_;
};

class WorkerEnd : public StreamConnection<FromWorker> {
 public:
  explicit WorkerEnd(std::shared_ptr<Pipe> pipe) : pipe_(std::move(pipe)) {}
  // A killed process would close its socket in the same way.
  ~WorkerEnd() override { pipe_->CloseByWorker(); }
  void Send(StreamFrame<FromWorker> frame) override { pipe_->ToTheCoordinator(std::move(frame)); }
  void Close() override { pipe_->CloseByWorker(); }

 private:
  const std::shared_ptr<Pipe> pipe_;
};

void Pipe::Accept(std::shared_ptr<WorkerCore> core) {
  Post(to_worker_, [core = std::move(core)](Pipe& pipe) {
    pipe.worker_ = core->Accept(std::make_shared<WorkerEnd>(pipe.shared_from_this()));
  });
}

class InProcessWorkerClient : public Sends<InProcessWorkerClient, WorkerClient> {
 public:
  InProcessWorkerClient(InProcessNetwork& network, std::string address)
      : network_(network), address_(std::move(address)) {}
  template <typename Request>
  void Send(Request request, ResultCallback<ReplyTo<Request>> done) {
    CallCore(network_.executor(), network_.FindWorker(address_), address_, std::move(request),
             std::move(done));
  }
  std::shared_ptr<StreamConnection<ToWorker>> OpenSteps(
      std::shared_ptr<StreamListener<FromWorker>> listener) override {
    auto pipe = std::make_shared<Pipe>(network_.executor(), std::move(listener));
    if (std::shared_ptr<WorkerCore> core = network_.FindWorker(address_)) {
      pipe->Accept(std::move(core));
    } else {
      pipe->CloseByWorker();
    }
    return std::make_shared<CoordinatorEnd>(std::move(pipe));
  }

 private:
  InProcessNetwork& network_;
  const std::string address_;
};

}  // namespace

class InProcessNetwork::ToCoordinator : public CoordinatorClient {
 public:
  explicit ToCoordinator(InProcessNetwork& network) : network_(network) {}
  void Call(RegisterRequest request, ResultCallback<RegisterReply> done) override {
    CallCore(network_.executor(), network_.FindCoordinator(), "embedded:chief/0",
             std::move(request), std::move(done));
  }

 private:
  InProcessNetwork& network_;
};

void InProcessNetwork::Add(const std::string& address, std::weak_ptr<ParameterServerCore> ps) {
  MutexLock lock(mu_);
  ps_[address] = std::move(ps);
}

void InProcessNetwork::Add(const std::string& address, std::weak_ptr<WorkerCore> worker) {
  MutexLock lock(mu_);
  workers_[address] = std::move(worker);
}

void InProcessNetwork::SetCoordinator(std::weak_ptr<CoordinatorCore> coordinator) {
  MutexLock lock(mu_);
  coordinator_ = std::move(coordinator);
}

std::shared_ptr<ParameterClient> InProcessNetwork::ParameterServer(const std::string& address) {
  return std::make_shared<PsClient>(*this, address);
}

std::shared_ptr<WorkerClient> InProcessNetwork::Worker(const std::string& address) {
  return std::make_shared<InProcessWorkerClient>(*this, address);
}

std::shared_ptr<CoordinatorClient> InProcessNetwork::coordinator() {
  MutexLock lock(mu_);
  if (to_coordinator_ == nullptr) to_coordinator_ = std::make_shared<ToCoordinator>(*this);
  return to_coordinator_;
}

std::shared_ptr<ParameterServerCore> InProcessNetwork::FindPs(const std::string& address) {
  MutexLock lock(mu_);
  const auto found = ps_.find(address);
  return found == ps_.end() ? nullptr : found->second.lock();
}

std::shared_ptr<WorkerCore> InProcessNetwork::FindWorker(const std::string& address) {
  MutexLock lock(mu_);
  const auto found = workers_.find(address);
  return found == workers_.end() ? nullptr : found->second.lock();
}

std::shared_ptr<CoordinatorCore> InProcessNetwork::FindCoordinator() {
  MutexLock lock(mu_);
  return coordinator_.lock();
}

}  // namespace divvy
