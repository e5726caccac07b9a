// What a process does, before it connects or listens, for tensors to move at the speed of the wire.
#ifndef DIVVY_RPC_TRANSPORT_H_
#define DIVVY_RPC_TRANSPORT_H_

namespace divvy {

// For a process that talks gRPC, before its first channel or server; more than once is fine. Thread-safe. Settings of the whole process:
// - gRPC's log is routed into ours (grpc_log.h);
// - up to 128 MiB of freed memory stay mapped, and only blocks above 64 MiB get mappings of their own: page faults in freshly mapped buffers are the largest
//   single cost of moving a tensor, a third of the processor time of a push of 1 MB;
// - Abseil's mutexes, which are gRPC's, do not look for deadlock cycles: Debian's library does so by default, under one lock for all of them.
void PrepareTransport();

}  // namespace divvy

#endif  // DIVVY_RPC_TRANSPORT_H_
