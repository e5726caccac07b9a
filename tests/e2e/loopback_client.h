// A plain TCP connection to a port of this machine, for tests that send what none of our clients
// sends.
#ifndef DIVVY_TESTS_E2E_LOOPBACK_CLIENT_H_
#define DIVVY_TESTS_E2E_LOOPBACK_CLIENT_H_

#include <netinet/in.h>

#include <string>

#include "absl/time/time.h"
#include "base/descriptor.h"

namespace divvy {

sockaddr_in LoopbackAddress(int port);

// `address` is "127.0.0.1:port". The result is false if nothing listens there.
Descriptor ConnectTo(const std::string& address);

// Whether `event` (POLLIN, POLLOUT) occurs within `timeout`.
bool WaitForEvent(const Descriptor& socket, short event, absl::Duration timeout);

// Sends all of `bytes`. Returns false if the connection broke, or took nothing for `timeout`.
bool Send(const Descriptor& socket, const std::string& bytes,
          absl::Duration timeout = absl::Seconds(30));

// Reads `size` bytes; fewer if the connection ended, or nothing came for `timeout`.
std::string Receive(const Descriptor& socket, size_t size,
                    absl::Duration timeout = absl::Seconds(30));

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_LOOPBACK_CLIENT_H_
