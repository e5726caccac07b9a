// Tells systemd, or another service manager, what this process does.
#ifndef DIVVY_BASE_SERVICE_MANAGER_H_
#define DIVVY_BASE_SERVICE_MANAGER_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace divvy {

// Sends `state` to the service manager that started this process, by the protocol of sd_notify(3).
// `state` has one or more lines such as "READY=1" and "STATUS=serves at ps-0:2222".
//
// The environment's NOTIFY_SOCKET names the manager's socket: an absolute path, or '@' and an
// abstract name. Without it nobody is told, and the result is OK. InvalidArgument: NOTIFY_SOCKET is
// neither, or is too long. Unavailable: the socket does not take the message. Callers may ignore
// errors, since the service manager notices a missing READY=1. Blocks for at most a second, if the
// service manager does not read. Thread-safe, if no thread changes the environment.
absl::Status TellServiceManager(absl::string_view state);
// The same, except that it logs an error as a warning.
void TellServiceManagerOrWarn(absl::string_view state);

}  // namespace divvy

#endif  // DIVVY_BASE_SERVICE_MANAGER_H_
