// The process of a parameter server, from its flags to its exit code.
#ifndef DIVVY_PS_SERVER_SERVICE_RUN_H_
#define DIVVY_PS_SERVER_SERVICE_RUN_H_

#include "ps_server/core/parameter_server_core.h"
#include "task/task_server.h"

namespace divvy {

// The memory limits in the flags, for a parameter server that receives nothing over a network:
// --memory_limit_bytes, --snapshot_buffer_bytes, and --commit_buffer_bytes if it differs from its
// default (no commit is buffered, so the default sets no limit). Call it after the flags have been
// parsed. In a process that parses no flags, they have their defaults.
ParameterServerOptions PsLimitsFromFlags();

// Runs a parameter server until the process should end, and returns the exit code. For main, after
// the flags have been parsed. Blocks. REQUIRES: no other thread runs yet.
int RunParameterServer(const TaskOptions& task);

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_SERVICE_RUN_H_
