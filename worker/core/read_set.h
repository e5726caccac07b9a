// Predicts the variables that a step will read from those that its function has read before, so
// that the step's first pull can be sent before the step asks.
#ifndef DIVVY_WORKER_CORE_READ_SET_H_
#define DIVVY_WORKER_CORE_READ_SET_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace divvy {

// For each step function: the variables that it read whole in its last successful run, and all
// variables that it has ever assigned. The knowledge holds for one version of the layout; under
// another version it is learnt anew. A wrong prediction costs memory and a transfer, and never
// yields a wrong value. Not thread-safe.
class ReadSets {
 public:
  // The variables that `function` will probably read whole, in the order of their names. Empty if
  // nothing is known.
  std::vector<std::string> Predict(absl::string_view function, uint64_t layout_version) const {
    const auto found = by_function_.find(function);
    if (found == by_function_.end() || found->second.layout_version != layout_version) return {};
    return {found->second.variables.begin(), found->second.variables.end()};
  }

  // The predicted variables that are worth a pull while another step runs. A variable that some
  // function assigns is left out, because it would have to be pulled again after the assign.
  std::vector<std::string> PredictAhead(absl::string_view function, uint64_t layout_version) const {
    std::vector<std::string> variables;
    for (std::string& variable : Predict(function, layout_version)) {
      if (!IsAssigned(variable, layout_version)) variables.push_back(std::move(variable));
    }
    return variables;
  }

  // Whether the function has succeeded under this layout, and has assigned none of `variables`.
  bool AssignsNoneOf(absl::string_view function, uint64_t layout_version,
                     const std::set<std::string>& variables) const {
    const auto found = by_function_.find(function);
    if (found == by_function_.end() || found->second.layout_version != layout_version) return false;
    const std::set<std::string>& assigned = found->second.assigned;
    return std::none_of(variables.begin(), variables.end(),
                        [&](const std::string& variable) { return assigned.count(variable) > 0; });
  }

  // Learns from a successful run. `read_whole` replaces the variables of the run before. `assigned`
  // adds to them, because a function may assign a variable in some runs only.
  void Learn(absl::string_view function, uint64_t layout_version, std::set<std::string> read_whole,
             std::set<std::string> assigned = {}) {
    Learnt& learnt = by_function_[std::string(function)];
    if (learnt.layout_version == layout_version) assigned.merge(learnt.assigned);
    learnt = {layout_version, std::move(read_whole), std::move(assigned)};
  }

 private:
  struct Learnt {
    uint64_t layout_version = 0;
    std::set<std::string> variables, assigned;
  };

  bool IsAssigned(const std::string& variable, uint64_t layout_version) const {
    for (const auto& [function, learnt] : by_function_) {
      if (learnt.layout_version == layout_version && learnt.assigned.count(variable) > 0)
        return true;
    }
    return false;
  }

  std::map<std::string, Learnt, std::less<>> by_function_;
};

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_READ_SET_H_
