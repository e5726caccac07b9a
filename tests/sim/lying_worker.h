// A worker that lies: it sends any message that a worker may send, with any values, early, late,
// twice or never.
#ifndef DIVVY_TESTS_SIM_LYING_WORKER_H_
#define DIVVY_TESTS_SIM_LYING_WORKER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "protocol/messages.h"
#include "protocol/resumable_stream.h"
#include "tests/sim/sim_clients.h"
#include "wire/testing/generator.h"

namespace divvy::sim {

// The worker runs no step, and its commits are always refused, so it can do harm by its messages
// alone. Every message passes the checks of wire/. The worker receives steps, iterators and holds
// like an honest one, so many of its messages name things that exist. Not thread-safe: the
// simulation has one thread.
class LyingWorker : public WorkerStandIn, public std::enable_shared_from_this<LyingWorker> {
 public:
  struct Options {
    int index = 0;  // it may also register higher ones
    std::string address;
    uint64_t seed = 1;
    // Whether it reports steps as finished.
    bool says_done = false;
    // Whether it reports that step functions failed.
    bool says_failed = false;
    // Whether it reports that servers have applied a part of a failed step.
    bool says_applied = true;
    // It refuses every coordinator that attaches it, for some reason.
    bool only_refuses = false;
    // Addresses of other workers, which it may claim as its own.
    std::vector<std::string> addresses_of_others;
  };

  // REQUIRES: `site` outlives it.
  LyingWorker(Options options, SimSite& site, std::shared_ptr<Node> node);
  // Begins to register and to send messages.
  void Start() { Act(); }

  void Attach(WorkerAttachRequest request, ResultCallback<WorkerAttachReply> done) override;
  std::shared_ptr<StreamListener<ToWorker>> Accept(
      std::shared_ptr<StreamConnection<FromWorker>> connection) override;

 private:
  class Listener;
  using Stream = ResumableStream<FromWorker, ToWorker>;
  struct Session {
    explicit Session(SessionId id) : stream(id) {}
    Stream stream;
    std::shared_ptr<StreamConnection<FromWorker>> connection;
  };

  void Act();  // calls itself again after a while
  void OnFrame(const std::shared_ptr<StreamConnection<FromWorker>>& connection,
               StreamFrame<ToWorker> frame);
  void AnswerTo(const ToWorker& message);
  void SayLater(FromWorker word, double never);
  void Say(FromWorker word);
  void Register();
  void AskServer();
  void Later(absl::Duration delay, std::function<void()> what);

  absl::Status Refusal();
  Report AnyReport();
  Report ReportOf(const Dispatch& dispatch);
  StepOutcome AnyOutcome(uint32_t attempt);
  ResourceReady ReadyOf(ResourceId iterator);
  NeedSlots AnySlots();
  FromWorker AnyWord();
  Fence AnyFence(Incarnation target);

  const Options options_;
  SimSite& site_;
  const std::shared_ptr<Node> node_;
  SimDialer dialer_;
  const std::shared_ptr<CoordinatorClient> coordinator_;
  std::map<int, std::shared_ptr<ParameterClient>> servers_;
  Random random_;
  wire::testing::Generator any_;
  Incarnation incarnation_;
  std::optional<WorkerAttachRequest> attached_;  // the newest
  std::unique_ptr<Session> session_;
  std::deque<Dispatch> steps_;  // the newest that it received
  std::set<EntryId> given_;     // all that it received
  std::deque<ResourceId> iterators_;
  std::deque<uint64_t> holds_;
};

}  // namespace divvy::sim

#endif  // DIVVY_TESTS_SIM_LYING_WORKER_H_
