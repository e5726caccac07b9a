// The limits on processor time and memory that control groups set for this process.
#ifndef DIVVY_BASE_CPU_LIMIT_H_
#define DIVVY_BASE_CPU_LIMIT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace divvy {

// Returns the content of a file, or nullopt if it cannot be read.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;

// The tightest processor limit among the control groups of a process, as a number of processors:
// rounded up, at least 1. nullopt: there is no limit. `groups` is the content of /proc/self/cgroup.
// Reads cpu.max of control groups version 2 below /sys/fs/cgroup, for the process' own group and
// every group above it, and cpu.cfs_quota_us of version 1. Pure except for `read`. Source: Linux,
// Documentation/admin-guide/cgroup-v2.rst and scheduler/sched-bwc.rst.
std::optional<int> CpuLimit(absl::string_view groups, const FileReader& read);

// As CpuLimit, for memory: the tightest limit in bytes. Reads memory.max of version 2 and
// memory.limit_in_bytes of version 1.
std::optional<int64_t> MemoryLimit(absl::string_view groups, const FileReader& read);

}  // namespace divvy

#endif  // DIVVY_BASE_CPU_LIMIT_H_
