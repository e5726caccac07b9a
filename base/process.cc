#include "base/process.h"

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "absl/time/clock.h"
#include "base/cpu_limit.h"

namespace divvy {

namespace {

// How often CancelExit was called.
std::atomic<int> exits_cancelled{0};

// For files of /proc and /sys, whose reported size is 0.
std::optional<std::string> ReadSmallFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

int NumCores() {
  static const std::optional<int> limit =
      CpuLimit(ReadSmallFile("/proc/self/cgroup").value_or(""), ReadSmallFile);
  cpu_set_t set;
  CPU_ZERO(&set);
  const int cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
  return std::min(cores, limit.value_or(cores));
}

OpenFileLimit RaiseOpenFileLimit() {
  // A bound, because some child processes close every possible descriptor one by one.
  constexpr rlim_t kMost = 1 << 20;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  OpenFileLimit found{static_cast<int64_t>(std::min(limit.rlim_cur, kMost)), 0};
  const rlim_t wanted = std::min(limit.rlim_max, kMost);
  rlimit raised = limit;
  raised.rlim_cur = std::max(wanted, limit.rlim_cur);
  found.now = setrlimit(RLIMIT_NOFILE, &raised) == 0
                  ? static_cast<int64_t>(std::min(raised.rlim_cur, kMost))
                  : found.before;
  return found;
}

int64_t MostMemoryBytes() {
  static const std::optional<int64_t> limit =
      MemoryLimit(ReadSmallFile("/proc/self/cgroup").value_or(""), ReadSmallFile);
  const int64_t all = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::min(all, limit.value_or(all));
}

void SurviveLargeFiles() { signal(SIGXFSZ, SIG_IGN); }

void ExitAfter(absl::Duration delay, int exit_code) {
  std::thread([delay, exit_code, cancelled = exits_cancelled.load()] {
    absl::SleepFor(delay);
    if (exits_cancelled == cancelled) std::_Exit(exit_code);
  }).detach();
}

void CancelExit() { ++exits_cancelled; }

int64_t PeakMemoryBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;  // Linux counts in KiB
}

int ProcessId() { return getpid(); }

std::string ExecutablePath() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  return length > 0 ? std::string(path, static_cast<size_t>(length)) : "";
}

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name[0] == '\0' ? "localhost" : name;
}

}  // namespace divvy
