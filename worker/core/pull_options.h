// How far a worker's reads may lag behind its own steps, for speed. Off by default: then a step
// sees all that its worker's steps before it have written.
#ifndef DIVVY_WORKER_CORE_PULL_OPTIONS_H_
#define DIVVY_WORKER_CORE_PULL_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace divvy {

struct PullOptions {
  static constexpr int kMaxPipelineDepth = 3;

  // So many steps of this worker overlap, at least 1. 1: a step's pulls leave when it begins, and
  // it sees all that the steps before it here have written. d: while a training step runs, what up
  // to d - 1 training steps that wait behind it will read whole (as far as it is known from their
  // last runs) is pulled already. Such a step may miss what the d - 1 steps before it on this
  // worker add (gradients, adds, the scatters but scatter_update), as it may always miss what steps
  // of other workers write; never what one of them has assigned. What had finished before the step
  // was scheduled it sees; but steps that are run again after the loss of a parameter server run
  // beside each other, and see no more of each other than steps of several workers do. A step that
  // assigns, for the first time, what its function only read before, and that was pulled too early
  // for it, is run again. A coordinator leaves two steps waiting at a worker, so 3 is the most
  // there is.
  //
  // The commit of a step is one of the d: the next training step runs meanwhile, and commits when
  // that one is reported. It waits instead beside a step that assigns, where its function is known
  // to assign what is being committed, in the first run of its function, and where rows are kept
  // (below).
  //
  // Where a replica has a GPU, the batches of leased data that these d - 1 steps will take are read
  // and copied there meanwhile, too: each step gets the elements that it would get anyway.
  int pipeline_depth = 1;

  // Memory for rows that training steps have pulled by id: a row is used again by the step that
  // pulled it, and by up to row_cache_staleness steps of this worker after it, without asking the
  // parameter server. What others write to it meanwhile, the program's own writes included, is
  // missed so long; never what a step of this worker has written. No rows are kept of a variable
  // that one has assigned. Read-only steps always ask. 0 bytes: nothing is kept.
  int64_t row_cache_bytes = 0;
  int row_cache_staleness = 0;

  // What is wrong with them, each naming its flag.
  std::vector<std::string> Problems() const {
    std::vector<std::string> problems;
    if (pipeline_depth < 1 || pipeline_depth > kMaxPipelineDepth) {
      problems.push_back(absl::StrCat("--pipeline_depth is ", pipeline_depth,
                                      ", wanted 1 (one step after another) to ",
                                      kMaxPipelineDepth));
    }
    if (row_cache_bytes < 0)
      problems.push_back(
          absl::StrCat("--row_cache_bytes is ", row_cache_bytes, ", wanted at least 0"));
    if (row_cache_staleness < 0)
      problems.push_back(
          absl::StrCat("--row_cache_staleness is ", row_cache_staleness, ", wanted at least 0"));
    if (row_cache_staleness > 0 && row_cache_bytes == 0) {
      problems.push_back(
          absl::StrCat("--row_cache_staleness is ", row_cache_staleness,
                       ", and there is no cache: give it memory with --row_cache_bytes"));
    }
    return problems;
  }
};

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_PULL_OPTIONS_H_
