// The coordinator's word on itself.
#ifndef DIVVY_COORDINATOR_SERVICE_COORDINATOR_STATUS_H_
#define DIVVY_COORDINATOR_SERVICE_COORDINATOR_STATUS_H_

#include "absl/status/status.h"
#include "coordinator/core/coordinator_options.h"
#include "coordinator/core/coordinator_snapshot.h"
#include "proto/divvy.pb.h"

namespace divvy {

// What Admin.GetStatus answers. Pure.
v1::TaskStatus CoordinatorTaskStatus(const CoordinatorOptions& options,
                                     const CoordinatorSnapshot& snapshot);
// Why an operator's Admin.RequestCheckpoint can make none now; OK if it can, now or later.
// NOT_READY while the program has not said whether it goes on from a checkpoint: to save would
// decide that it begins anew. JOB_OVER behind the end. Pure.
absl::Status RefusalToSave(const CoordinatorSnapshot& snapshot);
// What Admin.RequestCheckpoint and Admin.Drain answer. Pure.
v1::RequestCheckpointReply SavedForOperator(CheckpointId saved, int64_t durable_steps);
v1::DrainReply DrainedForOperator(const CoordinatorSnapshot& snapshot);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_SERVICE_COORDINATOR_STATUS_H_
