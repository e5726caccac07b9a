#include "wire/messages.h"

#include "wire/fields.h"

namespace divvy::wire {

v1::EntryKind ToProto(EntryKind kind) { return kEntryKinds.ToWire(kind); }
absl::StatusOr<EntryKind> FromProto(v1::EntryKind kind) { return kEntryKinds.ToDomain(kind); }

DIVVY_WIRE_CONVERSIONS(Fence)
DIVVY_WIRE_CONVERSIONS(ProtocolRange)
DIVVY_WIRE_CONVERSIONS(Horizon)
DIVVY_WIRE_CONVERSIONS(InputLease)
DIVVY_WIRE_CONVERSIONS(RememberedEntry)
DIVVY_WIRE_CONVERSIONS(ProgramDescription)
DIVVY_WIRE_CONVERSIONS(RegisterRequest)
DIVVY_WIRE_CONVERSIONS(RegisterReply)
DIVVY_WIRE_CONVERSIONS(PsAttachRequest)
DIVVY_WIRE_CONVERSIONS(PsAttachReply)
DIVVY_WIRE_CONVERSIONS(LoadRequest)
DIVVY_WIRE_CONVERSIONS(LoadReply)
DIVVY_WIRE_CONVERSIONS(CheckpointId)
DIVVY_WIRE_CONVERSIONS(SnapshotRequest)
DIVVY_WIRE_CONVERSIONS(SavedSlice)
DIVVY_WIRE_CONVERSIONS(SnapshotReply)
DIVVY_WIRE_CONVERSIONS(SyncRequest)
DIVVY_WIRE_CONVERSIONS(SyncReply)
DIVVY_WIRE_CONVERSIONS(CreateShardsRequest)
DIVVY_WIRE_CONVERSIONS(DeleteShardsRequest)
DIVVY_WIRE_CONVERSIONS(LayoutReply)
DIVVY_WIRE_CONVERSIONS(ShutdownRequest)
DIVVY_WIRE_CONVERSIONS(ShutdownReply)
DIVVY_WIRE_CONVERSIONS(PsAddress)
DIVVY_WIRE_CONVERSIONS(WorkerAttachRequest)
DIVVY_WIRE_CONVERSIONS(WorkerAttachReply)

// ---- of an operator -----------------------------------------------------------------------------

namespace {

template <typename Request>
absl::StatusOr<Incarnation> TargetOf(const Request& request) {
  if (request.target_incarnation() == 0)
    return Invalid("target_incarnation", "is 0: Admin.GetStatus tells it");
  return Incarnation(request.target_incarnation());
}

}  // namespace

absl::StatusOr<Incarnation> FromProto(const v1::RequestCheckpointRequest& request) {
  return TargetOf(request);
}
absl::StatusOr<Incarnation> FromProto(const v1::DrainRequest& request) { return TargetOf(request); }
absl::StatusOr<Incarnation> FromProto(const v1::ResizeRequest& request) {
  return TargetOf(request);
}

}  // namespace divvy::wire
