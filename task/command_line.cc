#include "task/command_line.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/str_cat.h"
#include "base/build_info.h"
#include "base/crash_report.h"
#include "base/exit_codes.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "base/terminal.h"
#include "rpc/credentials.h"
#include "rpc/health_check.h"
#include "task/flag_help.h"
#include "task/own_flags.h"
#include "task/task_flags.h"
#include "task/version_line.h"

ABSL_DECLARE_FLAG(std::string, check_health);

namespace divvy {

void BeginProcess(const char* argv0) {
  ReportCrashes(argv0);
  SurviveLargeFiles();
}

namespace {

int Misused(absl::string_view why) {
  WriteStandardError(absl::StrCat(why, "\n"));
  return exit_codes::kUsage;
}

// OK for a binary that runs all roles.
absl::Status CheckFlags(const Binary& binary, const std::vector<std::string>& given) {
  uint8_t users = 0;
  for (const Role role : binary.roles) users |= UserOf(role);
  return users == 0 ? absl::OkStatus() : CheckFlagsOf(binary.name, users, given);
}

// Does what --check_health=`address` says.
int CheckHealthOf(const std::string& address) {
  constexpr int kBadArguments = 1;  // of grpc_health_probe
  const auto files = TlsFilesFromFlags();
  absl::Status problem = files.status();
  if (files.ok() && *files) problem = CheckTlsFiles(**files);
  if (!problem.ok()) {
    WriteStandardError(absl::StrCat("health: ", problem.message(), "\n"));
    return kBadArguments;
  }
  HealthOptions options;
  options.address = address;
  options.credentials = MakeChannelCredentials(*files, "");
  return CheckHealth(options);
}

}  // namespace

std::optional<int> ReadCommandLine(int argc, char** argv, const Binary& binary) {
  if (HelpIsAsked(argc, argv)) {
    std::fputs(absl::StrCat(binary.usage, "\n", binary.help_of_flags()).c_str(), stdout);
    return EXIT_SUCCESS;
  }
  const absl::Status flags = CheckFlags(binary, FlagsGiven(argc, argv));
  if (!flags.ok()) return Misused(flags.message());
  absl::SetProgramUsageMessage(binary.usage);
  absl::FlagsUsageConfig config;
  config.version_string = [] { return VersionLine("Divvy", BuildCommit()); };
  absl::SetFlagsUsageConfig(config);
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  if (words.size() < 2) {
    const std::string address = absl::GetFlag(FLAGS_check_health);
    return address.empty() ? std::nullopt : std::make_optional(CheckHealthOf(address));
  }
  return Misused(absl::StrCat("\"", words[1],
                              "\": a task takes flags only, and none after --: "
                              "write --name=value"));
}

absl::StatusOr<TaskOptions> OwnTask(const Binary& binary) {
  const absl::string_view role = RoleName(binary.roles[0]);
  ASSIGN_OR_RETURN(std::optional<TaskOptions> task, TaskOptionsFromFlags());
  if (!task) {
    return absl::InvalidArgumentError(absl::StrCat(
        "this process does not know which task it is: set TF_CONFIG, or --task_type=", role,
        ", --task_index and --coordinator_address"));
  }
  if (std::find(binary.roles.begin(), binary.roles.end(), task->role) == binary.roles.end()) {
    return absl::InvalidArgumentError(absl::StrCat("this is ", binary.name,
                                                   ", but TF_CONFIG's task.type is not \"", role,
                                                   "\": start the binary of that role"));
  }
  return *std::move(task);
}

}  // namespace divvy
