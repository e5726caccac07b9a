// The state of a job in a checkpoint, besides the values of the variables.
#ifndef DIVVY_PROTOCOL_JOB_STATE_H_
#define DIVVY_PROTOCOL_JOB_STATE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "protocol/horizon.h"
#include "protocol/ids.h"
#include "tensor/nest.h"
#include "variables/layout.h"

namespace divvy {

// A pass over leased data that had begun and not ended at the cut.
struct DataPass : PassProgress {
  std::string source;
  Nest args;
  uint64_t seed = 0;  // of the pass: its order
};

// The coordinator's part of a cut. A cut is a moment at which each entry was applied either at all
// the servers that it touches or at none. A plain value; the layout is shared and immutable.
// wire/job_state.h encodes it.
struct JobState {
  JobId job;
  CheckpointId checkpoint;  // that this state belongs to
  Epoch lineage;            // of the ps whose values the checkpoint has
  std::shared_ptr<const Layout> layout;
  // The closed entries are in the checkpoint, except steps that failed or were cancelled: those
  // were applied nowhere.
  Horizon cut;
  // training and read-only steps in the cut
  int64_t finished_steps = 0, finished_reads = 0;
  // ordinal of the next training step
  int64_t next_ordinal = 0;
  // completed RunEpoch calls of training steps
  int64_t epochs = 0;
  // data source -> passes begun. The next pass is shuffled differently.
  std::map<std::string, int64_t> passes;
  // passes of training steps that had begun and not ended
  std::vector<DataPass> data;
  // The bytes last given to SetProgramState.
  std::string program_state;
  // The parameter servers of a running job, by index. Empty in a checkpoint.
  std::vector<Incarnation> servers;
};

}  // namespace divvy

#endif  // DIVVY_PROTOCOL_JOB_STATE_H_
