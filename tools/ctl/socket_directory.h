// `divvyctl launch` makes a directory with the sockets of all its tasks. "unix:DIRECTORY" is the
// address of all of them.
#ifndef DIVVY_TOOLS_CTL_SOCKET_DIRECTORY_H_
#define DIVVY_TOOLS_CTL_SOCKET_DIRECTORY_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/file_system.h"

namespace divvy {

// The addresses of the tasks whose sockets are in the directory that `address` names, sorted:
// "unix:DIRECTORY/chief", ... Lock files are left out. Empty if the address is of another kind, or
// names no directory. Blocks on the file system.
std::vector<std::string> SocketsIn(const std::string& address, FileSystem& files);

// The task that listens at a socket of such a directory, by the socket's name: "chief", "ps 0".
// Pure.
std::string TaskOfSocket(absl::string_view socket);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_SOCKET_DIRECTORY_H_
