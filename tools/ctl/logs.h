// `divvyctl logs` shows the last entries of the tasks' logs.
#ifndef DIVVY_TOOLS_CTL_LOGS_H_
#define DIVVY_TOOLS_CTL_LOGS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/divvy.pb.h"
#include "tools/ctl/status.h"

namespace divvy {

struct LogsOptions {
  // The tasks to ask, and whether as JSON.
  StatusOptions tasks;
  // Of each task; 0: all that it has kept.
  int entries = 50;
  // "ps 0"; empty: all tasks.
  std::string task;
};

// Asks all tasks at once. Prints their entries to standard output, ordered by time. To standard
// error: the tasks that did not answer, and how many earlier entries a task has not kept, if all
// that it has kept are printed. Blocks at most for twice the timeout. Returns 0 if all tasks that
// are wanted have answered, 1 if not, and kUsage if no task has that name. If one task is wanted
// and it has answered, those that did not answer are not mentioned.
int ShowLogs(const LogsOptions& options);

// The parts of it, which are pure.

// "ps 0" of {"ps", "0"}, {"ps-0"}, {"ps:0"} or {"ps0"}; "chief" of {"chief"}. InvalidArgument: it
// names no task.
absl::StatusOr<std::string> TaskOfWords(const std::vector<std::string>& words);

// An entry and the name of its task.
using TaskEntry = std::pair<std::string, v1::GetLogsReply::Entry>;
// By time, as the clocks of the tasks have it. Entries of one task stay in their order, also if its
// clock was set back: they then follow the entry before that.
std::vector<TaskEntry> MergedByTime(std::vector<TaskEntry> entries);
// "worker 0 | W1121 04:15:02.120033 suspicion.cc:71] text", with a line for each line of the text.
// No control character of the text is left. `width`: of the names.
std::string LogLines(const TaskEntry& entry, int width, absl::TimeZone zone);
// One JSON object on a line, with the names that --log_format=json has.
std::string LogJson(const TaskEntry& entry);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_LOGS_H_
