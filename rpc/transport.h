// What a process does, before it connects or listens, for tensors to move at the speed of the wire.
#ifndef DIVVY_RPC_TRANSPORT_H_
#define DIVVY_RPC_TRANSPORT_H_

namespace divvy {

// For a process that talks gRPC, before its first channel or server; more than once is fine.
// Thread-safe. Settings of the whole process:
// - gRPC's log is routed into ours (grpc_log.h);
// - up to 128 MiB of freed memory stay mapped, and only blocks above 64 MiB get mappings of their
//   own: page faults in freshly mapped buffers are the largest
//   single cost of moving a tensor, a third of the processor time of a push of 1 MB;
// - Abseil's mutexes, which are gRPC's, do not look for deadlock cycles: Debian's library does so
//   by default, under one lock for all of them.
void PrepareTransport();

// For a process that serves data streams, before anything else of it uses gRPC; later it does
// nothing. Thread-safe. gRPC then lets the threads of a completion queue poll the connections of
// that queue themselves (GRPC_POLL_STRATEGY=poll), unless the environment says how it shall poll.
// By default any thread of the process that happens to poll reads a connection, and hands what it
// read to the data thread: two wake-ups for each chunk, a quarter of what a push of 1 MB can do.
// The price is a poll(2) over all connections of a queue, which is nothing for hundreds of them.
void PrepareDataServing();

}  // namespace divvy

#endif  // DIVVY_RPC_TRANSPORT_H_
