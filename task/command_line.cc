#include "task/command_line.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/str_cat.h"
#include "base/crash_report.h"
#include "base/exit_codes.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "base/terminal.h"
#include "base/version.h"
#include "task/flag_help.h"
#include "task/task_flags.h"

namespace divvy {

void BeginProcess(const char* argv0) {
  ReportCrashes(argv0);
  SurviveLargeFiles();
}

std::optional<int> ReadCommandLine(int argc, char** argv, const std::string& usage,
                                   const std::function<std::string()>& help_of_flags) {
  if (HelpIsAsked(argc, argv)) {
    std::fputs(absl::StrCat(usage, "\n", help_of_flags()).c_str(), stdout);
    return EXIT_SUCCESS;
  }
  absl::SetProgramUsageMessage(usage);
  absl::FlagsUsageConfig config;
  config.version_string = [] { return absl::StrCat("Divvy ", kVersion, "\n"); };
  absl::SetFlagsUsageConfig(config);
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  if (words.size() < 2) return std::nullopt;
  WriteStandardError(absl::StrCat(
      "\"", words[1], "\": a task takes flags alone, and none behind --: write --name=value\n"));
  return exit_codes::kUsage;
}

absl::StatusOr<TaskOptions> OwnTask(absl::string_view binary, absl::Span<const Role> roles) {
  const absl::string_view role = RoleName(roles[0]);
  ASSIGN_OR_RETURN(std::optional<TaskOptions> task, TaskOptionsFromFlags());
  if (!task) {
    return absl::InvalidArgumentError(absl::StrCat(
        "this process does not know which task it is: set TF_CONFIG, or --task_type=", role,
        ", --task_index and --coordinator_address"));
  }
  if (std::find(roles.begin(), roles.end(), task->role) == roles.end()) {
    return absl::InvalidArgumentError(absl::StrCat("this is ", binary,
                                                   ", but TF_CONFIG's task.type is not \"", role,
                                                   "\": start the binary of that role"));
  }
  return *std::move(task);
}

}  // namespace divvy
