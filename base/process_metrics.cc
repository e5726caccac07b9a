#include "base/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace divvy {
namespace {

// Fields of /proc/self/stat as proc(5) numbers them. The second is the program's name in brackets,
// which may have spaces.
constexpr size_t kUserTicks = 14, kSystemTicks = 15, kThreads = 20, kStartTicks = 22,
                 kVirtualBytes = 23, kResidentPages = 24;

class ProcessStat {
 public:
  ProcessStat() {
    std::ifstream file("/proc/self/stat");
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const size_t name_end = text.rfind(") ");
    if (name_end != std::string::npos) fields_ = absl::StrSplit(text.substr(name_end + 2), ' ');
  }
  std::optional<double> field(size_t number) const {
    constexpr size_t kFirst = 3;
    double value = 0;
    if (number - kFirst >= fields_.size() || !absl::SimpleAtod(fields_[number - kFirst], &value))
      return std::nullopt;
    return value;
  }

 private:
  std::vector<std::string> fields_;
};

// Seconds from 1970 until the machine started.
std::optional<double> BootSeconds() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    double seconds = 0;
    if (absl::StartsWith(line, "btime ") && absl::SimpleAtod(line.substr(6), &seconds))
      return seconds;
  }
  return std::nullopt;
}

std::optional<double> OpenFiles() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (folder == nullptr) return std::nullopt;
  double files = 0;
  while (const dirent* const entry = readdir(folder.get())) files += entry->d_name[0] != '.';
  return files - 1;  // without the folder itself
}

double LimitOf(int resource) {
  rlimit limit{};
  const bool is_limited =
      getrlimit(static_cast<__rlimit_resource>(resource), &limit) == 0 &&
      limit.rlim_cur != RLIM_INFINITY;
  return is_limited ? static_cast<double>(limit.rlim_cur) : std::numeric_limits<double>::infinity();
}

}  // namespace

void AddProcessMetrics(MetricsRegistry& registry) {
  const auto add = [&registry](const char* name, const char* help, std::optional<double> value) {
    if (value) registry.GetGauge(name, help).Set(*value);
  };
  const ProcessStat stat;
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  const auto user = stat.field(kUserTicks), system = stat.field(kSystemTicks);
  if (user && system)
    registry
        .GetSecondsCounter("process_cpu_seconds_total", "CPU time of the process, user and system.")
        .Set((*user + *system) / ticks);
  const auto start = stat.field(kStartTicks), boot = BootSeconds();
  if (start && boot)
    add("process_start_time_seconds", "When the process started, in seconds from 1970.",
        *boot + *start / ticks);
  const auto pages = stat.field(kResidentPages);
  if (pages)
    add("process_resident_memory_bytes", "Memory of the process that is in RAM.",
        *pages * static_cast<double>(sysconf(_SC_PAGESIZE)));
  add("process_virtual_memory_bytes", "Addresses that the process has mapped.",
      stat.field(kVirtualBytes));
  add("process_virtual_memory_max_bytes", "The most that it may map.", LimitOf(RLIMIT_AS));
  add("process_threads", "Threads of the process.", stat.field(kThreads));
  add("process_open_fds", "Open files and connections.", OpenFiles());
  add("process_max_fds", "The most that may be open.", LimitOf(RLIMIT_NOFILE));
}

}  // namespace divvy
