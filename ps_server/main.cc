// ps_server: a parameter server of any job. Who it is, TF_CONFIG or flags tell it.
#include <cstdio>

#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "base/crash_report.h"
#include "base/exit_codes.h"
#include "ps_server/service/run.h"
#include "task/flag_help.h"
#include "task/task_end.h"
#include "task/task_flags.h"

namespace divvy {
namespace {

absl::StatusOr<TaskOptions> OwnTask() {
  absl::StatusOr<std::optional<TaskOptions>> task = TaskOptionsFromFlags();
  if (!task.ok()) return task.status();
  if (!*task)
    return absl::InvalidArgumentError(
        "this process does not know which parameter server it is: set TF_CONFIG, or "
        "--task_type=ps, --task_index and --coordinator_address");
  if ((*task)->role != Role::kPs)
    return absl::InvalidArgumentError(
        "this is ps_server, but task.type of TF_CONFIG is not \"ps\": start the binary of that "
        "role");
  return **std::move(task);
}

}  // namespace
}  // namespace divvy

int main(int argc, char** argv) {
  divvy::ReportCrashes(argv[0]);
  constexpr char kUsage[] = "a parameter server. TF_CONFIG, or flags, say which";
  if (divvy::HelpIsAsked(argc, argv)) {
    std::fputs(
        absl::StrCat(kUsage, "\n",
                     divvy::FlagHelp("flags, with their defaults:", divvy::FlagsOfThisBinary()))
            .c_str(),
        stdout);
    return 0;
  }
  absl::SetProgramUsageMessage(kUsage);
  if (const absl::Status flags = divvy::CheckFlagsOnly(absl::ParseCommandLine(argc, argv));
      !flags.ok()) {
    divvy::RefuseToStart(flags);
    return divvy::exit_codes::kUsage;
  }
  const absl::StatusOr<divvy::TaskOptions> task = divvy::OwnTask();
  if (!task.ok()) return divvy::RefuseToStart(task.status());
  if (const absl::Status log = divvy::SetLogFromFlags(task->name()); !log.ok())
    return divvy::RefuseToStart(log);
  return divvy::RunParameterServer(*task);
}
