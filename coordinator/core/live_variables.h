// Access to the variables of a running job, for code that exports them.
#ifndef DIVVY_COORDINATOR_CORE_LIVE_VARIABLES_H_
#define DIVVY_COORDINATOR_CORE_LIVE_VARIABLES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "protocol/ids.h"
#include "tensor/tensor.h"
#include "variables/variable_spec.h"

namespace divvy {

// A view of the variables of one job. It stays valid as long as the job's coordinator lives. Steps
// may run while the values are read, so different reads may see the results of different steps.
struct LiveVariables {
  JobId job;
  // Training steps finished when the view was made.
  int64_t finished_steps = 0;
  std::vector<VariableSpec> variables;
  // Reads rows [begin, end) of a variable; a scalar has one row. Blocks. Errors: those of
  // CoordinatorCore::Read.
  std::function<absl::StatusOr<Tensor>(const VariableSpec& variable, int64_t begin, int64_t end)>
      read;
};

// Writes the variables to `path`, as Coordinator::Export describes. Blocks.
using ExportVariablesFunction =
    std::function<absl::Status(const LiveVariables& variables, const std::string& path)>;

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_LIVE_VARIABLES_H_
