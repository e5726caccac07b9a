// The clients of a simulated process: every request becomes messages of the network.
#ifndef DIVVY_TESTS_SIM_SIM_CLIENTS_H_
#define DIVVY_TESTS_SIM_SIM_CLIENTS_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "protocol/clients.h"
#include "tests/sim/sim_network.h"

namespace divvy::sim {

// The simulation that clients are part of: where they send, and whom they tell what passes.
class SimSite {
 public:
  virtual ~SimSite() = default;
  virtual Network& network() = 0;
  // Of the coordinator that tasks register with.
  virtual const std::string& chief_address() const = 0;
  // An invariant of the protocol does not hold.
  virtual void Violation(absl::string_view rule, const std::string& what) = 0;
  virtual void Trace(absl::string_view text) {}
  // That a commit's payload takes, once there is memory for it.
  virtual absl::Duration PayloadTime() { return network().PayloadDelay(); }
  // A coordinator asks a ps for it.
  virtual void OnSnapshot(const Node& from, CheckpointId) {}
  // A ps has marked it.
  virtual void OnMarked(const Node& from, CheckpointId) {}
  // A ps said that a commit waits for memory.
  virtual void OnWaits() {}
  // A worker says that the step has finished.
  virtual void OnReported(const Node& from, SessionId session, EntryId step) {}
  virtual void OnCommitAnswered(const absl::Status& status) {}
  // One arrives at a ps.
  virtual void OnCommit(const CommitRequest& request) {}
  // It was applied for the first time.
  virtual void OnApplied(const Node& ps, const CommitRequest& request) {}
  // One is about to reach a ps.
  virtual void OnLoad(const Node& ps, const LoadRequest& request) {}
  // A worker says that the step has finished, and has not run it.
  virtual void OnFalselyDone(EntryId step) {}
  // A worker says how large data is, or that it has ended, and has not read it.
  virtual void OnFalseEnd() {}
  // One arrives at a worker.
  virtual void OnToWorker(const ToWorker& message) {}
  virtual void OnCreateShards(const Node& ps, const CreateShardsRequest& request) {}
  // One arrives at a worker.
  virtual void OnAttach(const Node& worker, const WorkerAttachRequest& request) {}
};

// The ways from one process to the others. Node::core is what answers at the other end. REQUIRES:
// `site` outlives every client.
class SimDialer : public Dialer {
 public:
  SimDialer(SimSite& site, std::shared_ptr<Node> from) : site_(site), from_(std::move(from)) {}
  std::shared_ptr<ParameterClient> ParameterServer(const std::string& address) override;
  std::shared_ptr<WorkerClient> Worker(const std::string& address) override;
  std::shared_ptr<CoordinatorClient> Coordinator();

 private:
  SimSite& site_;
  const std::shared_ptr<Node> from_;
};

}  // namespace divvy::sim

#endif  // DIVVY_TESTS_SIM_SIM_CLIENTS_H_
