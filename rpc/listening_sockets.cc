#include "rpc/listening_sockets.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "cluster/task_address.h"
#include "rpc/failure_text.h"

namespace divvy {
namespace {

constexpr int kBacklog = 1024;  // connections that wait to be taken; the kernel may allow fewer (net.core.somaxconn)

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::Status CannotListen(const std::string& address, absl::string_view why) {
  return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", address, ": ", ListenFailure(why)));
}

bool Set(const Descriptor& socket, int level, int option, int value) { return setsockopt(socket.get(), level, option, &value, sizeof(value)) == 0; }

bool IsWildcard(absl::string_view host) { return host.empty() || host == "*" || host == "0.0.0.0" || host == "::"; }

void SetPort(sockaddr* address, int port) {
  const in_port_t number = htons(static_cast<uint16_t>(port));
  address->sa_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(address)->sin6_port = number : reinterpret_cast<sockaddr_in*>(address)->sin_port = number;
}

int PortOf(const Descriptor& socket) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

// `dual`: an IPv6 socket takes connections of IPv4, too. None: errno says why.
Descriptor ListenOn(const addrinfo& address, bool dual) {
  Descriptor fd(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool good = fd && Set(fd, SOL_SOCKET, SO_REUSEADDR, 1) && Set(fd, IPPROTO_TCP, TCP_NODELAY, 1) &&
                    (address.ai_family != AF_INET6 || Set(fd, IPPROTO_IPV6, IPV6_V6ONLY, dual ? 0 : 1)) &&
                    bind(fd.get(), address.ai_addr, address.ai_addrlen) == 0 && listen(fd.get(), kBacklog) == 0;
  return good ? std::move(fd) : Descriptor();
}

// `numbers`: 0, or what getaddrinfo failed with.
Addresses Resolve(const std::string& host, int family, int& error) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  error = getaddrinfo(host.empty() ? nullptr : host.c_str(), "0", &hints, &found);
  return Addresses(error == 0 ? found : nullptr, &freeaddrinfo);
}

Descriptor ConnectTo(const sockaddr_un& address) {
  Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return fd && connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ? std::move(fd) : Descriptor();
}

// What a process that was killed has left. Not a file of another kind, nor a socket at which somebody listens.
bool RemoveDeadSocket(const sockaddr_un& address) {
  struct stat info;
  if (lstat(address.sun_path, &info) != 0 || !S_ISSOCK(info.st_mode)) return errno = EADDRINUSE, false;
  const bool dead = !ConnectTo(address) && errno == ECONNREFUSED && unlink(address.sun_path) == 0;
  if (!dead) errno = EADDRINUSE;
  return dead;
}

std::string WhyNotOnPath(int error) {
  if (error == EADDRINUSE) return "another process listens there, or a file that is no socket stands there: remove it, or choose another path";
  if (error == ENAMETOOLONG) return absl::StrCat("its path has more than ", kMaxSocketPath, " bytes");
  return strerror(error);
}

// None: errno says why.
Descriptor ListenOnPath(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return errno = ENAMETOOLONG, Descriptor();
  std::memcpy(address.sun_path, path.data(), path.size());
  Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return Descriptor();
  const auto bound = [&] { return bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0; };
  if (!bound() && (errno != EADDRINUSE || !(RemoveDeadSocket(address) && bound()))) return Descriptor();
  return chmod(address.sun_path, 0600) == 0 && listen(fd.get(), kBacklog) == 0 ? std::move(fd) : Descriptor();
}

// This machine may lack the address, or its whole family: another address of the same name will do.
bool IsNotOfThisMachine(int error) { return error == EADDRNOTAVAIL || error == EAFNOSUPPORT; }

}  // namespace

absl::StatusOr<ListeningSockets> ListeningSockets::OnPath(const std::string& path) {
  ListeningSockets opened;
  opened.sockets_.push_back(ListenOnPath(path));
  if (!opened.sockets_[0]) return absl::FailedPreconditionError(absl::StrCat("cannot listen on the Unix socket ", path, ": ", WhyNotOnPath(errno)));
  return opened;
}

absl::StatusOr<ListeningSockets> ListeningSockets::Open(const std::string& address) {
  if (const auto path = SocketPathOf(address)) return OnPath(*path);
  const size_t colon = address.rfind(':');
  absl::string_view host = absl::string_view(address).substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  ListeningSockets opened;
  if (colon == address.npos || !absl::SimpleAtoi(absl::string_view(address).substr(colon + 1), &opened.port_)) return CannotListen(address, "no port");
  const bool every = IsWildcard(host);
  int error = 0, why = 0;
  for (const int family : every ? std::vector<int>{AF_INET6, AF_INET} : std::vector<int>{AF_UNSPEC}) {
    const Addresses addresses = Resolve(every ? "" : std::string(host), family, error);
    for (const addrinfo* next = addresses.get(); next != nullptr; next = next->ai_next) {
      SetPort(next->ai_addr, opened.port_);
      Descriptor socket = ListenOn(*next, every);
      if (!socket && !IsNotOfThisMachine(why = errno)) return CannotListen(address, strerror(why));
      if (!socket) continue;
      opened.port_ = PortOf(socket);
      opened.sockets_.push_back(std::move(socket));
    }
    if (every && !opened.sockets_.empty()) break;  // the socket of IPv6 takes both
  }
  if (!opened.sockets_.empty()) return opened;
  return CannotListen(address, error != 0 ? gai_strerror(error) : strerror(why));
}

Descriptor AcceptConnection(const Descriptor& socket) { return Descriptor(accept4(socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)); }

}  // namespace divvy
