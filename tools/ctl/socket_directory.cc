#include "tools/ctl/socket_directory.h"

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cluster/task_address.h"
#include "rpc/unix_socket.h"

namespace divvy {

std::vector<std::string> SocketsIn(const std::string& address, FileSystem& files) {
  const std::optional<std::string> path = SocketPathOf(address);
  if (!path) return {};
  std::vector<std::string> sockets;
  for (const std::string& name : files.ListDirectory(*path).value_or(std::vector<std::string>())) {
    if (!absl::EndsWith(name, kSocketLockSuffix))
      sockets.push_back(absl::StrCat("unix:", *path, "/", name));
  }
  std::sort(sockets.begin(), sockets.end());
  return sockets;
}

std::string TaskOfSocket(absl::string_view socket) {
  return absl::StrReplaceAll(socket.substr(socket.rfind('/') + 1), {{"-", " "}});
}

}  // namespace divvy
