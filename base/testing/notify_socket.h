// Plays the service manager of this process (base/service_manager.h).
#ifndef DIVVY_BASE_TESTING_NOTIFY_SOCKET_H_
#define DIVVY_BASE_TESTING_NOTIFY_SOCKET_H_

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/process.h"
#include "gtest/gtest.h"

namespace divvy {

// A socket that gets what TellServiceManager sends, as long as it exists. REQUIRES: a process has
// one at a time; no other thread reads the environment while it is made or destroyed.
class NotifySocket {
 public:
  // `name`: an absolute path, or '@' and an abstract name; by default one that only this process
  // has. A path is removed with the object. The test fails if the name has more than 107
  // characters; ::testing::TempDir() alone may be longer.
  explicit NotifySocket(const std::string& name = absl::StrCat("@divvy-notify-", ProcessId())) {
    sockaddr_un address = {};
    if (name.empty() || name.size() >= sizeof(address.sun_path)) {
      ADD_FAILURE() << name << " has " << name.size() << " characters; wanted 1 to "
                    << sizeof(address.sun_path) - 1;
      return;
    }
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    socket_ = Descriptor(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())),
              0)
        << strerror(errno);
    if (name[0] != '@') path_ = name;
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  ~NotifySocket() {
    unsetenv("NOTIFY_SOCKET");
    if (!path_.empty()) unlink(path_.c_str());
  }
  NotifySocket(const NotifySocket&) = delete;

  // The next message. Empty: there is none.
  std::string Received() {
    char buffer[4096];
    const ssize_t n = recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    return n < 0 ? std::string() : std::string(buffer, static_cast<size_t>(n));
  }

 private:
  Descriptor socket_;
  // Empty: there is no file.
  std::string path_;
};

}  // namespace divvy

#endif  // DIVVY_BASE_TESTING_NOTIFY_SOCKET_H_
