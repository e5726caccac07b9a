// Whether a checkpoint is one of the program's own model, as far as names tell.
#ifndef DIVVY_COORDINATOR_CORE_MODEL_MATCH_H_
#define DIVVY_COORDINATOR_CORE_MODEL_MATCH_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace divvy {

// How the variables that a program has declared and those of the state that it goes on from
// compare.
struct ModelMatch {
  // declared, and not in the state: they begin with their initial values
  std::vector<std::string> not_found;
  // In the state, and not declared: they stay as they are, until the program creates them or for
  // ever.
  std::vector<std::string> unclaimed;
  bool any_found = false;
};

// Pure.
ModelMatch MatchModel(const std::vector<std::string>& declared,
                      const std::vector<std::string>& saved);

// FailedPrecondition: both have variables, and none in common, so `where` ("ckpt-3-17") is another
// model's. A program that declares nothing before it restores is taken at its word.
absl::Status CheckSameModel(const ModelMatch& match, absl::string_view where);

// One line for the log, each list cut after a few names; "": all that is there was declared, and
// the other way round.
std::string DescribeMatch(const ModelMatch& match, absl::string_view where);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_MODEL_MATCH_H_
