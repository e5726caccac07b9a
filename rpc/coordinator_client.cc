#include "rpc/coordinator_client.h"

#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "base/mutex.h"
#include "proto/divvy.grpc.pb.h"
#include "protocol/error.h"

namespace divvy {
namespace {

// Logs why a task still waits. Thread-safe.
class WaitingWords {
 public:
  explicit WaitingWords(absl::Duration silent_wait) : silent_wait_(silent_wait) {}

  void OnAnswer(const absl::Status& answer) {
    // The task ends, and logs the reason itself.
    if (absl::IsCancelled(answer) || IsFinal(ReasonOf(answer))) return;
    const std::string cause(answer.message());
    if (IsLate(answer.ok()) && limit_.Admit(cause))
      DIVVY_LOG(WARNING) << "waits for the coordinator: " << cause;
  }

 private:
  bool IsLate(bool answered) {
    const absl::Duration now = Clock::Real().Elapsed();
    MutexLock lock(mu_);
    if (answered) {
      failing_since_.reset();
      return false;
    }
    if (!failing_since_) failing_since_ = now;
    return now - *failing_since_ >= silent_wait_;
  }

  const absl::Duration silent_wait_;
  LogLimit limit_;
  Mutex mu_;
  std::optional<absl::Duration> failing_since_ DIVVY_GUARDED_BY(mu_);
};

class RpcCoordinatorClient : public CoordinatorClient {
 public:
  RpcCoordinatorClient(CallEnvironment environment, ChannelMaker make_channel,
                       absl::Duration silent_wait)
      : environment_(std::move(environment)),
        make_channel_(std::move(make_channel)),
        words_(std::make_shared<WaitingWords>(silent_wait)) {}

  void Call(RegisterRequest request, ResultCallback<RegisterReply> done) override {
    ResultCallback<RegisterReply> tell =
        [words = words_, done = std::move(done)](absl::StatusOr<RegisterReply> reply) {
          words->OnAnswer(reply.status());
          done(std::move(reply));
        };
    // Each call has a channel of its own, which ends with the call. A task calls until the
    // coordinator has attached it, and that may happen before the task's own connection is
    // established. Then no thread would poll a channel that the client kept (docs/adr/0010), and
    // gRPC would dial again and again, and report a timeout of each handshake.
    const std::shared_ptr<v1::Coordinator::Stub> stub = v1::Coordinator::NewStub(make_channel_());
    CallUnary(environment_, stub, &v1::Coordinator::StubInterface::async_interface::Register,
              request, kCallDeadline, std::move(tell));
  }

 private:
  const CallEnvironment environment_;
  const ChannelMaker make_channel_;
  const std::shared_ptr<WaitingWords> words_;
};

}  // namespace

std::shared_ptr<CoordinatorClient> MakeCoordinatorClient(CallEnvironment environment,
                                                         ChannelMaker make_channel,
                                                         absl::Duration silent_wait) {
  return std::make_shared<RpcCoordinatorClient>(std::move(environment), std::move(make_channel),
                                                silent_wait);
}

}  // namespace divvy
