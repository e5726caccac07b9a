#include "base/service_manager.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/log.h"

namespace divvy {

absl::Status TellServiceManager(absl::string_view state) {
  const char* const name = std::getenv("NOTIFY_SOCKET");
  if (name == nullptr || *name == '\0') return absl::OkStatus();
  const absl::string_view path = name;
  sockaddr_un address = {};
  if ((path[0] != '/' && path[0] != '@') || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("NOTIFY_SOCKET=", path, " is neither an absolute path nor an abstract name (@",
                     "NAME) of less than ", sizeof(address.sun_path), " characters"));
  }
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path.data(), path.size());
  if (path[0] == '@') address.sun_path[0] = '\0';

  const Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const timeval at_most = {1, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &at_most, sizeof at_most);
  // The name of an abstract socket has no zero at its end.
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  if (sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL,
             reinterpret_cast<const sockaddr*>(&address), size) < 0)
    return absl::UnavailableError(absl::StrCat("NOTIFY_SOCKET=", path, ": ", strerror(errno)));
  return absl::OkStatus();
}

void TellServiceManagerOrWarn(absl::string_view state) {
  const absl::Status told = TellServiceManager(state);
  if (!told.ok()) DIVVY_LOG(WARNING) << "cannot tell the service manager: " << told.message();
}

}  // namespace divvy
