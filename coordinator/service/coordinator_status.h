// The coordinator's word on itself.
#ifndef DIVVY_COORDINATOR_SERVICE_COORDINATOR_STATUS_H_
#define DIVVY_COORDINATOR_SERVICE_COORDINATOR_STATUS_H_

#include "coordinator/core/coordinator_core.h"
#include "proto/divvy.pb.h"

namespace divvy {

// What Admin.GetStatus answers. Pure.
v1::TaskStatus CoordinatorTaskStatus(const CoordinatorOptions& options, const CoordinatorSnapshot& snapshot);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_SERVICE_COORDINATOR_STATUS_H_
