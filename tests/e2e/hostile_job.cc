#include "tests/e2e/hostile_job.h"

#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/file_system.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "tests/e2e/hostile_methods.h"

namespace divvy {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr absl::Duration kUntilTheJobEnds = absl::Seconds(3),
                         kUntilAllHaveEnded = absl::Seconds(10);
constexpr int64_t kBeyondBudgets = int64_t{64} << 20;

// A value of /proc/PID/status, which has it in KiB; in bytes.
int64_t MemoryOf(pid_t pid, const std::string& what) {
  const std::string status =
      FileSystem::Real().ReadFile(absl::StrCat("/proc/", pid, "/status")).value_or("");
  const size_t at = status.find(what);
  int64_t kib = 0;
  if (at == std::string::npos ||
      !absl::SimpleAtoi(status.substr(at + what.size(), status.find("kB", at) - at - what.size()),
                        &kib))
    return 0;
  return kib * 1024;
}

}  // namespace

std::string CertificateName(TaskId task) {
  return absl::StrCat(RoleName(task.role), "-", task.index);
}

std::string RandomBytes(Random& random, size_t size) {
  std::string bytes(size, 0);
  for (char& byte : bytes) byte = static_cast<char>(random.Next());
  return bytes;
}

std::string NoMessage(Random& random, size_t size) { return "\x0f" + RandomBytes(random, size); }

HostileJob::HostileJob(Options options)
    : options_(std::move(options)),
      stop_file_(options_.directory + "/stop"),
      random_(options_.seed) {}

// ---- the job ------------------------------------------------------------------------------------

absl::Status HostileJob::Begin() {
  RaiseOpenFileLimit();
  signal(SIGPIPE, SIG_IGN);  // OpenSSL may write to a closed connection
  umask(077);                // for the files with keys
  ASSIGN_OR_RETURN(
      HostileCertificates certificates,
      HostileCertificates::Make(options_.directory + "/certificates", kNumPs, kNumWorkers));
  certificates_ = std::make_unique<HostileCertificates>(std::move(certificates));
  ProcessClusterOptions cluster;
  cluster.program = options_.program;
  cluster.num_ps = kNumPs;
  cluster.num_workers = options_.has_liar ? kNumWorkers : kNumWorkers - 1;
  cluster.flags = {"--stop_file=" + stop_file_,
                   "--round=50",
                   "--elements=64",
                   "--counters=4",
                   "--descents=2",
                   absl::StrCat("--rpc_memory_bytes=", kRpcBytes),
                   "--max_recoveries=1000000"};
  cluster.flags.insert(cluster.flags.end(), options_.flags.begin(), options_.flags.end());
  cluster.proxied = options_.proxied;
  ASSIGN_OR_RETURN(cluster_, ProcessCluster::Make(std::move(cluster)));
  for (const TaskId& task : tasks()) {
    ASSIGN_OR_RETURN(LoopbackPort port, LoopbackPort::Reserve());
    health_ports_.emplace(ToString(task), std::move(port));
    RETURN_IF_ERROR(Start(task));
  }
  RETURN_IF_ERROR(cluster_->WaitForText(kChiefTask, "counting", kPatience).status());
  HostileKind none;
  RETURN_IF_ERROR(AwaitRounds(none));
  for (const TaskId& task : tasks()) {
    if (!Answers(task))
      return absl::InternalError(absl::StrCat(ToString(task), " does not answer at the beginning"));
    resting_bytes_[ToString(task)] = MemoryOf(pid(task), "VmRSS:");
  }
  return absl::OkStatus();
}

absl::Status HostileJob::Start(TaskId task) {
  LifeOptions life;
  life.flags = certificates_->FlagsOf(CertificateName(task));
  life.flags.push_back("--health_address=" + health_address(task));
  // After a job has ended with an error, its state directory cannot be used again. The next job has
  // another one, and continues from the checkpoints.
  const std::string state = absl::StrCat(options_.directory, "/state-", jobs_ended_),
                    checkpoints = "--checkpoint_dir=" + options_.directory + "/checkpoints";
  if (task.role == Role::kChief)
    life.flags.insert(life.flags.end(),
                      {"--state_dir=" + state, checkpoints, "--checkpoint_every=1s"});
  if (task.role == Role::kPs) {
    life.flags.insert(life.flags.end(),
                      {checkpoints, absl::StrCat("--commit_buffer_bytes=", kBudgetBytes),
                       absl::StrCat("--pull_buffer_bytes=", kBudgetBytes)});
  }
  return cluster_->Start(task, life);
}

std::vector<TaskId> HostileJob::tasks() const {
  std::vector<TaskId> tasks = cluster_->tasks();
  tasks.erase(std::remove(tasks.begin(), tasks.end(), kLiar), tasks.end());
  return tasks;
}

absl::Status HostileJob::End(HostileResult& result) {
  for (const TaskId& task : tasks())
    result.memory.push_back({ToString(task), peaks_[ToString(task)], AllowedBytes(task)});
  RETURN_IF_ERROR(FileSystem::Real().ReplaceFile(stop_file_, ""));
  ASSIGN_OR_RETURN(const std::string line,
                   cluster_->WaitForText(kChiefTask, "counter = ", kPatience));
  absl::SimpleAtoi(line.substr(line.rfind(' ') + 1), &result.steps);
  ASSIGN_OR_RETURN(const ExitStatus status, cluster_->WaitForExit(kChiefTask, kPatience));
  if (!status.ok())
    return absl::InternalError(
        absl::StrCat("the chief ", status.ToString(), cluster_->processes().LastLines()));
  return cluster_->WaitForAll(kPatience);
}

// ---- the watch ----------------------------------------------------------------------------------

absl::Status HostileJob::LookAfter(HostileKind& kind, int64_t burst_bytes) {
  kind.burst_bytes = burst_bytes;
  for (const TaskId& task : tasks()) {
    if (cluster_->running(task)) NotePeak(task, kind);
    if (!cluster_->running(task) && !options_.may_end) RETURN_IF_ERROR(StartAgain(task, kind));
  }
  const absl::Status goes_on = AwaitRounds(kind);
  if (!goes_on.ok())
    kind.Hang(absl::StrCat("the job does not go on: ", goes_on.message(),
                           cluster_->processes().LastLines()));
  if (options_.may_end) RETURN_IF_ERROR(AwaitAll(kind));
  AwaitAnswers(kind, absl::ZeroDuration());
  return absl::OkStatus();
}

// A job may go on without a task that has ended, and a task that was just started may not answer
// yet.
absl::Status HostileJob::AwaitAll(HostileKind& kind) {
  const auto all_answer = [this] {
    const std::vector<TaskId> those = tasks();
    return std::all_of(those.begin(), those.end(),
                       [this](TaskId task) { return cluster_->running(task) && Answers(task); });
  };
  const absl::Duration until = Clock::Real().Elapsed() + kPatience;
  while (!all_answer() && Clock::Real().Elapsed() < until) {
    cluster_->processes().RunFor(absl::Milliseconds(50));
    RETURN_IF_ERROR(StartWhatEnded(kind));
  }
  return absl::OkStatus();
}

absl::Status HostileJob::StartAgain(TaskId task, HostileKind& kind) {
  ASSIGN_OR_RETURN(const ExitStatus status, cluster_->WaitForExit(task, kPatience));
  if (options_.may_end && status.signal == 0) {
    ++kind.outcomes[absl::StrCat(ToString(task), " ", status.ToString())];
  } else {
    kind.Crash(
        absl::StrCat(ToString(task), " ", status.ToString(), cluster_->processes().LastLines()));
  }
  ended_at_.erase(ToString(task));
  return Start(task);
}

absl::Status HostileJob::Replace(TaskId task) {
  if (cluster_->running(task)) RETURN_IF_ERROR(cluster_->Kill(task).status());
  return Start(task);
}

absl::Status HostileJob::AwaitRounds(HostileKind& kind) {
  const auto round = [this](absl::Duration timeout) {
    return cluster_->WaitForText(kChiefTask, "counted ", timeout).status();
  };
  while (round(absl::ZeroDuration()).ok()) {  // skips the rounds so far
  }
  const absl::Duration until = Clock::Real().Elapsed() + kPatience;
  absl::Status counted;
  for (int rounds = 0; rounds < 2;) {
    counted = round(options_.may_end ? absl::Milliseconds(200) : kPatience);
    if (counted.ok()) ++rounds;
    if (counted.ok()) continue;
    if (!options_.may_end || Clock::Real().Elapsed() > until) return counted;
    RETURN_IF_ERROR(StartWhatEnded(kind));
  }
  return absl::OkStatus();
}

absl::Status HostileJob::RunUntil(const std::function<bool()>& done, absl::Duration timeout,
                                  HostileKind& kind) {
  const absl::Duration until = Clock::Real().Elapsed() + timeout;
  while (!done() && Clock::Real().Elapsed() < until) {
    cluster_->processes().WaitUntil(done, absl::Milliseconds(50));
    if (options_.may_end) RETURN_IF_ERROR(StartWhatEnded(kind));
  }
  return absl::OkStatus();
}

// A task that has ended alone is restarted a little later. The coordinator may be ending the job,
// and may have told this task first.
absl::Status HostileJob::StartWhatEnded(HostileKind& kind) {
  if (!cluster_->running(kChiefTask)) return StartAfterChief(kind);
  const absl::Duration now = Clock::Real().Elapsed();
  for (const TaskId& task : tasks()) {
    if (cluster_->running(task)) {
      ended_at_.erase(ToString(task));
    } else if (now - ended_at_.emplace(ToString(task), now).first->second > kUntilTheJobEnds) {
      RETURN_IF_ERROR(StartAgain(task, kind));
    }
  }
  return absl::OkStatus();
}

// A coordinator without memory or disk does not end the job. It is restarted with its state
// directory, and the other tasks wait for it. After any other error the coordinator ends the job
// and tells the tasks, and the next job gets a state directory of its own. A task that could not be
// told in time would refuse the next job. An operator stops such a task, as its refusal says; this
// function does the same.
absl::Status HostileJob::StartAfterChief(HostileKind& kind) {
  ASSIGN_OR_RETURN(const ExitStatus status, cluster_->WaitForExit(kChiefTask, kPatience));
  if (status.signal != 0 || status.code() == exit_codes::kResources ||
      status.code() >= exit_codes::kOfSignal)
    return StartAgain(kChiefTask, kind);
  ++jobs_ended_;
  const auto runs = [this](const TaskId& task) { return cluster_->running(task); };
  const std::vector<TaskId> all = tasks();
  cluster_->processes().WaitUntil([&] { return std::none_of(all.begin(), all.end(), runs); },
                                  kUntilAllHaveEnded);
  std::vector<TaskId> stopped, ended;
  std::partition_copy(all.begin(), all.end(), std::back_inserter(stopped),
                      std::back_inserter(ended), runs);
  for (const TaskId& task : stopped) {
    ++kind.outcomes[absl::StrCat(ToString(task), " was not told that the job had ended")];
    RETURN_IF_ERROR(Replace(task));
  }
  for (const TaskId& task : ended) RETURN_IF_ERROR(StartAgain(task, kind));
  return absl::OkStatus();
}

// Notes the peak of this kind, and makes the kernel count anew for the next one (proc(5),
// clear_refs).
void HostileJob::NotePeak(TaskId task, HostileKind& kind) {
  const int64_t peak = MemoryOf(pid(task), "VmHWM:"),
                allowed = AllowedBytes(task) + kind.burst_bytes;
  kind.peak_bytes = std::max(kind.peak_bytes, peak);
  if (peak > allowed)
    kind.TooMuch(
        absl::StrCat(ToString(task), " held ", peak >> 20, " MiB, but may hold ", allowed >> 20));
  if (kind.burst_bytes == 0) peaks_[ToString(task)] = std::max(peaks_[ToString(task)], peak);
  std::ofstream(absl::StrCat("/proc/", pid(task), "/clear_refs")) << "5";
}

int64_t HostileJob::AllowedBytes(TaskId task) {
  const bool is_ps = task.role == Role::kPs;
  // gRPC may hold a ps' commits beside what --rpc_memory_bytes allows.
  const int64_t rpc_bytes = kRpcBytes + (is_ps ? kBudgetBytes : 0);
  const int64_t budgets = rpc_bytes * 3 / 2 + (is_ps ? 2 * kBudgetBytes : 0);
  return resting_bytes_[ToString(task)] + budgets + kBeyondBudgets;
}

bool HostileJob::Answers(TaskId task) {
  bool answered = false;
  As("admin-0", task)
      .CallEach(kGetStatus, {""},
                [&](size_t, const grpc::Status& status, const std::string& reply) {
                  answered = status.ok() && status_[ToString(task)].ParseFromString(reply);
                });
  return answered;
}

void HostileJob::AwaitAnswers(HostileKind& kind, absl::Duration patience) {
  const absl::Duration until = Clock::Real().Elapsed() + patience;
  for (const TaskId& task : tasks()) {
    bool answered = Answers(task);
    while (!answered && Clock::Real().Elapsed() < until) answered = Answers(task);
    if (!answered) kind.Hang(absl::StrCat(ToString(task), " answers nobody"));
  }
}

// ---- helpers ------------------------------------------------------------------------------------

RawCalls HostileJob::As(const std::string& member, TaskId task, absl::Duration deadline) const {
  return RawCalls(address(task), MakeChannelCredentials(certificates_->Of(member), ""), deadline);
}

std::optional<TlsConnection> HostileJob::ConnectAs(absl::string_view member, TaskId task,
                                                   absl::Duration timeout) const {
  return TlsConnection::Open(address(task), certificates_->ClientOf(member), timeout);
}

}  // namespace divvy
