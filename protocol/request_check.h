// The checks that every request to a worker or parameter server passes before all else.
#ifndef DIVVY_PROTOCOL_REQUEST_CHECK_H_
#define DIVVY_PROTOCOL_REQUEST_CHECK_H_

#include <optional>

#include "absl/status/status.h"
#include "protocol/error.h"
#include "protocol/ids.h"
#include "protocol/messages.h"

namespace divvy {

// The identity and state of a request's receiver, at this moment.
struct ReceiverState {
  // Refusals name the role and the index.
  Role role = Role::kWorker;
  int index = 0;
  // of this process
  Incarnation incarnation;
  // 0: no job yet, and any job is accepted
  JobId job;
  // the highest epoch that the receiver obeys; 0: never attached
  Epoch epoch;
  // the incarnation of the coordinator that made `epoch`
  Incarnation coordinator;
  // Whether the state allows the call. Not used for Attach.
  bool ready = false;
};

enum class CallKind : uint8_t {
  // Attach: may bring a higher epoch, and need not know the receiver's incarnation.
  kAttach,
  kOther,
};

// Returns OK, or the first refusal in the order of this table (docs/internals/protocol.md, section
// 3). error.h says how a caller reacts to each Reason.
//
//   kWrongJob           fence.job is not the receiver's job, and the receiver has one
//   kWrongIncarnation   fence.target is not the receiver's incarnation (0: allowed in Attach only)
//   kStaleEpoch         fence.epoch is below the receiver's epoch, which the detail has
//   kNotAttached        fence.epoch is above the receiver's (never for Attach), or the receiver was
//                       never attached
//   kSecondCoordinator  equal epochs, made by two coordinators
//   kNotReady           the receiver's state does not allow the call (never for Attach)
//   kInvalid            an Attach whose job, epoch or coordinator is 0
//
// Every refusal has the receiver's role, index and epoch. Pure. Certificates are checked elsewhere,
// with the network (rpc/).
absl::Status CheckRequest(const Fence& fence, const ReceiverState& own, CallKind call);

// For Attach and Register. VERSION_MISMATCH, naming both ranges, unless they overlap. Pure.
absl::Status CheckProtocol(ProtocolRange theirs, const ReceiverState& own);
// For Attach: `index` is the one by which the coordinator knows the receiver. WRONG_INCARNATION if
// it is another task's. Without this check the coordinator would attach a worker under two indices
// in turns, and each would end the session of the other. Pure.
absl::Status CheckIndex(std::optional<int> index, const ReceiverState& own);

}  // namespace divvy

#endif  // DIVVY_PROTOCOL_REQUEST_CHECK_H_
