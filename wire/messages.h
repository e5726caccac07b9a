// The unary calls: requests and replies (protocol/messages.h) as they travel. The Steps stream is
// steps.h, the data streams are data_frames.h.
#ifndef DIVVY_WIRE_MESSAGES_H_
#define DIVVY_WIRE_MESSAGES_H_

#include "absl/status/statusor.h"
#include "proto/divvy.pb.h"
#include "protocol/messages.h"

namespace divvy::wire {

// Pure, thread-safe, total: any message of the wire gives a value that keeps the promises of its
// type, or InvalidArgument with Reason::kInvalid that names the field, and nothing larger than the
// message is allocated on the way. What a *state* allows (epochs, sessions, existing shards) is not
// checked here: that is the core's, beginning with CheckRequest. FromProto(ToProto(x)) equals x for
// every x that keeps those promises:
//
//   indices of tasks and data files, participants   0 to 65,535; replicas and slots of a worker
//                                                   from 1
//   names, addresses, the build                     1 to 1,024 bytes without control characters
//                                                   (the build may be empty)
//   incarnations of who speaks                      not 0. Zeros in a Fence are the prelude's to
//                                                   refuse, each with its own reason
//   horizon                                         `open` rises and lies below `next`
//   sessions, the view's indices                    rise
//   shards and parts of a message                   100,000 at most
//   a shard, a saved slice                          its rows lie within the whole, its bytes are
//                                                   what they take, its initializer fits its dtype
//                                                   and shape
//   exit codes                                      0 to 255
//   protocol                                        oldest <= newest; left out: version 1
//
// Fields that this version does not know are passed over; an enum's value that it does not know is
// refused.

// The messages, each by the name that it has both here and in v1. A macro, since no template turns
// one name into the other. The fuzz targets number requests and replies by their place
// (wire/testing/conversion.h), so a new one stands last.
// clang-format off
#define DIVVY_WIRE_REQUESTS(M) \
  M(RegisterRequest) M(PsAttachRequest) M(LoadRequest) M(SnapshotRequest) M(SyncRequest) \
  M(CreateShardsRequest) M(DeleteShardsRequest) M(ShutdownRequest) M(WorkerAttachRequest)
#define DIVVY_WIRE_REPLIES(M) \
  M(RegisterReply) M(PsAttachReply) M(LoadReply) M(SnapshotReply) M(SyncReply) \
  M(LayoutReply) M(ShutdownReply) M(WorkerAttachReply)
#define DIVVY_WIRE_PARTS(M) \
  M(Fence) M(ProtocolRange) M(Horizon) M(InputLease) M(RememberedEntry) \
  M(ProgramDescription) M(CheckpointId) M(SavedSlice) M(PsAddress)
// clang-format on

// ToProto REQUIRES: a WorkerAttachRequest has a layout.
#define DIVVY_WIRE_CONVERSION(Type)    \
  v1::Type ToProto(const Type& value); \
  absl::StatusOr<Type> FromProto(const v1::Type& from);
DIVVY_WIRE_REQUESTS(DIVVY_WIRE_CONVERSION)
DIVVY_WIRE_REPLIES(DIVVY_WIRE_CONVERSION)
DIVVY_WIRE_PARTS(DIVVY_WIRE_CONVERSION)
#undef DIVVY_WIRE_CONVERSION

v1::EntryKind ToProto(EntryKind kind);
absl::StatusOr<EntryKind> FromProto(v1::EntryKind kind);

// ---- of an operator ----
// The life of the coordinator that is meant; the requests hold nothing else but the number of a
// resize, which the coordinator checks.
absl::StatusOr<Incarnation> FromProto(const v1::RequestCheckpointRequest& request);
absl::StatusOr<Incarnation> FromProto(const v1::DrainRequest& request);
absl::StatusOr<Incarnation> FromProto(const v1::ResizeRequest& request);

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_MESSAGES_H_
