#include "tests/sim/sim_network.h"

#include <algorithm>
#include <utility>

namespace divvy::sim {
namespace {

// How often a frame that has arrived is delivered together with the next.
constexpr double kTogether = 0.3;

}  // namespace

void NodeExecutor::RunTask(const std::shared_ptr<State>& state, Task task) {
  if (!state->alive) return;
  if (state->paused) {
    state->kept.push_back(std::move(task));
  } else {
    state->running = true;
    task();
    state->running = false;
  }
}

void NodeExecutor::PostAfter(absl::Duration delay, Task task) {
  if (!state_->alive) return;
  world_.PostAfter(delay, [state = state_, task = std::move(task)]() mutable {
    RunTask(state, std::move(task));
  });
}

void NodeExecutor::Kill() {
  state_->alive = false;
  state_->kept.clear();
}

void NodeExecutor::Resume() {
  state_->paused = false;
  std::deque<Task> kept;
  kept.swap(state_->kept);
  for (Task& task : kept) Post(std::move(task));
}

std::shared_ptr<Node> Network::Boot(const std::string& address) {
  Kill(address);
  auto node =
      std::make_shared<Node>(Node{address, std::make_shared<NodeExecutor>(world_, blocking_),
                                  nullptr, nullptr, nullptr, nullptr});
  nodes_[address] = node;
  return node;
}

void Network::Kill(const std::string& address) {
  const std::shared_ptr<Node> node = Find(address);
  if (node == nullptr) return;
  node->executor->Kill();
  BreakStreams(address);
  nodes_.erase(address);
}

std::shared_ptr<Node> Network::Find(const std::string& address) const {
  const auto found = nodes_.find(address);
  return found == nodes_.end() ? nullptr : found->second;
}

// Whether a process was killed within the task that is sending.
bool Network::DiedSpeaking(const std::string& from) const {
  const std::shared_ptr<Node> node = Find(from);
  return node != nullptr && !node->executor->alive();
}

void Network::WatchSilence(absl::Duration silence, const std::shared_ptr<bool>& heard,
                           std::function<void()> give_up) {
  world_.PostAfter(silence, [this, silence, heard, give_up = std::move(give_up)] {
    if (std::exchange(*heard, false)) return WatchSilence(silence, heard, give_up);
    give_up();
  });
}

absl::Duration Network::Delay() {
  absl::Duration delay = rates_.latency * (0.5 + random_.Uniform());
  if (random_.Chance(rates_.slow)) delay += rates_.slow_by * random_.Uniform();
  return delay;
}

std::vector<absl::Duration> Network::Arrivals(const std::string& from, const std::string& to) {
  ++messages_;
  std::vector<absl::Duration> arrivals;
  if (CutOff(from, to) || random_.Chance(rates_.lose)) return arrivals;
  arrivals.push_back(Delay());
  if (random_.Chance(rates_.duplicate)) arrivals.push_back(Delay() * 5);
  if (random_.Chance(rates_.late)) arrivals.back() += absl::Seconds(8) * random_.Uniform();
  return arrivals;
}

// A connection: two ordered directions. When it breaks, each side learns it separately, perhaps
// late. Frames in flight are lost.
class Wire : public std::enable_shared_from_this<Wire> {
 public:
  Wire(Network& network, std::shared_ptr<Node> coordinator, std::string worker,
       std::shared_ptr<StreamListener<FromWorker>> listener)
      : network_(network),
        coordinator_(std::move(coordinator)),
        worker_address_(std::move(worker)) {
    to_coordinator_.listener = std::move(listener);
  }

  void Start(const std::function<std::shared_ptr<StreamListener<ToWorker>>(
                 Node&, std::shared_ptr<StreamConnection<FromWorker>>)>& accept);
  void ToTheWorker(StreamFrame<ToWorker> frame);
  void ToTheCoordinator(StreamFrame<FromWorker> frame);
  // The side that closed the connection (`by_coordinator`, `by_worker`) gets no more callbacks.
  void Break(bool by_coordinator = false, bool by_worker = false);
  bool touches(const std::string& address) const {
    return address == coordinator_->address || address == worker_address_;
  }

 private:
  // One direction of the connection.
  template <typename Message>
  struct Way {
    absl::Duration last;  // virtual time of the last delivery
    int under_way = 0;    // frames that have not arrived
    // Frames that have arrived, and are delivered together with the next one.
    std::vector<StreamFrame<Message>> arrived;
    std::shared_ptr<StreamListener<Message>> listener;
  };

  // Runs `deliver` at `node` after a delay, and after all earlier deliveries in this direction.
  // False: it never runs.
  bool InOrder(const std::string& from, const std::string& to, const std::shared_ptr<Node>& node,
               absl::Duration& last, std::function<void()> deliver);
  template <typename Message>
  void Carry(const std::string& from, const std::string& to, const std::shared_ptr<Node>& node,
             Way<Message>& way, StreamFrame<Message> frame);

  Network& network_;
  const std::shared_ptr<Node> coordinator_;
  const std::string worker_address_;
  std::shared_ptr<Node> worker_;
  Way<ToWorker> to_worker_;
  Way<FromWorker> to_coordinator_;
  bool broken_ = false;
};

namespace {

class CoordinatorEnd : public StreamConnection<ToWorker> {
 public:
  explicit CoordinatorEnd(std::shared_ptr<Wire> wire) : wire_(std::move(wire)) {}
  void Send(StreamFrame<ToWorker> frame) override { wire_->ToTheWorker(std::move(frame)); }
  void Close() override { wire_->Break(/*by_coordinator=*/true); }

 private:
  const std::shared_ptr<Wire> wire_;
};

class WorkerEnd : public StreamConnection<FromWorker> {
 public:
  explicit WorkerEnd(std::shared_ptr<Wire> wire) : wire_(std::move(wire)) {}
  void Send(StreamFrame<FromWorker> frame) override { wire_->ToTheCoordinator(std::move(frame)); }
  void Close() override { wire_->Break(false, /*by_worker=*/true); }

 private:
  const std::shared_ptr<Wire> wire_;
};

}  // namespace

bool Wire::InOrder(const std::string& from, const std::string& to,
                   const std::shared_ptr<Node>& node, absl::Duration& last,
                   std::function<void()> deliver) {
  ++network_.messages_;
  if (broken_) return false;
  if (network_.random_.Chance(network_.rates_.break_stream)) {
    Break();
    return false;
  }
  if (network_.CutOff(from, to)) return false;  // lost, and neither side learns it
  const absl::Duration now = network_.world_.clock().Elapsed();
  absl::Duration delay = network_.Delay();
  if (const auto slowed = network_.slowed_.extract({from, to}); !slowed.empty())
    delay += slowed.mapped();
  last = std::max(now + delay, last + absl::Nanoseconds(1));
  network_.world_.PostAfter(last - now,
                            [self = shared_from_this(), node, deliver = std::move(deliver)] {
                              if (!self->broken_) node->executor->Post(deliver);
                            });
  return true;
}

// Frames are delivered one by one or, where the seed says so, together with those behind them: a
// connection of real processes puts frames that wait for it into one message.
template <typename Message>
void Wire::Carry(const std::string& from, const std::string& to, const std::shared_ptr<Node>& node,
                 Way<Message>& way, StreamFrame<Message> frame) {
  const auto arrive = [self = shared_from_this(), &way, frame = std::move(frame)] {
    --way.under_way;
    if (way.listener == nullptr || self->broken_) return;
    way.arrived.push_back(frame);
    const bool waits = way.under_way > 0 && self->network_.random_.Chance(kTogether);
    if (!waits) way.listener->OnFrames(std::exchange(way.arrived, {}));
  };
  if (InOrder(from, to, node, way.last, arrive)) ++way.under_way;
}

void Wire::Start(const std::function<std::shared_ptr<StreamListener<ToWorker>>(
                     Node&, std::shared_ptr<StreamConnection<FromWorker>>)>& accept) {
  worker_ = network_.Find(worker_address_);
  if (worker_ == nullptr || worker_->core == nullptr) return Break();
  InOrder(coordinator_->address, worker_address_, worker_, to_worker_.last,
          [self = shared_from_this(), accept] {
            self->to_worker_.listener = accept(*self->worker_, std::make_shared<WorkerEnd>(self));
          });
}

void Wire::ToTheWorker(StreamFrame<ToWorker> frame) {
  if (worker_ == nullptr) return;
  Carry(coordinator_->address, worker_address_, worker_, to_worker_, std::move(frame));
}

void Wire::ToTheCoordinator(StreamFrame<FromWorker> frame) {
  Carry(worker_address_, coordinator_->address, coordinator_, to_coordinator_, std::move(frame));
}

void Wire::Break(bool by_coordinator, bool by_worker) {
  if (broken_) return;
  broken_ = true;
  const auto late = [this] {
    return network_.random_.Chance(0.3) ? network_.rates_.slow_by * network_.random_.Uniform()
                                        : network_.rates_.latency;
  };
  const absl::Duration to_coordinator = late(), to_worker = late();
  if (!by_coordinator) {
    network_.world_.PostAfter(to_coordinator, [self = shared_from_this()] {
      self->coordinator_->executor->Post([self] { self->to_coordinator_.listener->OnBroken(); });
    });
  }
  if (!by_worker && worker_ != nullptr) {
    network_.world_.PostAfter(to_worker, [self = shared_from_this()] {
      self->worker_->executor->Post([self] {
        if (self->to_worker_.listener != nullptr) self->to_worker_.listener->OnBroken();
      });
    });
  }
}

std::shared_ptr<StreamConnection<ToWorker>> Network::Open(
    const std::shared_ptr<Node>& from, const std::string& to,
    std::shared_ptr<StreamListener<FromWorker>> listener,
    std::function<std::shared_ptr<StreamListener<ToWorker>>(
        Node&, std::shared_ptr<StreamConnection<FromWorker>>)>
        accept) {
  auto wire = std::make_shared<Wire>(*this, from, to, std::move(listener));
  wires_.erase(
      std::remove_if(wires_.begin(), wires_.end(), [](const auto& weak) { return weak.expired(); }),
      wires_.end());
  wires_.push_back(wire);
  wire->Start(accept);
  return std::make_shared<CoordinatorEnd>(wire);
}

void Network::BreakStreams(const std::string& address) {
  for (const auto& weak : std::vector<std::weak_ptr<Wire>>(wires_)) {
    if (const auto wire = weak.lock(); wire != nullptr && wire->touches(address)) wire->Break();
  }
}

}  // namespace divvy::sim
