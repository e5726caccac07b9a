// The variables of a running job, for those that write them elsewhere.
#ifndef DIVVY_COORDINATOR_CORE_LIVE_VARIABLES_H_
#define DIVVY_COORDINATOR_CORE_LIVE_VARIABLES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/ids.h"
#include "cluster/variable_spec.h"
#include "tensor/tensor.h"

namespace divvy {

struct LiveVariables {
  JobId job;
  int64_t finished_steps = 0;
  std::vector<VariableSpec> variables;
  // Rows [begin, end) of a variable; a scalar has one. Blocks.
  std::function<absl::StatusOr<Tensor>(const VariableSpec& variable, int64_t begin, int64_t end)>
      read;
};

// Writes them to `path`, as Coordinator::Export says. Blocks.
using ExportVariablesFunction =
    std::function<absl::Status(const LiveVariables& variables, const std::string& path)>;

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_LIVE_VARIABLES_H_
