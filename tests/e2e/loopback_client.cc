#include "tests/e2e/loopback_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/numbers.h"
#include "base/clock.h"
#include "tools/launch/poll_until.h"

namespace divvy {

sockaddr_in LoopbackAddress(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

Descriptor ConnectTo(const std::string& address) {
  int port = 0;
  if (!absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) return Descriptor();
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in to = LoopbackAddress(port);
  return connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0
             ? std::move(socket)
             : Descriptor();
}

bool WaitForEvent(const Descriptor& socket, short event, absl::Duration timeout) {
  std::vector<pollfd> events = {{socket.get(), event, 0}};
  return PollUntil(events, Clock::Real().Elapsed() + timeout);
}

bool Send(const Descriptor& socket, const std::string& bytes, absl::Duration timeout) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    if (!WaitForEvent(socket, POLLOUT, timeout)) return false;
    const ssize_t put =
        send(socket.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put < 0) return false;
    sent += static_cast<size_t>(put);
  }
  return true;
}

std::string Receive(const Descriptor& socket, size_t size, absl::Duration timeout) {
  std::string bytes;
  char buffer[65536];
  while (bytes.size() < size && WaitForEvent(socket, POLLIN, timeout)) {
    const ssize_t got =
        recv(socket.get(), buffer, std::min(sizeof(buffer), size - bytes.size()), 0);
    if (got <= 0) break;
    bytes.append(buffer, static_cast<size_t>(got));
  }
  return bytes;
}

}  // namespace divvy
