// Conversions of the unary calls: requests and replies (protocol/messages.h). steps.h has the Steps
// stream, data_frames.h the data streams.
#ifndef DIVVY_WIRE_MESSAGES_H_
#define DIVVY_WIRE_MESSAGES_H_

#include "absl/status/statusor.h"
#include "proto/divvy.pb.h"
#include "protocol/messages.h"

namespace divvy::wire {

// Pure and thread-safe. FromProto accepts any message: it returns a value that keeps the promises
// below, or InvalidArgument with Reason::kInvalid, which names the field. It allocates no more than
// the message's own size. It does not check what depends on a receiver's state (epochs, sessions,
// existing shards): the cores do that, beginning with CheckRequest. FromProto(ToProto(x)) equals x
// for every x that keeps these promises:
//
//   indices of tasks and data files, participants   0 to 65,535; replicas and slots of a worker
//                                                   from 1
//   names, addresses, the build                     1 to 1,024 bytes without control characters
//                                                   (the build may be empty)
//   the sender's incarnation                        not 0. The request check refuses zeros in a
//                                                   Fence, each with its own reason
//   horizon                                         `open` rises and lies below `next`
//   sessions, indices of a view                     rise
//   shards and parts of a message                   100,000 at most
//   a shard, a saved slice                          its rows lie within the whole, its size fits
//                                                   its rows, its initializer fits its dtype and
//                                                   shape
//   exit codes                                      0 to 255
//   protocol                                        oldest <= newest; if absent: version 1
//
// Fields that this version does not know are ignored. An unknown value of an enum is refused.

// The messages, each by the name that it has here and in v1. This is a macro because no template
// turns one name into the other. Add a new message at the end: the fuzz targets number requests and
// replies by their place (wire/testing/conversion.h).
// clang-format off
#define DIVVY_WIRE_REQUESTS(M) \
  M(RegisterRequest) M(PsAttachRequest) M(LoadRequest) M(SnapshotRequest) M(SyncRequest) \
  M(CreateShardsRequest) M(DeleteShardsRequest) M(ShutdownRequest) M(WorkerAttachRequest)
#define DIVVY_WIRE_REPLIES(M) \
  M(RegisterReply) M(PsAttachReply) M(LoadReply) M(SnapshotReply) M(SyncReply) \
  M(LayoutReply) M(ShutdownReply) M(WorkerAttachReply)
#define DIVVY_WIRE_PARTS(M) \
  M(Fence) M(ProtocolRange) M(Horizon) M(InputLease) M(RememberedEntry) \
  M(ProgramDescription) M(CheckpointId) M(SavedSlice) M(PsAddress) M(TablePartStats)
// clang-format on

// ToProto REQUIRES that a WorkerAttachRequest has a layout.
#define DIVVY_WIRE_CONVERSION(Type)    \
  v1::Type ToProto(const Type& value); \
  absl::StatusOr<Type> FromProto(const v1::Type& from);
DIVVY_WIRE_REQUESTS(DIVVY_WIRE_CONVERSION)
DIVVY_WIRE_REPLIES(DIVVY_WIRE_CONVERSION)
DIVVY_WIRE_PARTS(DIVVY_WIRE_CONVERSION)
#undef DIVVY_WIRE_CONVERSION

v1::EntryKind ToProto(EntryKind kind);
absl::StatusOr<EntryKind> FromProto(v1::EntryKind kind);

// ---- requests of an operator ----
// The incarnation of the coordinator that is meant. The requests have no other field, except the
// number of parameter servers of a resize, which the coordinator checks.
absl::StatusOr<Incarnation> FromProto(const v1::RequestCheckpointRequest& request);
absl::StatusOr<Incarnation> FromProto(const v1::DrainRequest& request);
absl::StatusOr<Incarnation> FromProto(const v1::RebalanceRequest& request);
absl::StatusOr<Incarnation> FromProto(const v1::ResizeRequest& request);

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_MESSAGES_H_
