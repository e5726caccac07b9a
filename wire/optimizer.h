// Conversions of optimizers and their schedules.
#ifndef DIVVY_WIRE_OPTIMIZER_H_
#define DIVVY_WIRE_OPTIMIZER_H_

#include "absl/status/statusor.h"
#include "optimizers/optimizer.h"
#include "proto/divvy.pb.h"

namespace divvy::wire {

// Pure, thread-safe. FromProto returns a value that has passed Validate (optimizers/optimizer.h),
// or InvalidArgument with Reason::kInvalid, which names the field.

v1::LearningRate ToProto(const LearningRate& rate);
absl::StatusOr<LearningRate> FromProto(const v1::LearningRate& rate);

v1::Optimizer ToProto(const Optimizer& optimizer);
absl::StatusOr<Optimizer> FromProto(const v1::Optimizer& optimizer);

v1::OptimizerStep ToProto(const OptimizerStep& step);
absl::StatusOr<OptimizerStep> FromProto(const v1::OptimizerStep& step);

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_OPTIMIZER_H_
