#include "tools/launch/testing/watched_processes.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "tools/launch/poll_until.h"

namespace divvy {
namespace {

constexpr size_t kShownBytes = 2000;  // of each process' output, in an error

absl::Duration Now() { return Clock::Real().Elapsed(); }

std::string LineAround(const std::string& text, size_t at) {
  const size_t begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;  // npos + 1 is 0
  return text.substr(begin, text.find('\n', at) - begin);
}

}  // namespace

absl::Status WatchedProcesses::Start(const std::string& name, const ChildOptions& options) {
  DIVVY_CHECK(!running(name));
  ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> child, ChildProcess::Start(options));
  Process& process = processes_[name];
  process.child = std::move(child);
  process.status.reset();
  return absl::OkStatus();
}

void WatchedProcesses::Signal(const std::string& name, int signal) {
  if (running(name)) processes_[name].child->Signal(signal);
}

bool WatchedProcesses::running(const std::string& name) const {
  const auto process = processes_.find(name);
  return process != processes_.end() && process->second.child != nullptr;
}

pid_t WatchedProcesses::pid(const std::string& name) const {
  DIVVY_CHECK(running(name));
  return processes_.at(name).child->pid();
}

absl::StatusOr<std::string> WatchedProcesses::WaitForText(const std::string& name,
                                                          absl::string_view text,
                                                          absl::Duration timeout) {
  Process& process = processes_[name];
  size_t at = std::string::npos;
  const auto found = [&] {
    at = process.output.find(std::string(text), process.found);
    // Only once the whole line is there.
    return at != std::string::npos && process.output.find('\n', at) != std::string::npos;
  };
  WaitUntil([&] { return found() || process.child == nullptr; }, timeout);
  if (at == std::string::npos) {
    const std::string what = absl::StrCat(name, " to print \"", text, "\"");
    return process.child != nullptr ? InVain(what, timeout)
                                    : absl::FailedPreconditionError(absl::StrCat(
                                          "no longer runs, waited for ", what, LastLines()));
  }
  process.found = at + text.size();
  return LineAround(process.output, at);
}

absl::StatusOr<ExitStatus> WatchedProcesses::WaitForExit(const std::string& name,
                                                         absl::Duration timeout) {
  Process& process = processes_[name];
  if (!WaitUntil([&] { return process.child == nullptr; }, timeout))
    return InVain(absl::StrCat(name, " to end"), timeout);
  if (!process.status.has_value())
    return absl::FailedPreconditionError(absl::StrCat(name, " was never started"));
  return *process.status;
}

bool WatchedProcesses::WaitUntil(const std::function<bool()>& done, absl::Duration timeout) {
  const absl::Duration deadline = Now() + timeout;
  Turn(absl::ZeroDuration());  // handles what has happened already
  while (!done()) {
    if (Now() >= deadline) return false;
    Turn(deadline);
  }
  return true;
}

const std::string& WatchedProcesses::output(const std::string& name) const {
  static const std::string* const none = new std::string;
  const auto process = processes_.find(name);
  return process == processes_.end() ? *none : process->second.output;
}

std::string WatchedProcesses::LastLines() const {
  std::string text;
  for (const auto& [name, process] : processes_) {
    const std::string state = process.child != nullptr     ? "runs"
                              : process.status.has_value() ? process.status->ToString()
                                                           : "was not started";
    const size_t begin = process.output.size() - std::min(process.output.size(), kShownBytes);
    absl::StrAppend(&text, "\n---- ", name, " ", state, ":\n", process.output.substr(begin));
  }
  return text;
}

void WatchedProcesses::Turn(absl::Duration deadline) {
  std::vector<pollfd> events;
  for (const auto& [name, process] : processes_) {
    events.push_back({process.child == nullptr ? -1 : process.child->output(), POLLIN, 0});
    events.push_back({process.child == nullptr ? -1 : process.child->exit_event(), POLLIN, 0});
  }
  PollUntil(events, deadline);
  size_t i = 0;
  for (auto& [name, process] : processes_) {
    if (events[i++].revents != 0) process.child->Read(process.output);
    if (events[i++].revents == 0) continue;
    process.status = process.child->Reap();
    if (!process.status.has_value()) continue;
    process.child->Read(process.output);
    process.child = nullptr;
  }
}

absl::Status WatchedProcesses::InVain(absl::string_view what, absl::Duration timeout) const {
  return absl::DeadlineExceededError(
      absl::StrCat("waited ", absl::FormatDuration(timeout), " for ", what, LastLines()));
}

}  // namespace divvy
