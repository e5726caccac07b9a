#include "wire/messages.h"

#include "wire/fields.h"

namespace divvy::wire {

v1::EntryKind ToProto(EntryKind kind) { return kEntryKinds.ToWire(kind); }
absl::StatusOr<EntryKind> FromProto(v1::EntryKind kind) { return kEntryKinds.ToDomain(kind); }

DIVVY_WIRE_REQUESTS(DIVVY_WIRE_CONVERSIONS)
DIVVY_WIRE_REPLIES(DIVVY_WIRE_CONVERSIONS)
DIVVY_WIRE_PARTS(DIVVY_WIRE_CONVERSIONS)

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
absl::StatusOr<Incarnation> FromProto(const v1::RebalanceRequest& request) {
  return TargetOf(request);
}
absl::StatusOr<Incarnation> FromProto(const v1::ResizeRequest& request) {
  return TargetOf(request);
}

}  // namespace divvy::wire
