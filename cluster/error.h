// Typed reasons for refusals: what code decides on. The text of a status is for people only.
#ifndef DIVVY_CLUSTER_ERROR_H_
#define DIVVY_CLUSTER_ERROR_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "cluster/end_of_data.h"
#include "cluster/ids.h"
#include "cluster/role.h"

namespace divvy {

// Why a request was refused, and so what its sender does next (protocol, section 3).
enum class Reason : uint8_t {
  // No typed reason: a fault of the transport, or a user's error.
  kNone,
  // FailedPrecondition: stop, exit 78
  kVersionMismatch,
  // FailedPrecondition: stop, exit 78
  kWrongJob,
  // Aborted: that task lost its memory. A worker waits for a new view; for the coordinator the task
  // is lost
  kWrongIncarnation,
  // FailedPrecondition: `epoch` is the receiver's. A coordinator stops (exit 138); a worker drops
  // its session and waits
  kStaleEpoch,
  // Unavailable: retry; an Attach is on its way
  kNotAttached,
  // FailedPrecondition: stop, exit 138
  kSecondCoordinator,
  // Unavailable: retry
  kNotReady,
  // InvalidArgument: a bug of the sender; never retried
  kInvalid,
  // Aborted: a worker drops the step silently and waits for Attach
  kSessionFenced,
  // Aborted: the same; the step was finished or given up elsewhere
  kStepClosed,
  // Internal: cannot happen
  kUnknownShard,
  // Internal: cannot happen
  kBadCommit,
  // ResourceExhausted with retry_after: wait and send again; never final
  kOverloaded,
  // ResourceExhausted at CreateShards: the create fails, naming the flag
  kMemoryLimit,
  // Unavailable, to the coordinator's own user
  kWorkerLost,
  // Unavailable, to the coordinator's own user
  kPsLost,
  // Unavailable: the attempts of a step are used up
  kStepGaveUp,
  // Cancelled: by another step's error (semantics of TensorFlow's coordinator, 3.5)
  kBatchCancelled,
  // Aborted: the worker's input was lost with the worker; the step is run again
  kInputAborted,
  // OutOfRange: a dataset has no more elements; not an error of a RunEpoch
  kEndOfData,
  // Cancelled: the job has ended
  kJobOver,
  // PermissionDenied: the certificate's role may not make this call. Stop, exit 77
  kNotAuthorized,
  // FailedPrecondition: another live process has this job and index. Stop, exit 78
  kDuplicateTask,
  // FailedPrecondition: the task's TF_CONFIG contradicts the coordinator's. Stop, exit 78
  kClusterMismatch,
  // ResourceExhausted: no space, or the device failed. This checkpoint is given up; older ones
  // stand
  kDisk,
  // NotFound: no such checkpoint in the receiver's --checkpoint_dir
  kCheckpointMissing,
  // DataLoss: a file of the checkpoint is damaged; another one may be good
  kCheckpointCorrupt,
  // Unavailable: a GPU of the worker has failed for as long as its process lives. The step is run
  // again elsewhere, the worker exits with 138
  kDeviceLost,
};

constexpr Reason kLastReason = Reason::kDeviceLost;

absl::string_view ReasonName(Reason reason);  // "SESSION_FENCED"

// What code needs to know of an error. Travels with its status, through gRPC and inside messages.
// Fields that do not apply are 0.
struct ErrorDetail {
  Reason reason = Reason::kNone;
  std::optional<Role> role;  // of the task that says it; absent: not said
  int32_t index = 0;
  Epoch epoch;        // of the task that says it
  EntryId entry;      // that was refused
  bool user = false;  // made by a step function: never taken for a worker's or a ps' failure,
                      // whatever its code
  absl::Duration retry_after;  // zero: the sender's own backoff
};

// All functions here are pure and thread-safe.

// A status of the code that belongs to `detail.reason` (Unknown for kNone), carrying it. The detail
// is a payload of the status: who puts an error in other words keeps it with WithMessage
// (base/status_message.h), or nobody can decide on it any more.
//
//   return MakeError(Reason::kNotReady, "the parameter server is starting");
//   if (ReasonOf(status) == Reason::kNotReady) ...
absl::Status MakeError(const ErrorDetail& detail, absl::string_view message);
absl::Status MakeError(Reason reason, absl::string_view message);
// The detail a status carries, or one of Reason::kNone where it carries none, or bytes that are
// none.
ErrorDetail DetailOf(const absl::Status& status);
inline Reason ReasonOf(const absl::Status& status) { return DetailOf(status).reason; }
// The same status marked as made by a step function. OK stays OK.
absl::Status MarkUser(const absl::Status& status);

// Whether sending the same request again may help: Unavailable, DeadlineExceeded, Aborted without a
// typed reason, or kOverloaded. Never what a step function made. For answers to calls between the
// roles: what a program is told (kPsLost, ...) is not asked again.
bool IsTransient(const absl::Status& status);

// What a process exits with that ends for this reason; nullopt: no process ends for it. 77 and 78
// are final: starting the same task again ends the same way.
std::optional<int> ExitCodeOf(Reason reason);
// The whole process is refused (77, 78): whatever it asks for next is answered the same.
bool IsFinal(Reason reason);
// What a coordinator exits with whose job ended with this status: 0 for OK; by its reason; else by
// its code (Unavailable: 138, DataLoss: 65, NotFound: 66, Internal: 70, ResourceExhausted: 74,
// PermissionDenied and Unauthenticated: 77); else 1. Of a code that a step function made, DataLoss
// and NotFound count, for they speak of input; the others are 1.
int ExitCodeOf(const absl::Status& status);

// A coordinator was started on a job that has ended (Reason::kJobOver): it exits with this code at
// once.
absl::Status JobHasEnded(int exit_code, absl::string_view message);

}  // namespace divvy

#endif  // DIVVY_CLUSTER_ERROR_H_
