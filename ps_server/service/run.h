// A process that is a parameter server, from its flags to its exit code.
#ifndef DIVVY_PS_SERVER_SERVICE_RUN_H_
#define DIVVY_PS_SERVER_SERVICE_RUN_H_

#include "ps_server/core/parameter_server_core.h"
#include "task/task_server.h"

namespace divvy {

// What the flags say of the memory of a parameter server that receives nothing over a network:
// --memory_limit_bytes, --snapshot_buffer_bytes, and --commit_buffer_bytes where it is not the
// default, for no commit is buffered. To be called after they were parsed; they have their defaults
// in a process that parses none.
ParameterServerOptions PsLimitsFromFlags();

// Plays a parameter server until the process is to end; returns its exit code. For main, after the
// flags were parsed. REQUIRES: no other thread yet.
int RunParameterServer(const TaskOptions& task);

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_SERVICE_RUN_H_
