#include "rpc/listening_sockets.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "cluster/task_address.h"
#include "rpc/closed_in_forks.h"
#include "rpc/failure_text.h"
#include "rpc/unix_socket.h"

namespace divvy {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::Status CannotListen(const std::string& address, absl::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot listen on ", address, ": ", ListenFailure(why)));
}

bool Set(const Descriptor& socket, int level, int option, int value) {
  return setsockopt(socket.get(), level, option, &value, sizeof(value)) == 0;
}

bool IsWildcard(absl::string_view host) {
  return host.empty() || host == "*" || host == "0.0.0.0" || host == "::";
}

void SetPort(sockaddr* address, int port) {
  const in_port_t number = htons(static_cast<uint16_t>(port));
  address->sa_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(address)->sin6_port = number
                                 : reinterpret_cast<sockaddr_in*>(address)->sin_port = number;
}

int PortOf(const Descriptor& socket) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                           : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

// `dual`: an IPv6 socket also accepts IPv4 connections. If the result is empty, errno has the
// error.
Descriptor ListenOn(const addrinfo& address, bool dual) {
  Descriptor fd = ClosedInForks(
      Descriptor(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  const bool good =
      fd && Set(fd, SOL_SOCKET, SO_REUSEADDR, 1) && Set(fd, IPPROTO_TCP, TCP_NODELAY, 1) &&
      (address.ai_family != AF_INET6 || Set(fd, IPPROTO_IPV6, IPV6_V6ONLY, dual ? 0 : 1)) &&
      bind(fd.get(), address.ai_addr, address.ai_addrlen) == 0 &&
      listen(fd.get(), kListenBacklog) == 0;
  return good ? std::move(fd) : Descriptor();
}

// The addresses of `host`. `error`: 0, or the error of getaddrinfo.
Addresses Resolve(const std::string& host, int family, int& error) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  error = getaddrinfo(host.empty() ? nullptr : host.c_str(), "0", &hints, &found);
  return Addresses(error == 0 ? found : nullptr, &freeaddrinfo);
}

// This machine may lack the address or its whole family. Another address of the same name is
// enough.
bool IsNotOfThisMachine(int error) { return error == EADDRNOTAVAIL || error == EAFNOSUPPORT; }

}  // namespace

absl::StatusOr<ListeningSockets> ListeningSockets::OnPath(const std::string& path) {
  ListeningSockets opened;
  ASSIGN_OR_RETURN(UnixSocket made, ListenOnUnixSocket(path));
  opened.lock_ = std::move(made.lock);
  opened.sockets_.push_back(std::move(made.socket));
  return opened;
}

absl::StatusOr<ListeningSockets> ListeningSockets::Open(const std::string& address) {
  if (const auto path = SocketPathOf(address)) return OnPath(*path);
  const size_t colon = address.rfind(':');
  absl::string_view host = absl::string_view(address).substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  ListeningSockets opened;
  if (colon == address.npos ||
      !absl::SimpleAtoi(absl::string_view(address).substr(colon + 1), &opened.port_))
    return CannotListen(address, "no port");
  const bool every = IsWildcard(host);
  int error = 0, why = 0;
  for (const int family :
       every ? std::vector<int>{AF_INET6, AF_INET} : std::vector<int>{AF_UNSPEC}) {
    const Addresses addresses = Resolve(every ? "" : std::string(host), family, error);
    for (const addrinfo* next = addresses.get(); next != nullptr; next = next->ai_next) {
      SetPort(next->ai_addr, opened.port_);
      Descriptor socket = ListenOn(*next, every);
      if (!socket && !IsNotOfThisMachine(why = errno)) return CannotListen(address, strerror(why));
      if (!socket) continue;
      opened.port_ = PortOf(socket);
      opened.sockets_.push_back(std::move(socket));
    }
    // The IPv6 socket accepts both families.
    if (every && !opened.sockets_.empty()) break;
  }
  if (!opened.sockets_.empty()) return opened;
  return CannotListen(address, error != 0 ? gai_strerror(error) : strerror(why));
}

Descriptor AcceptConnection(const Descriptor& socket) {
  return ClosedInForks(
      Descriptor(accept4(socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
}

}  // namespace divvy
