// The model of a job from which `divvyctl gen` prints every kind of file: its roles, where their
// tasks are found, and the flags of each.
#ifndef DIVVY_TOOLS_CTL_GEN_JOB_H_
#define DIVVY_TOOLS_CTL_GEN_JOB_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "protocol/role.h"
#include "tools/ctl/gen/options.h"

namespace divvy::gen {

enum class Kind : uint8_t {
  kKubernetes,
  kTfJob,
  kJobSet,
  kSlurm,
  kSystemd,
  kPrometheus,
  kCompose,
};
constexpr Kind kKinds[] = {Kind::kKubernetes, Kind::kTfJob,      Kind::kJobSet, Kind::kSlurm,
                           Kind::kSystemd,    Kind::kPrometheus, Kind::kCompose};

// The ports of a task that has a network of its own, as containers have.
constexpr int kPort = 2222;
constexpr int kHttpPort = 9464;
constexpr int kHealthPort = 8080;
// A task drains within kDrainSeconds; whoever ends it waits for kGraceSeconds before it kills.
constexpr int kDrainSeconds = 25;
constexpr int kGraceSeconds = 60;
// How often a task is restarted before its supervisor gives up.
constexpr int kRestarts = 50;
// The user of images that deploy/container/build makes.
constexpr int kUser = 65532;
// In containers: the size of /dev/shm of a task with GPUs, and of a /tmp that is in memory. Both
// count in the memory of the container.
constexpr int64_t kSharedMemoryBytes = int64_t{1} << 30;
constexpr int64_t kTmpBytes = int64_t{64} << 20;
// The volumes of Compose's files beside that of checkpoints.
constexpr absl::string_view kStateVolume = "state", kPrometheusVolume = "prometheus";

// Whether Kubernetes, or a container engine, runs the tasks. Pure.
bool IsOnKubernetes(Kind kind);
bool HasContainers(Kind kind);
// Whether --checkpoints of Compose names a volume: it has no slash, and a directory of the host has
// one. Pure.
bool IsVolume(absl::string_view checkpoints);
// The codes with which another start would end in the same way: all from 1 to 127. Pure.
std::vector<int> PermanentCodes();

struct Task {
  Role role = Role::kChief;
  int index = 0;
  // "ps-0": the name of its certificate, and of its host where it has one of its own.
  std::string name() const;
};

// All tasks of one role.
struct RolePlan {
  Role role = Role::kChief;
  int count = 1;
  int cpus = 1;
  int gpus = 0;
  int64_t memory_bytes = 0;
  // The flags that are the same for all of them: budgets, and those of the command line.
  std::vector<std::string> flags;

  // An evaluator has no port, no certificate and no state.
  bool is_in_cluster() const { return role != Role::kEvaluator; }
  // A job has one task of these roles. Both run the program, and write event files.
  bool is_single() const { return role == Role::kChief || role == Role::kEvaluator; }
  std::string name() const { return std::string(RoleName(role)); }
};

struct Job {
  // Where the tasks run. For Prometheus' file the kind of --of.
  Kind kind = Kind::kKubernetes;
  std::string name;
  // The path of the program where it runs.
  std::string program;
  // The directory that the chief and every ps see. Empty: there are no checkpoints.
  std::string checkpoint_dir;
  // The command line has --checkpoint_dir, so RolePlan::flags has it.
  bool says_checkpoint_dir = false;
  // --tensorboard_dir of the command line. In containers it is below checkpoint_dir.
  std::string tensorboard_dir;
  // --drain_timeout, rounded up.
  int drain_seconds = kDrainSeconds;
  // Chief, ps, worker, and perhaps evaluator.
  std::vector<RolePlan> roles;
  // Every field that the kind uses has a value, unless nothing is a meaning of its own.
  GenOptions options;
};

// Whether tasks of the role need the directory of checkpoints, and may write to it. An evaluator
// reads it, and writes only its event files.
bool SeesCheckpoints(const Job& job, const RolePlan& role);
bool WritesCheckpoints(const Job& job, const RolePlan& role);

// All tasks, role by role. Their order gives the ports of tasks that share a host.
std::vector<Task> TasksOf(const Job& job);

// The host at which others find the task. REQUIRES: not Slurm, whose script learns it on the nodes.
std::string HostOf(const Job& job, const Task& task);
// kPort or kHttpPort, or a port of the task's own where tasks may share a host.
int PortOf(const Job& job, const Task& task, int first);

// TF_CONFIG of a task. Without an index, only the role is named (for --task_index). The evaluator's
// has no cluster. REQUIRES: as HostOf.
std::string TfConfigOf(const Job& job, Role role, std::optional<int> index);

// What a task is told about the place where it runs. An empty field gives no flag.
struct Place {
  std::string bind_address, http_address, health_address;
  std::string tls_cert, tls_key, tls_ca;
  std::string state_dir;
  // With it, the flags say the role too.
  std::string task_index;
};
// The flags for that, which come before RolePlan::flags.
std::vector<std::string> PlaceFlags(const Job& job, const RolePlan& role, const Place& place);

}  // namespace divvy::gen

#endif  // DIVVY_TOOLS_CTL_GEN_JOB_H_
