// A network that loses, doubles, delays and reorders, between nodes that die, stop and come back:
// all of it from one seed, in virtual time.
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

// The executor of one process life. What it was given is dropped once it is killed (and what a task
// that kills its own process says after that, too) and kept for later while it is paused (SIGSTOP).
class NodeExecutor : public Executor {
 public:
  // `blocking`: how long each piece of blocking work takes; none: no time.
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
  bool running() const { return state_->running; }  // a task of it

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
  double late =
      0;  // of each request: it arrives up to 8 s later, when nobody waits for it any more
  absl::Duration latency = absl::Milliseconds(1), slow_by = absl::Milliseconds(200);
};

// Answers what is sent to a worker, in place of a WorkerCore.
class WorkerStandIn : public StepsAcceptor {
 public:
  virtual void Attach(WorkerAttachRequest request, ResultCallback<WorkerAttachReply> done) = 0;
};

class LyingServer;

// One process on the network.
struct Node {
  std::string address;
  std::shared_ptr<NodeExecutor> executor;
  // What answers there: a ParameterServerCore, WorkerCore or CoordinatorCore.
  std::shared_ptr<void> core;
  // Of a ps: commits are received under it; null: as much as one wants.
  std::shared_ptr<MemoryBudget> commit_budget;
  // Of a ps: what leaves it in place of its answers; null: they do.
  std::shared_ptr<LyingServer> lies;
  // Of a worker: answers in place of `core`, which is not null all the same.
  std::shared_ptr<WorkerStandIn> stand_in;
};

class Network {
 public:
  Network(SimExecutor& world, uint64_t seed) : world_(world), random_(seed) {}

  // The process at `address` from now on; another that was there is gone. The core may be set
  // later.
  std::shared_ptr<Node> Boot(const std::string& address);
  // Kills the process at `address`: its memory is gone, its connections break.
  void Kill(const std::string& address);
  std::shared_ptr<Node> Find(const std::string& address) const;

  void set_rates(FaultRates rates) { rates_ = rates; }
  // Of processes that are booted from now on.
  void set_blocking(std::function<absl::Duration()> blocking) { blocking_ = std::move(blocking); }
  // Cuts the way from one address to another (one way), until Heal.
  void Cut(const std::string& from, const std::string& to) { cuts_.insert({from, to}); }
  void Heal(const std::string& from, const std::string& to) { cuts_.erase({from, to}); }
  void HealAll() { cuts_.clear(); }
  // The next frame of a stream from one address to the other takes so much longer; those behind it
  // wait.
  void SlowNext(const std::string& from, const std::string& to, absl::Duration by) {
    slowed_[{from, to}] = by;
  }
  void BreakStreams(const std::string& address);
  int64_t messages() const { return messages_; }
  // How long the payload of a message takes behind its header.
  absl::Duration PayloadDelay() { return Delay(); }
  bool BreaksStream() { return random_.Chance(rates_.break_stream); }

  // A request from `from` to `to`: `deliver` runs there with a way to answer. `done` runs at `from`
  // once, by `deadline` at the latest.
  template <typename Reply>
  void Call(const std::shared_ptr<Node>& from, const std::string& to, absl::Duration deadline,
            std::function<void(Node&, ResultCallback<Reply>)> deliver, ResultCallback<Reply> done);
  // The same, but `deliver` has a way to say that the request waits, too: it is given up when
  // nothing was heard of it for one to two `silence`.
  template <typename Reply>
  void CallThatMayWait(
      const std::shared_ptr<Node>& from, const std::string& to, absl::Duration silence,
      std::function<void(Node&, ResultCallback<Reply>, std::function<void()> waits)> deliver,
      ResultCallback<Reply> done);

  // A connection of a Steps stream, opened by the coordinator at `from`.
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
  // Runs `give_up` when a whole `silence` has passed in which nothing was heard.
  void WatchSilence(absl::Duration silence, const std::shared_ptr<bool>& heard,
                    std::function<void()> give_up);
  absl::Duration Delay();
  // The times at which a message sent now arrives: none if it is lost, two if it is doubled.
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
