// A job of real processes over TLS that counts while it is attacked, and the checks on it.
#ifndef DIVVY_TESTS_E2E_HOSTILE_JOB_H_
#define DIVVY_TESTS_E2E_HOSTILE_JOB_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/random.h"
#include "base/testing/loopback_port.h"
#include "proto/divvy.pb.h"
#include "tests/e2e/hostile_peers.h"
#include "tests/e2e/hostile_result.h"
#include "tests/e2e/process_cluster.h"
#include "tests/e2e/raw_calls.h"
#include "tests/e2e/tls_client.h"

namespace divvy {

// One kind of attack.
struct HostileAttack {
  std::string name;
  // The number of tries at a scale of 1.
  int64_t tries;
  // Makes the tries. Blocks. Called by the hostile side's thread.
  std::function<void(HostileKind& kind, int64_t tries)> run;
  // How the number of tries grows with the scale; 0: it does not.
  double grows = 1;
  // The memory that gRPC takes for the attack without counting it.
  int64_t burst_bytes = 0;
};

// 2 parameter servers and 2 workers that count. Worker 2 of the cluster is not started: the hostile
// side plays it.
//
// The methods are for the thread that checks the job, except those below "for the hostile side".
// These are for the hostile side's one thread; the checking thread calls them only while that
// thread is idle.
class HostileJob {
 public:
  static constexpr int kNumPs = 2, kNumWorkers = 3;
  static constexpr TaskId kLiar = {Role::kWorker, kNumWorkers - 1};
  static constexpr char kLiarsCertificate[] = "worker-2";
  // --rpc_memory_bytes. gRPC counts roughly, and takes half as much again.
  static constexpr int64_t kRpcBytes = int64_t{64} << 20;
  // --commit_buffer_bytes and --pull_buffer_bytes.
  static constexpr int64_t kBudgetBytes = int64_t{64} << 20;

  struct Options {
    std::string program;    // counter_program
    std::string directory;  // an empty one, for certificates and checkpoints
    uint64_t seed = 1;
    std::vector<std::string> flags = {};  // further flags of every task
    bool has_liar = true;                 // otherwise there are 2 workers, both honest
    bool proxied = false;                 // a FaultProxy stands before each task
    // A task may end by an exit code (not by a signal). It is then restarted, and the exit counts
    // as an outcome, not as a fault.
    bool may_end = false;
  };
  explicit HostileJob(Options options);

  // Makes certificates, starts the tasks, and waits until the job counts and every task answers.
  absl::Status Begin();
  // Checks that every task runs, answers and stays within its memory, and that the job goes on.
  // Records what is wrong as a fault of `kind`. Restarts tasks that have ended. Returns an error if
  // a task cannot be started.
  absl::Status LookAfter(HostileKind& kind, int64_t burst_bytes);
  // Lets the tasks run until `done` or for `timeout`. Restarts tasks that may end and do. Returns
  // an error if a task cannot be started.
  absl::Status RunUntil(const std::function<bool()>& done, absl::Duration timeout,
                        HostileKind& kind);
  // Kills the task if it runs, and starts it. Returns an error if it cannot be started.
  absl::Status Replace(TaskId task);
  // Ends the job and waits for it. Returns an error if it did not end, or if its sum is not exact.
  absl::Status End(HostileResult& result);
  ProcessCluster& cluster() { return *cluster_; }

  // ---- for the hostile side ----

  std::vector<TaskId> tasks() const;  // the tasks that are processes
  TaskId Any() { return tasks()[random_.Below(tasks().size())]; }
  TaskId AnyPs() { return PsTask(static_cast<int>(random_.Below(kNumPs))); }
  std::string address(TaskId task) const { return cluster_->address(task); }
  std::string health_address(TaskId task) const {
    return health_ports_.at(ToString(task)).address();
  }
  pid_t pid(TaskId task) const { return cluster_->processes().pid(ToString(task)); }
  const HostileCertificates& certificates() const { return *certificates_; }
  Random& random() { return random_; }

  // Calls to `task` with the certificate of `member`, for example "worker-2".
  RawCalls As(const std::string& member, TaskId task,
              absl::Duration deadline = absl::Seconds(20)) const;
  std::optional<TlsConnection> ConnectAs(absl::string_view member, TaskId task,
                                         absl::Duration timeout = absl::Milliseconds(500)) const;
  bool Answers(TaskId task);  // to a call with an admin's certificate
  // Waits up to `patience` until every task answers a call. Records a hang for each that does not.
  void AwaitAnswers(HostileKind& kind, absl::Duration patience);
  // The status that the task gave at the latest call of Answers.
  const v1::TaskStatus& status(TaskId task) { return status_[ToString(task)]; }

 private:
  absl::Status Start(TaskId task);
  absl::Status StartAgain(TaskId task, HostileKind& kind);
  absl::Status StartWhatEnded(HostileKind& kind);
  absl::Status StartAfterChief(HostileKind& kind);
  // Waits until every task runs and answers; restarts tasks that end. Returns after kPatience in
  // any case: AwaitAnswers then records the tasks that do not answer.
  absl::Status AwaitAll(HostileKind& kind);
  // Waits for two more rounds of the job. Restarts tasks that may end and do.
  absl::Status AwaitRounds(HostileKind& kind);
  void NotePeak(TaskId task, HostileKind& kind);
  int64_t AllowedBytes(TaskId task);

  const Options options_;
  const std::string stop_file_;
  Random random_;
  std::unique_ptr<HostileCertificates> certificates_;
  std::unique_ptr<ProcessCluster> cluster_;
  std::map<std::string, LoopbackPort> health_ports_;
  std::map<std::string, int64_t> resting_bytes_, peaks_;
  std::map<std::string, v1::TaskStatus> status_;
  std::map<std::string, absl::Duration> ended_at_;
  int jobs_ended_ = 0;  // each has a state directory of its own
};

// The name that `divvyctl certs` gives to the task's files, for example "worker-2".
std::string CertificateName(TaskId task);

// RandomBytes: any bytes. NoMessage: bytes that no protobuf message can be, because the first one
// names a field type that does not exist.
std::string RandomBytes(Random& random, size_t size);
std::string NoMessage(Random& random, size_t size);

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_HOSTILE_JOB_H_
