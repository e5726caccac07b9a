// A parameter server in another process, and helpers to call it, for benchmarks of the data plane.
#ifndef DIVVY_BENCH_PARAMETER_SERVER_H_
#define DIVVY_BENCH_PARAMETER_SERVER_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "protocol/clients.h"
#include "rpc/credentials.h"

namespace divvy::bench {

// This program in another process, with --role=ROLE and, unless it is empty, `flag`. The process
// ends when this object is destroyed. It reports its port by TellPort.
class Child {
 public:
  static absl::StatusOr<std::unique_ptr<Child>> Start(const std::string& role,
                                                      const std::string& flag = "");
  ~Child();
  int port() const { return port_; }
  double CpuSeconds() const;

 private:
  Child(pid_t pid, int in) : pid_(pid), stdin_(in) {}

  const pid_t pid_;
  const int stdin_;
  int port_ = 0;
};
void TellPort(int port);

// Runs the parameter server in a child, until the parent process has ended.
absl::Status ServeParameters(const std::optional<TlsFiles>& tls = std::nullopt);

// Limits the number of calls in flight, and waits for all replies. Thread-safe.
class Window {
 public:
  explicit Window(int size) : free_(size), size_(size) {}
  void Enter();  // blocks while `size` calls are in flight
  void Leave(const absl::Status& status);
  absl::Status Wait();  // blocks for all replies; returns the first error

 private:
  Mutex mu_;
  CondVar changed_;
  int free_ DIVVY_GUARDED_BY(mu_);
  const int size_;
  absl::Status status_ DIVVY_GUARDED_BY(mu_);
};

// Makes the call and waits for its reply.
template <typename Request>
absl::StatusOr<ReplyTo<Request>> Await(ParameterClient& ps, Request request) {
  absl::StatusOr<ReplyTo<Request>> answer = absl::UnknownError("");
  Window window(1);
  window.Enter();
  ps.Call(std::move(request), [&](absl::StatusOr<ReplyTo<Request>> reply) {
    answer = std::move(reply);
    window.Leave(answer.status());
  });
  DIVVY_RETURN_IF_ERROR(window.Wait());
  return answer;
}

// The only shard of the variable with this number: float32 zeros.
ShardSpec WholeVariable(uint32_t variable, const Shape& shape);

// Begins a job on a new parameter server and makes the shards. Returns the fence of later requests.
absl::StatusOr<Fence> BeginJob(ParameterClient& ps, std::vector<ShardSpec> shards);

}  // namespace divvy::bench

#endif  // DIVVY_BENCH_PARAMETER_SERVER_H_
