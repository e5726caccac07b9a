#include "base/testing/loopback_port.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace divvy {

absl::StatusOr<LoopbackPort> LoopbackPort::Reserve() {
  Descriptor holder(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const int on = 1;
  // If both sockets set SO_REUSEADDR, Linux lets one listen on a port to which the other is only
  // bound.
  const bool bound = holder &&
                     setsockopt(holder.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
                     bind(holder.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(holder.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (!bound) return absl::ErrnoToStatus(errno, "cannot get a free port on 127.0.0.1");
  return LoopbackPort(std::move(holder), ntohs(address.sin_port));
}

std::string LoopbackPort::address() const { return absl::StrCat("127.0.0.1:", number_); }

}  // namespace divvy
