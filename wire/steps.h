// The frames of the Steps stream and what they carry.
#ifndef DIVVY_WIRE_STEPS_H_
#define DIVVY_WIRE_STEPS_H_

#include "absl/status/statusor.h"
#include "proto/divvy.pb.h"
#include "protocol/messages.h"
#include "protocol/resumable_stream.h"

namespace divvy::wire {

// As messages.h: pure, thread-safe, total; InvalidArgument with Reason::kInvalid names the field. A
// frame that is refused came from a faulty sender, who would send it again after a resume: close
// the stream for good rather than reopen it. Besides what messages.h says: attempts and numbers of
// messages begin at 1, a Resume brings no message, positions and ordinals are not negative, a
// learning rate's scale is finite, and a failed Report says why.

// REQUIRES: a LayoutUpdate has a layout.
v1::ToWorkerFrame ToProto(const StreamFrame<ToWorker>& frame);
absl::StatusOr<StreamFrame<ToWorker>> FromProto(const v1::ToWorkerFrame& frame);

v1::FromWorkerFrame ToProto(const StreamFrame<FromWorker>& frame);
absl::StatusOr<StreamFrame<FromWorker>> FromProto(const v1::FromWorkerFrame& frame);

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_STEPS_H_
