// ps_server: a parameter server of any job. TF_CONFIG or flags say which.
#include <optional>
#include <string>

#include "ps_server/service/run.h"
#include "task/command_line.h"
#include "task/flag_help.h"
#include "task/task_end.h"
#include "task/task_flags.h"

namespace divvy {
namespace {

std::string HelpOfFlags() { return FlagHelp("flags, with their defaults:", FlagsOfThisBinary()); }

int Main(int argc, char** argv) {
  BeginProcess(argv[0]);
  const Binary binary = {
      "ps_server", "a parameter server. TF_CONFIG, or flags, say which", HelpOfFlags, {Role::kPs}};
  if (const std::optional<int> ended = ReadCommandLine(argc, argv, binary)) return *ended;
  const absl::StatusOr<TaskOptions> task = OwnTask(binary);
  if (!task.ok()) return RefuseToStart(task.status());
  const absl::Status log = SetLogFromFlags(task->name());
  return log.ok() ? RunParameterServer(*task) : RefuseToStart(log);
}

}  // namespace
}  // namespace divvy

int main(int argc, char** argv) { return divvy::Main(argc, argv); }
