// The coordinator's end of a Steps stream.
#ifndef DIVVY_RPC_STEPS_CLIENT_H_
#define DIVVY_RPC_STEPS_CLIENT_H_

#include <memory>

#include "absl/time/time.h"
#include "proto/divvy.grpc.pb.h"
#include "protocol/clients.h"
#include "rpc/silence_watch.h"
#include "rpc/unary_call.h"

namespace divvy {

// Implements WorkerClient::OpenSteps. Does not block. Frames are written in the order of Send, one
// message at a time (rpc/frame_queue.h). The cores number the frames and resume a broken stream
// (protocol/resumable_stream.h).
//
// The stream breaks once, for one of these reasons:
// - The connection fails.
// - Nothing has arrived for `silence`.
// - A frame arrives that cannot be decoded. The frame is logged, since its sender is faulty.
// - The environment is closed.
//
// The listener then gets OnBroken, which has no error; the next call to the worker returns it.
// Close, or destroying the connection, ends the stream without OnBroken.
//
// The listener gets frames on gRPC's thread that has read them, because waking another thread for
// each would take longer than handling them. It gets OnBroken as a task of the Executor.
std::shared_ptr<StreamConnection<ToWorker>> OpenStepsStream(
    const CallEnvironment& environment, const std::shared_ptr<v1::Worker::Stub>& stub,
    std::shared_ptr<StreamListener<FromWorker>> listener, absl::Duration silence = kStreamSilence);

}  // namespace divvy

#endif  // DIVVY_RPC_STEPS_CLIENT_H_
