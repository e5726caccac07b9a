// How far a worker's reads may lag behind its own steps, for speed. Off by default: then a step sees all that its worker's steps before it have written.
#ifndef DIVVY_WORKER_CORE_PULL_OPTIONS_H_
#define DIVVY_WORKER_CORE_PULL_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace divvy {

struct PullOptions {
  // While a training step runs, what up to so many training steps that wait behind it will read whole (as far as it is known from their last runs) is pulled
  // already. Such a step may miss what up to so many steps before it on this worker write, as it may always miss what steps of other workers write; never what
  // one of them has assigned, and never what had finished before the step was scheduled. 0: a step's pulls leave when it begins. A coordinator leaves two
  // steps waiting at a worker, so more than 2 is as good as 2.
  int pipeline_depth = 0;

  // What is wrong with them, each naming its flag.
  std::vector<std::string> Problems() const {
    std::vector<std::string> problems;
    if (pipeline_depth < 0) problems.push_back(absl::StrCat("--pipeline_depth is ", pipeline_depth, ", wanted at least 0"));
    return problems;
  }
};

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_PULL_OPTIONS_H_
