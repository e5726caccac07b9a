// A network that loses, duplicates, delays and reorders messages, between nodes that die, pause and
// come back. All of it follows from one seed, in virtual time.
#ifndef DIVVY_TESTS_SIM_SIM_NETWORK_H_
#define DIVVY_TESTS_SIM_SIM_NETWORK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/testing/sim_executor.h"
#include "protocol/clients.h"
#include "ps_server/core/memory_budget.h"

namespace divvy::sim {

// The executor of one life of a process. Once it is killed, it drops its tasks, and all that a task
// sends after killing its own process. While it is paused (SIGSTOP), it keeps its tasks for later.
class NodeExecutor : public Executor {
 public:
  // `blocking` returns how long each piece of blocking work takes; without it such work takes no
  // time.
  NodeExecutor(Executor& world, std::function<absl::Duration()> blocking)
      : world_(world), state_(std::make_shared<State>()), blocking_(std::move(blocking)) {}
  void Post(Task task) override { PostAfter(absl::ZeroDuration(), std::move(task)); }
  void PostAfter(absl::Duration delay, Task task) override;
  void PostBlocking(std::string name, Task task) override {
    PostAfter(blocking_ ? blocking_() : absl::ZeroDuration(), std::move(task));
  }

  void Kill();
  void Pause() { state_->paused = true; }
  void Resume();
  bool alive() const { return state_->alive; }
  bool paused() const { return state_->paused; }
  bool running() const { return state_->running; }  // one of its tasks

 private:
  struct State {
    bool alive = true, paused = false, running = false;
    std::deque<Task> kept;
  };
  static void RunTask(const std::shared_ptr<State>& state, Task task);
  Executor& world_;
  const std::shared_ptr<State> state_;
  const std::function<absl::Duration()> blocking_;
};

struct FaultRates {
  double lose = 0, duplicate = 0;  // of each message
  double break_stream = 0;         // of each frame: the connection breaks there
  double slow = 0;                 // of each message: late by up to slow_by
  // Of each request: it arrives up to 8 s later, when its caller no longer waits.
  double late = 0;
  absl::Duration latency = absl::Milliseconds(1), slow_by = absl::Milliseconds(200);
};

// Answers the messages to a worker in place of a WorkerCore.
class WorkerStandIn : public StepsAcceptor {
 public:
  virtual void Attach(WorkerAttachRequest request, ResultCallback<WorkerAttachReply> done) = 0;
};

class LyingServer;

// One process on the network.
struct Node {
  std::string address;
  std::shared_ptr<NodeExecutor> executor;
  // The core that answers: a ParameterServerCore, WorkerCore or CoordinatorCore.
  std::shared_ptr<void> core;
  // For a ps: the budget from which commits reserve their memory; null: no limit.
  std::shared_ptr<MemoryBudget> commit_budget;
  // For a ps that lies: makes answers in place of the true ones.
  std::shared_ptr<LyingServer> lies;
  // For a worker: answers in place of `core`, which must not be null either.
  std::shared_ptr<WorkerStandIn> stand_in;
};

class Network {
 public:
  Network(SimExecutor& world, uint64_t seed) : world_(world), random_(seed) {}

  // Starts a process at `address`. It replaces another one there. Its core may be set later.
  std::shared_ptr<Node> Boot(const std::string& address);
  // Kills the process at `address`: its memory is gone, its connections break.
  void Kill(const std::string& address);
  std::shared_ptr<Node> Find(const std::string& address) const;

  void set_rates(FaultRates rates) { rates_ = rates; }
  // Applies to processes that are booted from now on.
  void set_blocking(std::function<absl::Duration()> blocking) { blocking_ = std::move(blocking); }
  // Cuts the link from one address to another, in this direction only, until Heal.
  void Cut(const std::string& from, const std::string& to) { cuts_.insert({from, to}); }
  void Heal(const std::string& from, const std::string& to) { cuts_.erase({from, to}); }
  void HealAll() { cuts_.clear(); }
  // Delays the next stream frame from one address to the other by `by`. Later frames wait behind
  // it.
  void SlowNext(const std::string& from, const std::string& to, absl::Duration by) {
    slowed_[{from, to}] = by;
  }
  void BreakStreams(const std::string& address);
  int64_t messages() const { return messages_; }
  // How long a message's payload takes to arrive after its header.
  absl::Duration PayloadDelay() { return Delay(); }
  bool BreaksStream() { return random_.Chance(rates_.break_stream); }

  // Sends a request from `from` to `to`. `deliver` runs there and answers by its callback. `done`
  // runs once at `from`: with the answer, or with DeadlineExceeded when `deadline` has passed
  // without one.
  template <typename Reply>
  void Call(const std::shared_ptr<Node>& from, const std::string& to, absl::Duration deadline,
            std::function<void(Node&, ResultCallback<Reply>)> deliver, ResultCallback<Reply> done);
  // The same, but `deliver` also has a callback by which it says that the request waits. The
  // request ends with DeadlineExceeded when the sender has heard neither an answer nor that
  // callback for one to two times `silence`.
  template <typename Reply>
  void CallThatMayWait(
      const std::shared_ptr<Node>& from, const std::string& to, absl::Duration silence,
      std::function<void(Node&, ResultCallback<Reply>, std::function<void()> waits)> deliver,
      ResultCallback<Reply> done);

  // Opens a connection of a Steps stream from the coordinator `from` to a worker.
  std::shared_ptr<StreamConnection<ToWorker>> Open(
      const std::shared_ptr<Node>& from, const std::string& to,
      std::shared_ptr<StreamListener<FromWorker>> listener,
      std::function<std::shared_ptr<StreamListener<ToWorker>>(
          Node&, std::shared_ptr<StreamConnection<FromWorker>>)>
          accept);

 private:
  friend class Wire;
  bool CutOff(const std::string& from, const std::string& to) const {
    return cuts_.count({from, to}) > 0 || DiedSpeaking(from);
  }
  bool DiedSpeaking(const std::string& from) const;
  // Runs `give_up` when a whole `silence` has passed without a message.
  void WatchSilence(absl::Duration silence, const std::shared_ptr<bool>& heard,
                    std::function<void()> give_up);
  absl::Duration Delay();
  // The times at which a message sent now arrives: none if it is lost, two if it is duplicated.
  std::vector<absl::Duration> Arrivals(const std::string& from, const std::string& to);

  SimExecutor& world_;
  Random random_;
  FaultRates rates_;
  std::function<absl::Duration()> blocking_;
  std::map<std::string, std::shared_ptr<Node>> nodes_;
  std::set<std::pair<std::string, std::string>> cuts_;
  std::map<std::pair<std::string, std::string>, absl::Duration> slowed_;
  std::vector<std::weak_ptr<class Wire>> wires_;
  int64_t messages_ = 0;
};

template <typename Reply>
void Network::Call(const std::shared_ptr<Node>& from, const std::string& to,
                   absl::Duration deadline,
                   std::function<void(Node&, ResultCallback<Reply>)> deliver,
                   ResultCallback<Reply> done) {
  CallThatMayWait<Reply>(
      from, to, deadline,
      [deliver](Node& node, ResultCallback<Reply> answer, const std::function<void()>&) {
        deliver(node, std::move(answer));
      },
      std::move(done));
}

template <typename Reply>
void Network::CallThatMayWait(
    const std::shared_ptr<Node>& from, const std::string& to, absl::Duration silence,
    std::function<void(Node&, ResultCallback<Reply>, std::function<void()> waits)> deliver,
    ResultCallback<Reply> done) {
  struct Pending {
    ResultCallback<Reply> done;
  };
  auto pending = std::make_shared<Pending>(Pending{std::move(done)});
  const auto answer = [from, pending](absl::StatusOr<Reply> reply) {
    from->executor->Post([pending, reply = std::move(reply)]() mutable {
      if (pending->done == nullptr) return;
      const ResultCallback<Reply> done = std::exchange(pending->done, nullptr);
      done(std::move(reply));
    });
  };
  const auto heard = std::make_shared<bool>(false);
  WatchSilence(silence, heard,
               [answer, to] { answer(absl::DeadlineExceededError(to + " did not answer")); });
  const auto waits = [this, from, to, heard] {
    for (const absl::Duration back : Arrivals(to, from->address))
      world_.PostAfter(back, [heard] { *heard = true; });
  };
  for (const absl::Duration arrival : Arrivals(from->address, to)) {
    world_.PostAfter(arrival, [this, from, to, deliver, answer, waits] {
      const std::shared_ptr<Node> node = Find(to);
      if (node == nullptr || node->core == nullptr)
        return answer(absl::UnavailableError(to + ": connection refused"));
      node->executor->Post([this, node, from, to, deliver, answer, waits] {
        const auto reply_back = [this, from, to, answer](absl::StatusOr<Reply> reply) {
          for (const absl::Duration back : Arrivals(to, from->address))
            world_.PostAfter(back, [answer, reply] { answer(reply); });
        };
        deliver(*node, reply_back, waits);
      });
    });
  }
}

}  // namespace divvy::sim

#endif  // DIVVY_TESTS_SIM_SIM_NETWORK_H_
