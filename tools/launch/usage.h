// The resources that the processes of a task have used.
#ifndef DIVVY_TOOLS_LAUNCH_USAGE_H_
#define DIVVY_TOOLS_LAUNCH_USAGE_H_

#include <sys/resource.h>

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace divvy {

// A value.
struct Usage {
  absl::Duration processor;  // user and system time of all threads
  int64_t peak_bytes = 0;    // the most memory held resident at once

  // From the operating system's record of one process that has ended.
  static Usage Of(const rusage& usage);
  // Adds another life of the same task: times add up, and the greater peak stays.
  void Add(const Usage& other);
  // "12.31 s of CPU time, 81.2 MB at most"; a MB is 10^6 bytes.
  std::string ToString() const;
};

}  // namespace divvy

#endif  // DIVVY_TOOLS_LAUNCH_USAGE_H_
