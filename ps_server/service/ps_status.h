// The status of a parameter server for Admin.GetStatus.
#ifndef DIVVY_PS_SERVER_SERVICE_PS_STATUS_H_
#define DIVVY_PS_SERVER_SERVICE_PS_STATUS_H_

#include <cstdint>

#include "proto/divvy.pb.h"
#include "ps_server/core/parameter_server_core.h"

namespace divvy {

// What passes a parameter server's door.
struct PsTraffic {
  // In the life of this process.
  int64_t pull_rows = 0, push_rows = 0, pull_bytes = 0, push_bytes = 0;
  // Reserved now.
  int64_t commit_buffer_bytes = 0, reply_buffer_bytes = 0;
};

// The reply of Admin.GetStatus. Pure.
v1::TaskStatus PsTaskStatus(const ParameterServerOptions& options,
                            const ParameterServerSnapshot& snapshot, const PsTraffic& traffic);

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_SERVICE_PS_STATUS_H_
