#include "tools/ctl/operate.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "proto/divvy.grpc.pb.h"
#include "protocol/backoff.h"
#include "protocol/error.h"
#include "rpc/channel.h"
#include "rpc/status.h"
#include "rpc/time.h"
#include "wire/messages.h"

namespace divvy {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(5);  // with an address that does not answer

// One life of the coordinator at an address, and the time left for the operation.
class CoordinatorAt {
 public:
  explicit CoordinatorAt(const OperatorOptions& options)
      : options_(options),
        until_(Clock::Real().Elapsed() + options.timeout),
        channel_(MakeChannel(options.address, options.credentials)),
        stub_(v1::Admin::NewStub(channel_)) {}

  // Finds out which life of the coordinator serves there. Later requests are for this life only.
  absl::Status Find() {
    v1::TaskStatus task;
    RETURN_IF_ERROR(Reach(task));
    incarnation_ = task.incarnation();
    if (task.job() == v1::CHIEF) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the task at ", options_.address,
                     " is not the coordinator: give the coordinator's address"));
  }

  template <typename Request, typename Reply>
  absl::Status Ask(grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*, const Request&,
                                                           Reply*),
                   Reply& reply, Request request = Request()) {
    request.set_target_incarnation(incarnation_);
    return Call(method, request, reply);
  }

  // Waits until the process has closed the connection, which is the last thing that it does.
  absl::Status WaitUntilGone() {
    while (channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY) {
      if (!channel_->WaitForStateChange(GRPC_CHANNEL_READY, Deadline())) {
        return absl::DeadlineExceededError(absl::StrCat("drained, but did not exit within ",
                                                        absl::FormatDuration(options_.timeout)));
      }
    }
    return absl::OkStatus();
  }

 private:
  // Retries while the call is Unavailable: a busy machine may break a new connection, and a
  // coordinator that is restarted does not listen for a moment.
  absl::Status Reach(v1::TaskStatus& task) {
    const absl::Duration patience = std::min(until_, Clock::Real().Elapsed() + kPatience);
    Backoff backoff(EntropySeed());
    while (true) {
      const absl::Status status = Call(&v1::Admin::Stub::GetStatus, v1::GetStatusRequest(), task);
      if (!absl::IsUnavailable(status)) return status;
      channel_->WaitForConnected(
          GrpcDeadline(std::min(backoff.Next(), patience - Clock::Real().Elapsed())));
      if (Clock::Real().Elapsed() >= patience) return Unreached(status);
    }
  }

  static absl::Status Unreached(const absl::Status& status) {
    // A task serves there, and the message says what is wrong.
    if (absl::StrContains(status.message(), "certificate")) return status;
    return absl::UnavailableError(absl::StrCat(status.message(),
                                               ". Start the coordinator, or give its address: "
                                               "--addr=HOST:PORT, or TF_CONFIG"));
  }

  gpr_timespec Deadline() const { return GrpcDeadline(until_ - Clock::Real().Elapsed()); }

  template <typename Request, typename Reply>
  absl::Status Call(grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*, const Request&,
                                                            Reply*),
                    const Request& request, Reply& reply) {
    grpc::ClientContext context;
    context.set_deadline(Deadline());
    return FromGrpc(((*stub_).*method)(&context, request, &reply), options_.address);
  }

  const OperatorOptions& options_;
  const absl::Duration until_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Admin::Stub> stub_;
  uint64_t incarnation_ = 0;
};

std::string DrainedText(const v1::DrainReply& reply) {
  const std::string finished =
      absl::StrCat("drained: ", reply.finished_steps(), " steps finished, ");
  const absl::StatusOr<CheckpointId> checkpoint = wire::FromProto(reply.checkpoint());
  if (!checkpoint.ok()) return absl::StrCat(finished, "none saved: there is no checkpoint");
  return absl::StrCat(finished, checkpoint->name(), " holds ", reply.durable_steps());
}

}  // namespace

absl::StatusOr<std::string> SaveCheckpoint(const OperatorOptions& options) {
  CoordinatorAt coordinator(options);
  v1::RequestCheckpointReply reply;
  RETURN_IF_ERROR(coordinator.Find());
  RETURN_IF_ERROR(coordinator.Ask(&v1::Admin::Stub::RequestCheckpoint, reply));
  ASSIGN_OR_RETURN(const CheckpointId checkpoint, wire::FromProto(reply.checkpoint()));
  return checkpoint.name();
}

absl::StatusOr<std::string> DrainCoordinator(const OperatorOptions& options) {
  CoordinatorAt coordinator(options);
  v1::DrainReply reply;
  RETURN_IF_ERROR(coordinator.Find());
  RETURN_IF_ERROR(coordinator.Ask(&v1::Admin::Stub::Drain, reply));
  RETURN_IF_ERROR(coordinator.WaitUntilGone());
  return DrainedText(reply);
}

absl::StatusOr<std::string> ResizeJob(const OperatorOptions& options, int num_ps) {
  CoordinatorAt coordinator(options);
  v1::ResizeRequest request;
  request.set_num_ps(num_ps);
  v1::ResizeReply reply;
  RETURN_IF_ERROR(coordinator.Find());
  RETURN_IF_ERROR(coordinator.Ask(&v1::Admin::Stub::Resize, reply, request));
  return absl::StrCat("the job goes on with ", reply.num_ps(),
                      reply.num_ps() == 1 ? " parameter server" : " parameter servers");
}

absl::StatusOr<std::string> RebalanceJob(const OperatorOptions& options) {
  CoordinatorAt coordinator(options);
  v1::RebalanceReply reply;
  RETURN_IF_ERROR(coordinator.Find());
  RETURN_IF_ERROR(coordinator.Ask(&v1::Admin::Stub::Rebalance, reply));
  if (!reply.changed())
    return absl::StrFormat(
        "nothing was moved: the busiest parameter server has %.2f times the mean load, and no "
        "other arrangement for which there is room makes that a tenth less",
        reply.before());
  std::string text = absl::StrCat(reply.moved(), " shards moved");
  if (reply.cut() > 0) absl::StrAppend(&text, ", ", reply.cut(), " variables cut into more shards");
  return absl::StrFormat(
      "%s: the load of the busiest parameter server was %.2f times the mean, and is expected to be "
      "%.2f",
      text, reply.before(), reply.after());
}

int OperatorExitCode(const absl::Status& status) {
  if (ReasonOf(status) == Reason::kDisk) return exit_codes::kResources;
  switch (status.code()) {
    case absl::StatusCode::kOk: return EXIT_SUCCESS;
    case absl::StatusCode::kInvalidArgument: return exit_codes::kUsage;
    case absl::StatusCode::kFailedPrecondition: return exit_codes::kConfiguration;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated: return exit_codes::kNotAuthorized;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted: return exit_codes::kTryAgain;
    default: return ExitCodeOf(status);
  }
}

}  // namespace divvy
