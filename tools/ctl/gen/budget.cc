#include "tools/ctl/gen/budget.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cluster/config_json.h"

namespace divvy::gen {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;
// Code, stacks, and what malloc cannot use.
constexpr int64_t kBaseBytes = 256 * kMiB;
// The least that must be left for the variables of a parameter server.
constexpr int64_t kLeastForVariables = 64 * kMiB;

// A flag of a task that bounds memory. `permille`: gRPC counts roughly, so that its budget takes
// one and a half times as much (docs/operating/operations.md). These are the defaults of
// task/flags.inc; a test compares them.
struct Buffer {
  absl::string_view flag;
  int64_t default_bytes;
  int permille;
  Role role;
};
constexpr Buffer kBuffers[] = {{"rpc_memory_bytes", kGiB, 1500, Role::kChief},
                               {"redo_log_bytes", 256 * kMiB, 1000, Role::kChief},
                               {"rpc_memory_bytes", kGiB, 1500, Role::kWorker},
                               {"rpc_memory_bytes", kGiB, 1500, Role::kPs},
                               {"commit_buffer_bytes", 512 * kMiB, 1500, Role::kPs},
                               {"snapshot_buffer_bytes", kGiB, 1000, Role::kPs},
                               {"pull_buffer_bytes", kGiB, 1000, Role::kPs}};

int64_t DefaultMemory(Role role) { return (role == Role::kChief ? 4 : 8) * kGiB; }

absl::StatusOr<int64_t> BytesOf(const Arguments& arguments, absl::string_view flag,
                                int64_t otherwise) {
  const std::optional<std::string> text = arguments.ValueOf(flag);
  int64_t bytes = otherwise;
  if (text && (!absl::SimpleAtoi(*text, &bytes) || bytes < 0 || bytes > kMaxBytes))
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=", EscapeText(*text), ": wanted a number of bytes"));
  return bytes;
}

absl::StatusOr<int64_t> BufferBytes(Role role, const Arguments& arguments) {
  int64_t sum = kBaseBytes;
  for (const Buffer& buffer : kBuffers) {
    if (buffer.role != role) continue;
    ASSIGN_OR_RETURN(const int64_t bytes, BytesOf(arguments, buffer.flag, buffer.default_bytes));
    sum += bytes / 1000 * buffer.permille + bytes % 1000;
  }
  return (sum + kMiB - 1) / kMiB * kMiB;
}

std::string FlagsText(Role role) {
  std::string text;
  for (const Buffer& buffer : kBuffers) {
    if (buffer.role == role) absl::StrAppend(&text, text.empty() ? "--" : ", --", buffer.flag);
  }
  return text;
}

}  // namespace

absl::StatusOr<Budget> BudgetOf(Role role, const Arguments& arguments,
                                absl::string_view memory_flag,
                                const std::optional<std::string>& given, int64_t memory_files) {
  Budget budget;
  ASSIGN_OR_RETURN(const int64_t buffers, BufferBytes(role, arguments));
  const int64_t taken = buffers + memory_files;
  ASSIGN_OR_RETURN(const int64_t variables, BytesOf(arguments, "memory_limit_bytes", 0));
  const bool is_ps = role == Role::kPs;
  const bool has_variable_limit = is_ps && variables > 0;
  const int64_t needed = taken + (!is_ps               ? 0
                                  : has_variable_limit ? (variables + kMiB - 1) / kMiB * kMiB
                                                       : kLeastForVariables);
  budget.memory_bytes = has_variable_limit ? needed : DefaultMemory(role);
  if (given) {
    ASSIGN_OR_RETURN(budget.memory_bytes, ParseSize(memory_flag, *given));
  }
  if (budget.memory_bytes < needed) {
    return absl::InvalidArgumentError(absl::StrCat(
        memory_flag, "=", SizeText(budget.memory_bytes), " is less than the ", SizeText(needed),
        " that a ", UsersText(UserOf(role)), " may take by its flags",
        memory_files > 0 ? absl::StrCat(" and ", SizeText(memory_files), " of files in memory")
                         : "",
        ": raise it, or lower ", FlagsText(role),
        has_variable_limit ? ", --memory_limit_bytes" : ""));
  }
  if (is_ps && !has_variable_limit) budget.variable_bytes = budget.memory_bytes - taken;
  return budget;
}

}  // namespace divvy::gen
