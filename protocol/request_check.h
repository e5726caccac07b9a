// What a worker or parameter server checks before it looks at anything else in a request.
#ifndef DIVVY_PROTOCOL_REQUEST_CHECK_H_
#define DIVVY_PROTOCOL_REQUEST_CHECK_H_

#include "absl/status/status.h"
#include "protocol/error.h"
#include "protocol/ids.h"
#include "protocol/messages.h"

namespace divvy {

// What the receiver of a request is, at this moment.
struct ReceiverState {
  Role role = Role::kWorker;  // named in refusals, with `index`
  int index = 0;
  Incarnation incarnation;  // of this process life
  JobId job;                // 0: none yet, any is accepted
  Epoch epoch;              // the highest obeyed; 0: never attached
  Incarnation coordinator;  // the life of the coordinator that made `epoch`
  bool ready = false;       // its state allows the call (not asked for Attach)
};

enum class CallKind : uint8_t {
  // May bring a higher epoch, and need not know the target's incarnation.
  kAttach,
  kOther,
};

// OK, or the first refusal of these, in this order (protocol, section 3; the caller's reaction
// stands beside each Reason in error.h):
//
//   kWrongJob           fence.job is not mine, and I have one
//   kWrongIncarnation   fence.target is not me. 0 is allowed in Attach alone
//   kStaleEpoch         fence.epoch is below mine; the detail carries mine
//   kNotAttached        fence.epoch is above mine (never for Attach), or I was never attached
//   kSecondCoordinator  equal epochs made by two coordinators
//   kNotReady           my state does not allow the call (never for Attach)
//   kInvalid            an Attach whose job, epoch or coordinator is 0
//
// Every refusal carries role, index and epoch of the receiver. Pure. (Certificates are checked
// where a network is: rpc/.)
absl::Status CheckRequest(const Fence& fence, const ReceiverState& own, CallKind call);

// VERSION_MISMATCH, naming both, unless the ranges meet. For Attach and Register. Pure.
absl::Status CheckProtocol(ProtocolRange theirs, const ReceiverState& own);

}  // namespace divvy

#endif  // DIVVY_PROTOCOL_REQUEST_CHECK_H_
