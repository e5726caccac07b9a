// A plain TCP connection to a port of this machine, for tests that send what no client of ours
// would.
#ifndef DIVVY_TESTS_E2E_LOOPBACK_CLIENT_H_
#define DIVVY_TESTS_E2E_LOOPBACK_CLIENT_H_

#include <netinet/in.h>

#include <string>

#include "absl/time/time.h"
#include "base/descriptor.h"

namespace divvy {

sockaddr_in LoopbackAddress(int port);

// `address`: "127.0.0.1:port". None (false): nobody listens there.
Descriptor ConnectTo(const std::string& address);

// Whether `event` (POLLIN, POLLOUT) is due within `timeout`.
bool WaitForEvent(const Descriptor& socket, short event, absl::Duration timeout);

// Sends all of it; false: the connection broke, or took nothing for `timeout`.
bool Send(const Descriptor& socket, const std::string& bytes,
          absl::Duration timeout = absl::Seconds(30));

// Up to `size` bytes; fewer: the connection ended, or nothing came for `timeout`.
std::string Receive(const Descriptor& socket, size_t size,
                    absl::Duration timeout = absl::Seconds(30));

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_LOOPBACK_CLIENT_H_
