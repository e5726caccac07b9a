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
  // the seed of the pass, which decides its order
  uint64_t seed = 0;
};

// The coordinator's part of a cut. A cut is a moment at which each entry is applied on all servers
// that it touches, or on none. A plain value; the layout is shared and immutable. wire/job_state.h
// encodes it.
struct JobState {
  JobId job;
  // the checkpoint that this state belongs to
  CheckpointId checkpoint;
  // the lineage of the values in the checkpoint
  Epoch lineage;
  std::shared_ptr<const Layout> layout;
  // The closed entries are in the checkpoint, except steps that failed or were cancelled: those
  // were applied nowhere.
  Horizon cut;
  // training and read-only steps in the cut
  int64_t finished_steps = 0, finished_reads = 0;
  // the ordinal of the next training step
  int64_t next_ordinal = 0;
  // completed RunEpoch calls of training steps
  int64_t epochs = 0;
  // no entry so far has a larger Dispatch::tick; later ones are not smaller
  uint32_t tick = 0;
  // data source -> number of passes begun. The next pass is shuffled differently.
  std::map<std::string, int64_t> passes;
  // passes of training steps that had begun and not ended
  std::vector<DataPass> data;
  // The bytes last given to SetProgramState.
  std::string program_state;
  // Running job: the incarnations of its parameter servers, by index. Empty in a checkpoint.
  std::vector<Incarnation> servers;
};

}  // namespace divvy

#endif  // DIVVY_PROTOCOL_JOB_STATE_H_
