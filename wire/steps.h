// Conversions of the frames of the Steps stream and of their messages.
#ifndef DIVVY_WIRE_STEPS_H_
#define DIVVY_WIRE_STEPS_H_

#include "absl/status/statusor.h"
#include "proto/divvy.pb.h"
#include "protocol/messages.h"
#include "protocol/resumable_stream.h"

namespace divvy::wire {

// Pure and thread-safe, with the promises of messages.h: any frame gives a value, or
// InvalidArgument with Reason::kInvalid, which names the field. If a frame is refused, close the
// stream for good: its sender is faulty, and would send the frame again after a resume. These
// promises are added: attempts and message numbers begin at 1, a Resume has no message, positions
// and ordinals are not negative, the learning rate scale is finite, and a failed Report has an
// error.

// REQUIRES: a LayoutUpdate has a layout.
v1::ToWorkerFrame ToProto(const StreamFrame<ToWorker>& frame);
absl::StatusOr<StreamFrame<ToWorker>> FromProto(const v1::ToWorkerFrame& frame);

v1::FromWorkerFrame ToProto(const StreamFrame<FromWorker>& frame);
absl::StatusOr<StreamFrame<FromWorker>> FromProto(const v1::FromWorkerFrame& frame);

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_STEPS_H_
