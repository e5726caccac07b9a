// The coordinator's word on itself.
#ifndef DIVVY_COORDINATOR_SERVICE_COORDINATOR_STATUS_H_
#define DIVVY_COORDINATOR_SERVICE_COORDINATOR_STATUS_H_

#include "absl/status/status.h"
#include "coordinator/core/coordinator_core.h"
#include "proto/divvy.pb.h"

namespace divvy {

// What Admin.GetStatus answers. Pure.
v1::TaskStatus CoordinatorTaskStatus(const CoordinatorOptions& options, const CoordinatorSnapshot& snapshot);
// Why an operator's Admin.RequestCheckpoint can make none now; OK if it can. NOT_READY before the job has begun: to save then would decide that it begins anew,
// which is the program's to decide. JOB_OVER behind its end. Pure.
absl::Status RefusalToSave(const CoordinatorSnapshot& snapshot);
// What Admin.RequestCheckpoint and Admin.Drain answer. Pure.
v1::RequestCheckpointReply SavedForOperator(CheckpointId saved, int64_t durable_steps);
v1::DrainReply DrainedForOperator(const CoordinatorSnapshot& snapshot);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_SERVICE_COORDINATOR_STATUS_H_
