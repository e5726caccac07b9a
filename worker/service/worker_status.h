// The status of a worker for Admin.GetStatus.
#ifndef DIVVY_WORKER_SERVICE_WORKER_STATUS_H_
#define DIVVY_WORKER_SERVICE_WORKER_STATUS_H_

#include <vector>

#include "ops/cuda/gpus.h"
#include "proto/divvy.pb.h"
#include "worker/core/worker_core.h"

namespace divvy {

// The reply of Admin.GetStatus. `devices`: those of the replicas. Reads options.metrics.
v1::TaskStatus WorkerTaskStatus(const WorkerOptions& options, const WorkerSnapshot& snapshot,
                                const std::vector<DeviceDescription>& devices);

}  // namespace divvy

#endif  // DIVVY_WORKER_SERVICE_WORKER_STATUS_H_
