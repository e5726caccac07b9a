// The status of a parameter server for Admin.GetStatus.
#ifndef DIVVY_PS_SERVER_SERVICE_PS_STATUS_H_
#define DIVVY_PS_SERVER_SERVICE_PS_STATUS_H_

#include "proto/divvy.pb.h"
#include "ps_server/core/parameter_server_core.h"

namespace divvy {

// The reply of Admin.GetStatus. Pure.
v1::TaskStatus PsTaskStatus(const ParameterServerOptions& options,
                            const ParameterServerSnapshot& snapshot);

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_SERVICE_PS_STATUS_H_
