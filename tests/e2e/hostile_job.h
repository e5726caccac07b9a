// A job of real processes over TLS that counts while it is attacked, and the watch over it.
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

// One kind of hostility.
struct HostileAttack {
  std::string name;
  // At a scale of 1.
  int64_t tries;
  // blocks; called by the hostile side's thread
  std::function<void(HostileKind& kind, int64_t tries)> run;
  // 0: as many tries at every scale
  double grows = 1;
  // That gRPC takes for it and counts nowhere.
  int64_t burst_bytes = 0;
};

// 2 parameter servers and 2 workers that count; worker 2 of the cluster is not started: the hostile
// side plays it.
//
// The methods are for the thread that watches, except those below "for the hostile side", which are
// for its one thread, and which the watch uses only while that thread does nothing.
class HostileJob {
 public:
  static constexpr int kNumPs = 2, kNumWorkers = 3;
  static constexpr TaskId kLiar = {Role::kWorker, kNumWorkers - 1};
  static constexpr char kLiarsCertificate[] = "worker-2";
  // --rpc_memory_bytes: gRPC counts roughly, and takes half as much again
  static constexpr int64_t kRpcBytes = int64_t{64} << 20;
  // --commit_buffer_bytes, and --pull_buffer_bytes
  static constexpr int64_t kBudgetBytes = int64_t{64} << 20;

  struct Options {
    std::string program;    // counter_program
    std::string directory;  // an empty one, for certificates and checkpoints
    uint64_t seed = 1;
    std::vector<std::string> flags = {};  // of every task, besides
    bool has_liar = true;                 // else there are 2 workers, both honest
    bool proxied = false;                 // each task is reached through a FaultProxy
    // A task may end by an exit code, not by a signal: it is started again, and that is an outcome,
    // no fault.
    bool may_end = false;
  };
  explicit HostileJob(Options options);

  // Makes certificates, starts the tasks, and waits until the job counts and every task answers.
  absl::Status Begin();
  // Whether every task runs, answers and keeps to its memory, and the job goes on; what is wrong is
  // a fault of `kind`. A task that has ended is started again. An error: a task cannot be started.
  absl::Status LookAfter(HostileKind& kind, int64_t burst_bytes);
  // Lets the tasks run until `done` or for `timeout`. What ends meanwhile and may is started again.
  // An error: a task cannot be started.
  absl::Status RunUntil(const std::function<bool()>& done, absl::Duration timeout,
                        HostileKind& kind);
  // Kills the task if it runs, and starts it. An error: it cannot be started.
  absl::Status Replace(TaskId task);
  // Ends the job and waits for it. An error: it did not end, or its sum is not exact.
  absl::Status End(HostileResult& result);
  ProcessCluster& cluster() { return *cluster_; }

  // ---- for the hostile side ----

  std::vector<TaskId> tasks() const;  // those that are real
  TaskId Any() { return tasks()[random_.Below(tasks().size())]; }
  TaskId AnyPs() { return PsTask(static_cast<int>(random_.Below(kNumPs))); }
  std::string address(TaskId task) const { return cluster_->address(task); }
  std::string health_address(TaskId task) const {
    return health_ports_.at(ToString(task)).address();
  }
  pid_t pid(TaskId task) const { return cluster_->processes().pid(ToString(task)); }
  const HostileCertificates& certificates() const { return *certificates_; }
  Random& random() { return random_; }

  // `member`: whose certificate the calls show, "worker-2".
  RawCalls As(const std::string& member, TaskId task,
              absl::Duration deadline = absl::Seconds(20)) const;
  std::optional<TlsConnection> ConnectAs(absl::string_view member, TaskId task,
                                         absl::Duration timeout = absl::Milliseconds(500)) const;
  bool Answers(TaskId task);  // a call by an admin
  // Every task answers a call, at the latest after `patience`; else a hang.
  void AwaitAnswers(HostileKind& kind, absl::Duration patience);
  // The status that the task told last when it was asked by Answers.
  const v1::TaskStatus& status(TaskId task) { return status_[ToString(task)]; }

 private:
  absl::Status Start(TaskId task);
  absl::Status StartAgain(TaskId task, HostileKind& kind);
  absl::Status StartWhatEnded(HostileKind& kind);
  absl::Status StartAfterChief(HostileKind& kind);
  // Every task runs and answers; starts again what ends meanwhile. After kPatience it gives up:
  // AwaitAnswers then tells who does not answer.
  absl::Status AwaitAll(HostileKind& kind);
  // The job goes on: two more rounds. Starts again what ends meanwhile where it may.
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
  int jobs_ended_ = 0;  // each had a state directory of its own
};

// "worker-2", as `divvyctl certs` calls it.
std::string CertificateName(TaskId task);

// Random bytes; and bytes that are no protobuf message: the first is of a kind of field that there
// is not.
std::string RandomBytes(Random& random, size_t size);
std::string NoMessage(Random& random, size_t size);

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_HOSTILE_JOB_H_
