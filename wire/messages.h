// The unary calls: requests and replies (cluster/messages.h) as they travel. The Steps stream is
// steps.h, the data streams are data_frames.h.
#ifndef DIVVY_WIRE_MESSAGES_H_
#define DIVVY_WIRE_MESSAGES_H_

#include "absl/status/statusor.h"
#include "cluster/messages.h"
#include "proto/divvy.pb.h"

namespace divvy::wire {

// Pure, thread-safe, total: any message of the wire gives a value that keeps the promises of its
// type, or InvalidArgument with Reason::kInvalid that names the field, and nothing larger than the
// message is allocated on the way. What a *state* allows (epochs, sessions, existing shards) is not
// checked here: that is the core's, beginning with CheckPrelude. FromProto(ToProto(x)) equals x for
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

v1::Fence ToProto(const Fence& fence);
absl::StatusOr<Fence> FromProto(const v1::Fence& fence);
v1::ProtocolRange ToProto(const ProtocolRange& range);
absl::StatusOr<ProtocolRange> FromProto(const v1::ProtocolRange& range);
v1::EntryKind ToProto(EntryKind kind);
absl::StatusOr<EntryKind> FromProto(v1::EntryKind kind);
v1::Horizon ToProto(const Horizon& horizon);
absl::StatusOr<Horizon> FromProto(const v1::Horizon& horizon);
v1::InputLease ToProto(const InputLease& lease);
absl::StatusOr<InputLease> FromProto(const v1::InputLease& from);
v1::RememberedEntry ToProto(const RememberedEntry& entry);
absl::StatusOr<RememberedEntry> FromProto(const v1::RememberedEntry& entry);

// ---- registration ----
v1::ProgramDescription ToProto(const ProgramDescription& program);
absl::StatusOr<ProgramDescription> FromProto(const v1::ProgramDescription& program);
v1::RegisterRequest ToProto(const RegisterRequest& request);
absl::StatusOr<RegisterRequest> FromProto(const v1::RegisterRequest& request);
v1::RegisterReply ToProto(const RegisterReply& reply);
absl::StatusOr<RegisterReply> FromProto(const v1::RegisterReply& reply);

// ---- parameter server ----
v1::PsAttachRequest ToProto(const PsAttachRequest& request);
absl::StatusOr<PsAttachRequest> FromProto(const v1::PsAttachRequest& request);
v1::PsAttachReply ToProto(const PsAttachReply& reply);
absl::StatusOr<PsAttachReply> FromProto(const v1::PsAttachReply& reply);
v1::LoadRequest ToProto(const LoadRequest& request);
absl::StatusOr<LoadRequest> FromProto(const v1::LoadRequest& request);
v1::LoadReply ToProto(const LoadReply& reply);
absl::StatusOr<LoadReply> FromProto(const v1::LoadReply& reply);
v1::CheckpointId ToProto(const CheckpointId& checkpoint);
absl::StatusOr<CheckpointId> FromProto(const v1::CheckpointId& checkpoint);
v1::SnapshotRequest ToProto(const SnapshotRequest& request);
absl::StatusOr<SnapshotRequest> FromProto(const v1::SnapshotRequest& request);
v1::SavedSlice ToProto(const SavedSlice& slice);
absl::StatusOr<SavedSlice> FromProto(const v1::SavedSlice& slice);
v1::SnapshotReply ToProto(const SnapshotReply& reply);
absl::StatusOr<SnapshotReply> FromProto(const v1::SnapshotReply& reply);
v1::SyncRequest ToProto(const SyncRequest& request);
absl::StatusOr<SyncRequest> FromProto(const v1::SyncRequest& request);
v1::SyncReply ToProto(const SyncReply& reply);
absl::StatusOr<SyncReply> FromProto(const v1::SyncReply& reply);
v1::CreateShardsRequest ToProto(const CreateShardsRequest& request);
absl::StatusOr<CreateShardsRequest> FromProto(const v1::CreateShardsRequest& request);
v1::DeleteShardsRequest ToProto(const DeleteShardsRequest& request);
absl::StatusOr<DeleteShardsRequest> FromProto(const v1::DeleteShardsRequest& request);
v1::LayoutReply ToProto(const LayoutReply& reply);
absl::StatusOr<LayoutReply> FromProto(const v1::LayoutReply& reply);
v1::ShutdownRequest ToProto(const ShutdownRequest& request);
absl::StatusOr<ShutdownRequest> FromProto(const v1::ShutdownRequest& request);
v1::ShutdownReply ToProto(const ShutdownReply& reply);
absl::StatusOr<ShutdownReply> FromProto(const v1::ShutdownReply& reply);

// ---- of an operator ----
// The life of the coordinator that is meant; the requests hold nothing else but the number of a
// resize, which the coordinator checks.
absl::StatusOr<Incarnation> FromProto(const v1::RequestCheckpointRequest& request);
absl::StatusOr<Incarnation> FromProto(const v1::DrainRequest& request);
absl::StatusOr<Incarnation> FromProto(const v1::ResizeRequest& request);

// ---- worker ----
v1::PsAddress ToProto(const PsAddress& address);
absl::StatusOr<PsAddress> FromProto(const v1::PsAddress& address);
// REQUIRES: a layout.
v1::WorkerAttachRequest ToProto(const WorkerAttachRequest& request);
absl::StatusOr<WorkerAttachRequest> FromProto(const v1::WorkerAttachRequest& request);
v1::WorkerAttachReply ToProto(const WorkerAttachReply& reply);
absl::StatusOr<WorkerAttachReply> FromProto(const v1::WorkerAttachReply& reply);

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_MESSAGES_H_
