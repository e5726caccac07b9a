// A process that is a parameter server, from its flags to its exit code.
#ifndef DIVVY_PS_SERVER_SERVICE_RUN_H_
#define DIVVY_PS_SERVER_SERVICE_RUN_H_

#include "rpc/task_server.h"

namespace divvy {

// Plays a parameter server until the process is to end; returns its exit code. For main, after the flags were parsed. REQUIRES: no other thread yet.
int RunParameterServer(const TaskOptions& task);

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_SERVICE_RUN_H_
