// What `divvyctl doctor` has seen. Plain values, so that each check is a pure function of them.
#ifndef DIVVY_TOOLS_CTL_DOCTOR_FACTS_H_
#define DIVVY_TOOLS_CTL_DOCTOR_FACTS_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/divvy.pb.h"

namespace divvy::doctor {

// What TF_CONFIG, or what stands in its place, says.
struct ConfigFacts {
  std::string source;
  // One sentence each.
  std::vector<std::string> problems;
};

// The answer of one task.
struct TaskFacts {
  std::string address;
  // "ps 0", as TF_CONFIG has it; "?": not known.
  std::string name;
  // Not OK: why it did not answer.
  absl::Status status;
  v1::TaskStatus task;
  // How far its clock is ahead of this machine's, at least. Absent: an older build.
  std::optional<absl::Duration> clock_ahead;
};

// Whether steps went on while somebody watched one life of the coordinator.
struct ProgressFacts {
  absl::Duration watched;
  int64_t finished_steps = 0;
};

// --checkpoint_dir.
struct DirectoryFacts {
  std::string path;
  // Not OK: there is no such directory, or it cannot be read.
  absl::Status state;
  // Not OK: a file could not be written there.
  absl::Status writable;
  uint64_t free_bytes = 0, total_bytes = 0;
  // How far the clock that dates its files is ahead of this machine's.
  absl::Duration clock_ahead;

  struct Checkpoint {
    std::string name;
    // Not OK: its index cannot be read, or a file is missing, too short or too long.
    absl::Status state;
    // Files that its index names and that are not in the directory.
    std::vector<std::string> missing_files;
    uint64_t bytes = 0;
    absl::Duration age;
  };
  // Newest first. Only the first has more than its name.
  std::vector<Checkpoint> checkpoints;
};

// --tls_cert, --tls_key, --tls_ca.
struct CertificateFacts {
  std::string cert, key;
  // Each problem of the three files. One sentence each.
  std::vector<std::string> problems;
  // Absent: the certificate cannot be read.
  std::optional<absl::Time> end;
  // Absent: the key cannot be seen.
  std::optional<mode_t> key_mode;
  // The key's owner is the user of this process, and is not root.
  bool key_is_own = false;
};

// This machine, within the limits of this process.
struct MachineFacts {
  int cores = 1;
  // Those of TF_CONFIG on this task's host.
  int workers = 0;
  bool has_gpus = false;
  uint64_t shm_bytes = 0;  // of /dev/shm; 0: there is none
};

struct Facts {
  absl::Time now;
  std::optional<ConfigFacts> config;
  std::vector<TaskFacts> tasks;
  // Absent: no coordinator answered, or it has no step to run.
  std::optional<ProgressFacts> progress;
  std::optional<DirectoryFacts> checkpoints;
  std::optional<CertificateFacts> certificates;
  MachineFacts machine;
  // --blas_threads of a worker; 0: not said.
  int blas_threads = 0;

  // Null: none answered.
  const TaskFacts* Chief() const {
    for (const TaskFacts& task : tasks) {
      if (task.status.ok() && task.task.has_coordinator()) return &task;
    }
    return nullptr;
  }
};

}  // namespace divvy::doctor

#endif  // DIVVY_TOOLS_CTL_DOCTOR_FACTS_H_
