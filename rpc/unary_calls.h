// The unary calls of the roles' services in proto/divvy.proto, each written once. Three things are
// made from this list: the services' handlers (DIVVY_HANDLE_UNARY), the clients' calls
// (DIVVY_UNARY_WAY), and the calls of the tests of hostile peers.
//
// M(service, method, request, reply, deadline). The request has its name in v1 and in
// protocol/messages.h; the reply has it in v1. rpc/unary_call.h has the deadlines.
#ifndef DIVVY_RPC_UNARY_CALLS_H_
#define DIVVY_RPC_UNARY_CALLS_H_

// clang-format off
#define DIVVY_COORDINATOR_CALLS(M) \
  M(Coordinator, Register, RegisterRequest, RegisterReply, kCallDeadline)
#define DIVVY_WORKER_CALLS(M) \
  M(Worker, Attach, WorkerAttachRequest, WorkerAttachReply, kAttachDeadline) \
  M(Worker, Shutdown, ShutdownRequest, ShutdownReply, kCallDeadline)
#define DIVVY_PARAMETER_SERVER_CALLS(M) \
  M(ParameterServer, Attach, PsAttachRequest, PsAttachReply, kAttachDeadline) \
  M(ParameterServer, Load, LoadRequest, LoadReply, kLoadDeadline) \
  M(ParameterServer, Sync, SyncRequest, SyncReply, kSyncDeadline) \
  M(ParameterServer, Snapshot, SnapshotRequest, SnapshotReply, kCallDeadline) \
  M(ParameterServer, CreateShards, CreateShardsRequest, LayoutReply, kCreateDeadline) \
  M(ParameterServer, DeleteShards, DeleteShardsRequest, LayoutReply, kCallDeadline) \
  M(ParameterServer, Shutdown, ShutdownRequest, ShutdownReply, kCallDeadline)
// clang-format on

#endif  // DIVVY_RPC_UNARY_CALLS_H_
