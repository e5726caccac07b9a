// Checks by names whether a checkpoint belongs to the program's model.
#ifndef DIVVY_COORDINATOR_CORE_MODEL_MATCH_H_
#define DIVVY_COORDINATOR_CORE_MODEL_MATCH_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace divvy {

// Compares the variables that a program has declared with those of the state that it continues
// from.
struct ModelMatch {
  // Declared, and not in the state. They begin with their initial values.
  std::vector<std::string> not_found;
  // In the state, and not declared. They stay unchanged until the program creates them.
  std::vector<std::string> unclaimed;
  // Whether at least one declared variable is in the state.
  bool any_found = false;
};

// Compares the names. Pure.
ModelMatch MatchModel(const std::vector<std::string>& declared,
                      const std::vector<std::string>& saved);

// FailedPrecondition: both sides have variables and none in common, so `where` ("ckpt-3-17")
// belongs to another model. OK for a program that declares nothing before it restores. Pure.
absl::Status CheckSameModel(const ModelMatch& match, absl::string_view where);

// One line for the log; each list is cut after a few names. Empty: the declared variables and the
// state's are the same. Pure.
std::string DescribeMatch(const ModelMatch& match, absl::string_view where);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_MODEL_MATCH_H_
