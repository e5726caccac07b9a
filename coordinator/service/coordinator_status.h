// The coordinator's answers to an operator's Admin calls.
#ifndef DIVVY_COORDINATOR_SERVICE_COORDINATOR_STATUS_H_
#define DIVVY_COORDINATOR_SERVICE_COORDINATOR_STATUS_H_

#include "absl/status/status.h"
#include "coordinator/core/coordinator_options.h"
#include "coordinator/core/coordinator_snapshot.h"
#include "coordinator/report/reporter.h"
#include "proto/divvy.pb.h"

namespace divvy {

// The answer to Admin.GetStatus, without the other tasks. `reached`: what the program's metrics
// tell. Pure.
v1::TaskStatus CoordinatorTaskStatus(const CoordinatorOptions& options,
                                     const CoordinatorSnapshot& snapshot,
                                     const Reporter::Reached& reached);
// The error of Admin.RequestCheckpoint if the job cannot make a checkpoint. OK: it can, now or
// later. NOT_READY: the program has not decided whether it restores a checkpoint, and a save would
// decide that it begins anew. The operator may ask again later. JOB_OVER: the job has ended. Pure.
absl::Status RefusalToSave(const CoordinatorSnapshot& snapshot);
// The answers to Admin.RequestCheckpoint and Admin.Drain. Pure.
v1::RequestCheckpointReply SavedForOperator(CheckpointId saved, int64_t durable_steps);
v1::DrainReply DrainedForOperator(const CoordinatorSnapshot& snapshot);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_SERVICE_COORDINATOR_STATUS_H_
