// The clients of a simulated process. They turn every request into messages of the network.
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

// The simulation as its clients see it: the network they send through, and the hooks that they
// call.
class SimSite {
 public:
  virtual ~SimSite() = default;
  virtual Network& network() = 0;
  // The address of the coordinator that tasks register with.
  virtual const std::string& chief_address() const = 0;
  // An invariant of the protocol does not hold.
  virtual void Violation(absl::string_view rule, const std::string& what) = 0;
  virtual void Trace(absl::string_view text) {}
  // How long a commit's payload takes to arrive, once memory is reserved for it.
  virtual absl::Duration PayloadTime() { return network().PayloadDelay(); }
  // A coordinator sends Snapshot to a ps.
  virtual void OnSnapshot(const Node& from, CheckpointId) {}
  // A ps has marked its shards for the checkpoint.
  virtual void OnMarked(const Node& from, CheckpointId) {}
  // A ps answers that a commit waits for memory.
  virtual void OnWaits() {}
  // A worker reports that the step has finished.
  virtual void OnReported(const Node& from, SessionId session, EntryId step) {}
  virtual void OnCommitAnswered(const absl::Status& status) {}
  // A commit arrives at a ps.
  virtual void OnCommit(const CommitRequest& request) {}
  // A ps has applied the commit, for the first time.
  virtual void OnApplied(const Node& ps, const CommitRequest& request) {}
  // A Load arrives at a ps, which has not seen it yet.
  virtual void OnLoad(const Node& ps, const LoadRequest& request) {}
  // A worker reports that the step has finished, but has not run it.
  virtual void OnFalselyDone(EntryId step) {}
  // A worker reports the size or the end of data that it has not read.
  virtual void OnFalseEnd() {}
  // A message of the coordinator of the epoch arrives at a worker.
  virtual void OnToWorker(Epoch sender, const ToWorker& message) {}
  virtual void OnCreateShards(const Node& ps, const CreateShardsRequest& request) {}
  // An Attach arrives at a worker.
  virtual void OnAttach(const Node& worker, const WorkerAttachRequest& request) {}
};

// Makes a process' clients of the other processes. At the other end Node::core answers. REQUIRES:
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
