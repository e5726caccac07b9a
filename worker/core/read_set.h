// What a step will read, learnt from what it read the last time, so that its first pull can leave
// before it asks.
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

// The variables that each step function read whole in its last good run, and all that it has ever
// assigned, for one version of the layout: under another it is learnt anew. A prediction costs
// memory and a transfer where it is wrong, never a wrong value. Not thread-safe.
class ReadSets {
 public:
  // In name order; empty where nothing is known.
  std::vector<std::string> Predict(absl::string_view function, uint64_t layout_version) const {
    const auto found = by_function_.find(function);
    if (found == by_function_.end() || found->second.layout_version != layout_version) return {};
    return {found->second.variables.begin(), found->second.variables.end()};
  }

  // Of these, what is worth a pull while another step runs: a variable that some function assigns
  // would have to be pulled again after it.
  std::vector<std::string> PredictAhead(absl::string_view function, uint64_t layout_version) const {
    std::vector<std::string> variables;
    for (std::string& variable : Predict(function, layout_version)) {
      if (!IsAssigned(variable, layout_version)) variables.push_back(std::move(variable));
    }
    return variables;
  }

  // Whether the function has ended well under this layout, and has assigned none of the variables.
  bool AssignsNoneOf(absl::string_view function, uint64_t layout_version,
                     const std::set<std::string>& variables) const {
    const auto found = by_function_.find(function);
    if (found == by_function_.end() || found->second.layout_version != layout_version) return false;
    const std::set<std::string>& assigned = found->second.assigned;
    return std::none_of(variables.begin(), variables.end(),
                        [&](const std::string& variable) { return assigned.count(variable) > 0; });
  }

  // Of a run that ended well. What was not read this time is dropped. What was assigned once is
  // not: a function may assign now and then.
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
