// The directory of sockets that `divvyctl launch` makes for a cluster, as the address of all its
// tasks: "unix:DIRECTORY".
#ifndef DIVVY_TOOLS_CTL_SOCKET_DIRECTORY_H_
#define DIVVY_TOOLS_CTL_SOCKET_DIRECTORY_H_

#include <string>
#include <vector>

#include "base/file_system.h"

namespace divvy {

// The addresses of the tasks whose sockets are in the directory that `address` names, sorted:
// "unix:DIRECTORY/chief", ... The sockets' locks are left out. Empty: the address is of another
// kind, or names no directory. Blocks on the file system.
std::vector<std::string> SocketsIn(const std::string& address, FileSystem& files);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_SOCKET_DIRECTORY_H_
