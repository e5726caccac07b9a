// How much processor time and memory its control groups leave this process.
#ifndef DIVVY_BASE_CPU_LIMIT_H_
#define DIVVY_BASE_CPU_LIMIT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace divvy {

// The content of a file; nullopt: it cannot be read.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;

// The processors that the tightest limit among a process' control groups is worth, rounded up, at
// least 1; nullopt: there is no limit. `groups`: what /proc/self/cgroup says. Reads cpu.max of
// control groups 2 below /sys/fs/cgroup, from the process' own group up, and cpu.cfs_quota_us of
// version 1. Pure but for `read`. Source: Linux, Documentation/admin-guide/cgroup-v2.rst and
// scheduler/sched-bwc.rst.
std::optional<int> CpuLimit(absl::string_view groups, const FileReader& read);

// The tightest limit of memory, in bytes, likewise: memory.max of version 2, memory.limit_in_bytes
// of version 1. nullopt: there is none.
std::optional<int64_t> MemoryLimit(absl::string_view groups, const FileReader& read);

}  // namespace divvy

#endif  // DIVVY_BASE_CPU_LIMIT_H_
