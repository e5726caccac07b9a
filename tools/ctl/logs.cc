#include "tools/ctl/logs.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/exit_codes.h"
#include "base/terminal.h"
#include "nlohmann/json.hpp"
#include "tools/ctl/survey.h"
#include "tools/ctl/task_text.h"
#include "wire/text.h"

namespace divvy {
namespace {

using StatusSurvey = Survey<v1::GetStatusRequest, v1::TaskStatus>;
using LogsSurvey = Survey<v1::GetLogsRequest, v1::GetLogsReply>;

struct Unreachable {
  // The name is empty if it is not known.
  std::string name, address;
  absl::Status why;
};
// The tasks to ask: address -> name; and those that did not say their names.
struct Asked {
  std::map<std::string, std::string> names;
  std::vector<Unreachable> unreachable;
};

void Say(const Unreachable& task) {
  WriteStandardError(absl::StrCat("divvyctl logs: ", task.name.empty() ? task.address : task.name,
                                  task.name.empty() ? "" : absl::StrCat(" at ", task.address),
                                  " does not answer: ", wire::Escaped(task.why.message()), "\n"));
}

std::string KnownName(const StatusOptions& tasks, const std::string& address) {
  const auto found = tasks.names.find(address);
  return found == tasks.names.end() ? "" : found->second;
}

// A task says its name itself, because --addr does not.
Asked FindTasks(const LogsOptions& options) {
  Asked asked;
  StatusSurvey survey(options.tasks.addresses, options.tasks.credentials, options.tasks.timeout);
  for (const auto& answer : survey.Run({}, &v1::Admin::StubInterface::async_interface::GetStatus)) {
    const std::string known = KnownName(options.tasks, answer->address);
    if (answer->status.ok()) {
      asked.names[answer->address] = TaskName(answer->reply);
    } else if (options.task.empty() || known.empty() || known == options.task) {
      asked.unreachable.push_back({known, answer->address, answer->status});
    }
  }
  return asked;
}

// Leaves only the task of that name. An unreachable task may be the one that is wanted, unless that
// one has answered. False: there is none.
bool LeaveOnly(const std::string& task, Asked& asked) {
  std::vector<std::string> names;
  for (const auto& [address, name] : asked.names) names.push_back(name);
  for (auto each = asked.names.begin(); each != asked.names.end();)
    each = each->second == task ? std::next(each) : asked.names.erase(each);
  if (!asked.names.empty()) asked.unreachable.clear();
  if (!asked.names.empty() || !asked.unreachable.empty()) return true;
  std::sort(names.begin(), names.end());
  WriteStandardError(absl::StrCat("divvyctl logs: there is no ", wire::Escaped(task),
                                  "; the tasks are ", absl::StrJoin(names, ", "), "\n"));
  return false;
}

// If fewer entries came than were asked for, they are all that the task has kept.
void SayWhatIsNotKept(const std::string& name, int wanted, const v1::GetLogsReply& reply) {
  const int came = reply.entries_size();
  if (wanted > 0 && came >= wanted) return;
  if (reply.written() <= came) return;
  const int64_t lost = reply.written() - came;
  WriteStandardError(absl::StrCat("divvyctl logs: ", wire::Escaped(name), " has not kept ", lost,
                                  lost == 1 ? " earlier entry\n" : " earlier entries\n"));
}

std::vector<TaskEntry> AskFor(const LogsOptions& options, Asked& asked) {
  std::vector<std::string> addresses;
  for (const auto& [address, name] : asked.names) addresses.push_back(address);
  LogsSurvey survey(addresses, options.tasks.credentials, options.tasks.timeout);
  v1::GetLogsRequest request;
  request.set_entries(options.entries);
  std::vector<TaskEntry> entries;
  for (const auto& answer :
       survey.Run(request, &v1::Admin::StubInterface::async_interface::GetLogs)) {
    const std::string& name = asked.names[answer->address];
    if (!answer->status.ok()) {
      asked.unreachable.push_back({name, answer->address, answer->status});
      continue;
    }
    SayWhatIsNotKept(name, options.entries, answer->reply);
    for (const v1::GetLogsReply::Entry& entry : answer->reply.entries())
      entries.emplace_back(name, entry);
  }
  return entries;
}

const char* SeverityName(v1::GetLogsReply::Severity severity) {
  switch (severity) {
    case v1::GetLogsReply::INFO: return "INFO";
    case v1::GetLogsReply::WARNING: return "WARNING";
    default: return "ERROR";
  }
}

}  // namespace

absl::StatusOr<std::string> TaskOfWords(const std::vector<std::string>& words) {
  const std::string text = absl::StrJoin(words, " ");
  if (text == "chief" || text == "coordinator") return "chief";
  for (const absl::string_view role : {"ps", "worker"}) {
    absl::string_view rest = text;
    if (!absl::ConsumePrefix(&rest, role)) continue;
    if (!rest.empty() && absl::StrContains(" -:", rest.substr(0, 1))) rest.remove_prefix(1);
    uint32_t index = 0;
    if (absl::SimpleAtoi(rest, &index)) return absl::StrCat(role, " ", index);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" names no task: wanted chief, ps-N or worker-N"));
}

// An entry counts as no older than those that its task wrote before it.
std::vector<TaskEntry> MergedByTime(std::vector<TaskEntry> entries) {
  std::map<std::string, int64_t> newest;
  std::vector<std::pair<int64_t, size_t>> order;
  for (const auto& [task, entry] : entries) {
    const auto known = newest.emplace(task, entry.time_ns()).first;
    known->second = std::max(known->second, entry.time_ns());
    order.emplace_back(known->second, order.size());
  }
  std::sort(order.begin(), order.end());
  std::vector<TaskEntry> merged;
  for (const auto& [time, index] : order) merged.push_back(std::move(entries[index]));
  return merged;
}

std::string LogLines(const TaskEntry& entry, int width, absl::TimeZone zone) {
  const auto& [task, logged] = entry;
  const std::string head = absl::StrFormat("%-*s | ", width, wire::Escaped(task));
  const std::string when =
      absl::FormatTime("%m%d %H:%M:%E6S", absl::FromUnixNanos(logged.time_ns()), zone);
  std::string lines;
  for (const absl::string_view line : absl::StrSplit(logged.text(), '\n')) {
    const std::string text = wire::Escaped(line);
    if (lines.empty())
      absl::StrAppendFormat(&lines, "%s%c%s %s:%d] %s\n", head, SeverityName(logged.severity())[0],
                            when, wire::Escaped(logged.file()), logged.line(), text);
    else
      absl::StrAppend(&lines, head, "    ", text, "\n");
  }
  return lines;
}

std::string LogJson(const TaskEntry& entry) {
  const v1::GetLogsReply::Entry& logged = entry.second;
  const nlohmann::ordered_json line = {
      {"task", entry.first},
      {"ts", absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::FromUnixNanos(logged.time_ns()),
                              absl::UTCTimeZone())},
      {"sev", SeverityName(logged.severity())},
      {"file", logged.file()},
      {"line", logged.line()},
      {"msg", logged.text()}};
  // ASCII only: control characters of the C1 range, which a terminal may obey, are escaped too.
  return line.dump(-1, ' ', /*ensure_ascii=*/true,
                   nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

int ShowLogs(const LogsOptions& options) {
  Asked asked = FindTasks(options);
  if (!options.task.empty() && !LeaveOnly(options.task, asked)) return exit_codes::kUsage;
  const std::vector<TaskEntry> entries = MergedByTime(AskFor(options, asked));
  for (const Unreachable& task : asked.unreachable) Say(task);
  size_t width = 0;
  for (const auto& [address, name] : asked.names) width = std::max(width, name.size());
  for (const TaskEntry& entry : entries) {
    const std::string text = options.tasks.json
                                 ? LogJson(entry)
                                 : LogLines(entry, static_cast<int>(width), absl::LocalTimeZone());
    std::fputs(text.c_str(), stdout);
  }
  return asked.unreachable.empty() ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace divvy
