// What a checkpoint says of its job, beside the values of the variables.
#ifndef DIVVY_CLUSTER_JOB_STATE_H_
#define DIVVY_CLUSTER_JOB_STATE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/horizon.h"
#include "cluster/ids.h"
#include "cluster/layout.h"
#include "tensor/nest.h"

namespace divvy {

// A pass over leased data that was under way at the cut.
struct DataPass : PassProgress {
  std::string source;
  Nest args;
  uint64_t seed = 0;  // of the pass: its order
};

// The cut: at one moment each entry was applied at all the servers it touches, or at none; this is
// the coordinator's side of that moment. A plain value; the layout is shared and immutable. Written
// as bytes by wire/job_state.h.
struct JobState {
  JobId job;
  CheckpointId checkpoint;  // that it is the state of
  Epoch lineage;            // of the ps whose values it has
  std::shared_ptr<const Layout> layout;
  // entries it contains: those that are closed, but for steps that failed or were cancelled, which
  // are nowhere
  Horizon cut;
  // training and read-only steps in the cut
  int64_t finished_steps = 0, finished_reads = 0;
  // Of the next training step.
  int64_t next_ordinal = 0;
  // RunEpochs of training steps completed
  int64_t epochs = 0;
  // Of each data source, begun: the next pass is shuffled otherwise.
  std::map<std::string, int64_t> passes;
  // passes of training steps under way
  std::vector<DataPass> data;
  // The bytes last given to SetProgramState.
  std::string program_state;
  // Of a running job: its parameter servers, by index. Empty in a checkpoint.
  std::vector<Incarnation> servers;
};

}  // namespace divvy

#endif  // DIVVY_CLUSTER_JOB_STATE_H_
