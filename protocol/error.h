// Typed reasons for refusals. Code decides by the reason; the text of a status is for people only.
#ifndef DIVVY_PROTOCOL_ERROR_H_
#define DIVVY_PROTOCOL_ERROR_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "protocol/end_of_data.h"
#include "protocol/ids.h"
#include "protocol/role.h"

namespace divvy {

// Why a request was refused. Each reason has its status code and the reaction of the sender
// (docs/internals/protocol.md, section 3).
enum class Reason : uint8_t {
  // No typed reason: a fault of the transport, or a user's error.
  kNone,
  // FailedPrecondition: stop, exit 78
  kVersionMismatch,
  // FailedPrecondition: stop, exit 78
  kWrongJob,
  // Aborted: another incarnation answers at that address, without the old one's memory. A worker
  // waits for a new view; the coordinator treats the task as lost
  kWrongIncarnation,
  // FailedPrecondition: the receiver is in a newer epoch, which ErrorDetail::epoch has. A
  // coordinator stops (exit 138); a worker drops its session and waits
  kStaleEpoch,
  // Unavailable: retry; the coordinator will attach the task
  kNotAttached,
  // FailedPrecondition: stop, exit 138
  kSecondCoordinator,
  // Unavailable: retry
  kNotReady,
  // InvalidArgument: a bug of the sender; never retried
  kInvalid,
  // Aborted: a worker drops the step silently and waits for Attach
  kSessionFenced,
  // Aborted: the step was finished or given up elsewhere. A worker drops it silently, as above
  kStepClosed,
  // Internal: a shard of the request does not exist. A bug; never expected
  kUnknownShard,
  // Internal: a commit does not fit its shards. A bug; never expected
  kBadCommit,
  // ResourceExhausted at CreateShards: the create fails, and its message names the flag
  kMemoryLimit,
  // Unavailable, for the program: a parameter server and its values are lost
  kPsLost,
  // Unavailable: the attempts of a step are used up
  kStepGaveUp,
  // Cancelled: another step's error cancelled this step (semantics of TensorFlow's
  // coordinator, 3.5)
  kBatchCancelled,
  // Aborted: the worker's input was lost with the worker; the step is run again
  kInputAborted,
  // OutOfRange: a dataset has no more elements. For RunEpoch this is the normal end, not an error
  kEndOfData,
  // Cancelled: the job has ended
  kJobOver,
  // PermissionDenied: the certificate's role may not make this call. Stop, exit 77
  kNotAuthorized,
  // FailedPrecondition: another live process has this job and index. Stop, exit 78
  kDuplicateTask,
  // FailedPrecondition: the task's TF_CONFIG contradicts the coordinator's. Stop, exit 78
  kClusterMismatch,
  // ResourceExhausted: the disk is full or failed. This checkpoint is given up; older ones stay
  // valid
  kDisk,
  // NotFound: no such checkpoint in the receiver's --checkpoint_dir
  kCheckpointMissing,
  // DataLoss: a file of the checkpoint is damaged; another one may be good
  kCheckpointCorrupt,
  // Unavailable: a GPU of the worker has failed and stays unusable until its process ends. The step
  // is run again on another worker; this worker exits with 138
  kDeviceLost,
};

constexpr Reason kLastReason = Reason::kDeviceLost;

absl::string_view ReasonName(Reason reason);  // "SESSION_FENCED"

// The part of an error that code decides on. It travels with its status, through gRPC and inside
// messages. Fields that do not apply are 0.
struct ErrorDetail {
  Reason reason = Reason::kNone;
  // The role of the task that reports the error. Absent: unknown.
  std::optional<Role> role;
  int32_t index = 0;
  // the epoch of that task
  Epoch epoch;
  // the entry that was refused
  EntryId entry;
  // A step function made the error. It is never taken for a failure of a worker or ps, whatever its
  // code is.
  bool user = false;
};

// All functions here are pure and thread-safe.

// Returns a status that carries `detail`, with the code that belongs to `detail.reason` (Unknown
// for kNone). The detail is a payload of the status. Code that rewords an error must use
// WithMessage (base/status_message.h), which keeps the payload; without it, callers cannot decide
// by the reason.
//
//   return MakeError(Reason::kNotReady, "ps 2 reads checkpoint ckpt-3-17 and cannot serve yet");
//   if (ReasonOf(status) == Reason::kNotReady) ...
absl::Status MakeError(const ErrorDetail& detail, absl::string_view message);
// The same, with `code` in place of the reason's own code.
absl::Status MakeError(absl::StatusCode code, const ErrorDetail& detail, absl::string_view message);
absl::Status MakeError(Reason reason, absl::string_view message);
// Returns the detail that a status carries. If the status has none, or its payload cannot be
// decoded, the result has Reason::kNone.
ErrorDetail DetailOf(const absl::Status& status);
inline Reason ReasonOf(const absl::Status& status) { return DetailOf(status).reason; }
// Returns the status marked as made by a step function (ErrorDetail::user). OK stays OK.
absl::Status MarkUser(const absl::Status& status);

// Whether sending the same request again may help: true for Unavailable, DeadlineExceeded, Aborted
// without a typed reason. Always false for an error that a step function made. Use it for answers
// to calls between the roles, not for errors that a program gets (kPsLost, ...): those are not
// retried.
bool IsTransient(const absl::Status& status);

// The exit code of a process that ends for this reason; nullopt if no process ends for it. 77 and
// 78 are final: the same task, restarted, ends the same way.
std::optional<int> ExitCodeOf(Reason reason);
// Whether the reason refuses the whole process (exit codes 77 and 78). Its later requests would get
// the same answer.
bool IsFinal(Reason reason);
// The exit code of a coordinator whose job ended with this status. OK gives 0. Otherwise the reason
// decides; without an exit code for the reason, the status code does (Unavailable: 138, DataLoss:
// 65, NotFound: 66, Internal: 70, ResourceExhausted: 74, PermissionDenied and Unauthenticated: 77).
// All else gives 1. For an error that a step function made, only the codes DataLoss and NotFound
// are mapped, since they concern input; all others give 1.
int ExitCodeOf(const absl::Status& status);

// The error of a coordinator that was started on a job that has ended (Reason::kJobOver). The
// coordinator exits with `exit_code` at once.
absl::Status JobHasEnded(int exit_code, absl::string_view message);

}  // namespace divvy

#endif  // DIVVY_PROTOCOL_ERROR_H_
