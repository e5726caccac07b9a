// How stale a worker's reads may be with respect to its own steps, in exchange for speed. By
// default a step sees all writes of the earlier steps of its worker.
#ifndef DIVVY_WORKER_CORE_PULL_OPTIONS_H_
#define DIVVY_WORKER_CORE_PULL_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace divvy {

struct PullOptions {
  static constexpr int kMaxPipelineDepth = 3;

  // How many steps of this worker may overlap, from 1 to kMaxPipelineDepth. Beside the running step
  // only two wait at a worker, unless they are very short. A greater depth would not help.
  //
  // Depth 1: a step's pulls are sent when the step begins, and the step sees all writes of the
  // earlier steps of this worker.
  //
  // Depth d: while a training step runs, the worker prefetches the variables that the next d - 1
  // queued training steps will read whole, as far as the last runs of their functions tell.
  // - A prefetched step may miss the additions (gradients, adds, all scatters but scatter_update)
  //   of the d - 1 steps before it on this worker, as it may always miss writes of other workers.
  //   It never misses an assign of its own worker.
  // - It sees all steps that had finished before it was scheduled. Replay is the exception: steps
  //   that are run again after the loss of a parameter server run at the same time, and may miss
  //   each other's writes as steps of different workers may.
  // - If a step assigns a variable that its function has only read so far, and the prefetched value
  //   missed a write, the step is run again.
  //
  // A commit in flight counts as one of the d steps. The next training step runs meanwhile, and
  // commits after the committing step has been reported. In three cases the next step waits
  // instead: the committing step assigns a variable; the next step's function is known to assign a
  // variable of the commit; it is the first run of that function.
  //
  // If a replica has a GPU, the batches of leased data for these d - 1 steps are also read and
  // copied to it in advance. Each step gets the same elements as without prefetching.
  int pipeline_depth = 1;

  // Every invalid value, each with the name of its flag. Empty: the options are valid.
  std::vector<std::string> Problems() const {
    std::vector<std::string> problems;
    if (pipeline_depth < 1 || pipeline_depth > kMaxPipelineDepth) {
      problems.push_back(absl::StrCat("--pipeline_depth is ", pipeline_depth,
                                      ", wanted 1 (one step after another) to ",
                                      kMaxPipelineDepth));
    }
    return problems;
  }
};

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_PULL_OPTIONS_H_
