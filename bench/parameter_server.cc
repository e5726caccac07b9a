#include "bench/parameter_server.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "ps_server/service/ps_task.h"

namespace divvy::bench {
namespace {

// The target incarnation is the one that Attach reports.
constexpr Fence kFence{JobId(1), Epoch(1), Incarnation(2), kCoordinatorSession, Incarnation()};

[[noreturn]] void Exec(const std::string& role, const std::string& flag, const int* in,
                       const int* out) {
  dup2(in[0], STDIN_FILENO);
  dup2(out[1], STDOUT_FILENO);
  close(in[1]);
  close(out[0]);
  execl("/proc/self/exe", "bench", absl::StrCat("--role=", role).c_str(),
        flag.empty() ? nullptr : flag.c_str(), nullptr);
  std::_Exit(EXIT_FAILURE);
}

double Seconds(const timespec& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Child>> Child::Start(const std::string& role,
                                                    const std::string& flag) {
  int in[2], out[2];
  if (pipe(in) != 0 || pipe(out) != 0)
    return absl::UnavailableError("cannot make a pipe to a child process");
  const pid_t pid = fork();
  if (pid < 0) return absl::UnavailableError("cannot fork a child process");
  if (pid == 0) Exec(role, flag, in, out);
  close(in[0]);
  close(out[1]);
  std::unique_ptr<Child> child(new Child(pid, in[1]));
  std::FILE* const told = fdopen(out[0], "r");
  const bool ready = std::fscanf(told, "%d", &child->port_) == 1;
  std::fclose(told);
  if (!ready)
    return absl::UnavailableError(absl::StrCat("the process with --role=", role, " did not start"));
  return child;
}

Child::~Child() {
  close(stdin_);
  // A child that waits for its first connection does not notice the end of its input.
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
}

double Child::CpuSeconds() const {
  clockid_t clock;
  timespec used{};
  if (clock_getcpuclockid(pid_, &clock) == 0) clock_gettime(clock, &used);
  return Seconds(used);
}

void TellPort(int port) {
  std::printf("%d\n", port);
  std::fflush(stdout);
}

absl::Status ServeParameters(const std::optional<TlsFiles>& tls) {
  PsTaskOptions options;
  options.task.role = Role::kPs;
  options.task.tls = tls;
  ASSIGN_OR_RETURN(const std::unique_ptr<PsTask> task,
                   PsTask::Start(options, [](int, const std::string&) {}));
  int port = 0;
  if (!absl::SimpleAtoi(task->address().substr(task->address().rfind(':') + 1), &port))
    return absl::InternalError("no port in the address " + task->address());
  TellPort(port);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }  // until the benchmark has ended
  return absl::OkStatus();
}

void Window::Enter() {
  MutexLock lock(mu_);
  changed_.Wait(mu_, [this]() DIVVY_REQUIRES(mu_) { return free_ > 0; });
  --free_;
}

void Window::Leave(const absl::Status& status) {
  MutexLock lock(mu_);
  status_.Update(status);
  ++free_;
  changed_.NotifyAll();
}

absl::Status Window::Wait() {
  MutexLock lock(mu_);
  changed_.Wait(mu_, [this]() DIVVY_REQUIRES(mu_) { return free_ == size_; });
  return status_;
}

ShardSpec WholeVariable(uint32_t variable, const Shape& shape) {
  ShardSpec spec;
  spec.key = {VariableId(variable), 0, 0};
  spec.name = absl::StrCat("v", variable);
  spec.shape = spec.full_shape = shape;
  spec.initializer = Zeros();
  return spec;
}

absl::StatusOr<Fence> BeginJob(ParameterClient& ps, std::vector<ShardSpec> shards) {
  ASSIGN_OR_RETURN(const PsAttachReply attached, Await(ps, PsAttachRequest{kFence}));
  Fence fence = kFence;
  fence.target = attached.incarnation;
  LoadRequest load;
  load.fence = fence;
  load.horizon.next = EntryId(1);
  RETURN_IF_ERROR(Await(ps, load).status());
  RETURN_IF_ERROR(Await(ps, CreateShardsRequest{fence, 1, 1, 1, std::move(shards)}).status());
  return fence;
}

}  // namespace divvy::bench
