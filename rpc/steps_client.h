// The coordinator's end of a Steps stream.
#ifndef DIVVY_RPC_STEPS_CLIENT_H_
#define DIVVY_RPC_STEPS_CLIENT_H_

#include <memory>

#include "absl/time/time.h"
#include "cluster/clients.h"
#include "proto/divvy.grpc.pb.h"
#include "rpc/silence_watch.h"
#include "rpc/unary_call.h"

namespace divvy {

// As WorkerClient::OpenSteps. Frames go out in the order of Send, one at a time; the numbering is
// the cores' (cluster/resumable_stream.h). The stream breaks, once, when the way does, when nothing
// has come for `silence`, and at a frame that cannot be decoded (logged: its sender is faulty).
// Letting the connection go closes it. OnBroken says nothing of why: the next call to the worker
// does.
std::shared_ptr<StreamConnection<ToWorker>> OpenStepsStream(
    const CallEnvironment& environment, const std::shared_ptr<v1::Worker::Stub>& stub,
    std::shared_ptr<StreamListener<FromWorker>> listener, absl::Duration silence = kStreamSilence);

}  // namespace divvy

#endif  // DIVVY_RPC_STEPS_CLIENT_H_
