// Settings of the whole process that let tensors move at the speed of the network.
#ifndef DIVVY_RPC_TRANSPORT_H_
#define DIVVY_RPC_TRANSPORT_H_

namespace divvy {

// Call this in every process that uses gRPC, before its first channel or server. MakeChannel and
// Server::Start call it. Further calls do nothing. Thread-safe; does not block. It changes settings
// of the whole process:
// - gRPC's log is routed into ours (grpc_log.h).
// - Up to 128 MiB of freed memory stay mapped, and only blocks above 64 MiB get mappings of their
//   own. Page faults in freshly mapped buffers are the largest single cost of moving a tensor: a
//   third of the processor time of a push of 1 MB.
// - Abseil's mutexes, which gRPC uses, do not look for deadlock cycles. Debian's build of Abseil
//   does so by default, under one lock for all mutexes.
void PrepareTransport();

// Call this in a process that serves data streams, before it uses gRPC in any way; a later call has
// no effect. It sets an environment variable, so it is not safe while other threads read the
// environment. gRPC then lets the threads of a completion queue poll the connections of that queue
// themselves (GRPC_POLL_STRATEGY=poll). An environment that already sets GRPC_POLL_STRATEGY wins.
//
// By default any thread of the process that happens to poll reads a connection, and then hands the
// bytes to the data thread. That costs two wake-ups for each chunk, a quarter of the throughput of
// pushes of 1 MB. The price of the setting is one poll(2) over all connections of a queue, which is
// negligible for hundreds of connections.
void PrepareDataServing();

}  // namespace divvy

#endif  // DIVVY_RPC_TRANSPORT_H_
