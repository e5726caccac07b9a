// The coordinator's end of a Steps stream.
#ifndef DIVVY_RPC_STEPS_CLIENT_H_
#define DIVVY_RPC_STEPS_CLIENT_H_

#include <memory>

#include "cluster/clients.h"
#include "proto/divvy.grpc.pb.h"
#include "rpc/unary_call.h"

namespace divvy {

// As WorkerClient::OpenSteps. A frame that cannot be decoded breaks the stream. The numbering of frames is the cores' (cluster/resumable_stream.h).
std::shared_ptr<StreamConnection<ToWorker>> OpenStepsStream(const CallEnvironment& environment, const std::shared_ptr<v1::Worker::Stub>& stub,
                                                            std::shared_ptr<StreamListener<FromWorker>> listener);

}  // namespace divvy

#endif  // DIVVY_RPC_STEPS_CLIENT_H_
