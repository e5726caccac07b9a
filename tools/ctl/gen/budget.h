// The memory of a task: what its buffers may take, and what is left for variables.
#ifndef DIVVY_TOOLS_CTL_GEN_BUDGET_H_
#define DIVVY_TOOLS_CTL_GEN_BUDGET_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "protocol/role.h"
#include "tools/ctl/gen/arguments.h"

namespace divvy::gen {

struct Budget {
  // The limit of the task's container, step or unit.
  int64_t memory_bytes = 0;
  // The value for --memory_limit_bytes of a ps. nullopt: another role, or the arguments have it.
  std::optional<int64_t> variable_bytes;
};

// Divides the memory of a task of `role`. `memory_flag` ("--ps_memory") is named in errors, and
// `given` is its value. Without it the limit is the role's default. `memory_files` is the size of
// the file systems in memory that count in the limit (/dev/shm, /tmp). For a ps whose arguments
// have
// --memory_limit_bytes it is the sum of that and the buffers. InvalidArgument: a size that cannot
// be read, or a limit that is smaller than the sum. Pure.
absl::StatusOr<Budget> BudgetOf(Role role, const Arguments& arguments,
                                absl::string_view memory_flag,
                                const std::optional<std::string>& given, int64_t memory_files = 0);

}  // namespace divvy::gen

#endif  // DIVVY_TOOLS_CTL_GEN_BUDGET_H_
