#include "rpc/acceptor.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"

namespace divvy {
namespace {

// Limits how often closed connections are searched: each search makes one system call for each
// connection, and a flood must not cause many.
constexpr absl::Duration kLookEvery = absl::Milliseconds(100);
// The pause if no descriptor is left, not even the reserve.
constexpr int kAcceptPauseMs = 100;

Descriptor AnyDescriptor() { return Descriptor(eventfd(0, EFD_CLOEXEC)); }

std::optional<ino_t> InodeOf(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 ? std::optional<ino_t>(info.st_ino) : std::nullopt;
}

// The address without the port, which differs in each connection. "": not a TCP connection.
std::string AddressOfPeer(const Descriptor& connection) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  char host[NI_MAXHOST] = "";
  if (getpeername(connection.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      address.ss_family == AF_UNIX)
    return "";
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof(host), nullptr, 0,
                  NI_NUMERICHOST) != 0)
    return "";
  return host;
}

bool IsOutOfDescriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

OpenConnections::Admission OpenConnections::Judge(const std::string& from) const {
  if (open_.size() >= most_) return Admission::kTooMany;
  const auto others = of_address_.find(from);
  return others == of_address_.end() || others->second < most_of_one_address()
             ? Admission::kAdmitted
             : Admission::kTooManyOfOneAddress;
}

OpenConnections::Admission OpenConnections::Admit(int fd, const std::string& from,
                                                  absl::Duration now) {
  // The connection that had this number is closed.
  if (const auto before = open_.find(fd); before != open_.end()) Forget(before);
  if (Judge(from) != Admission::kAdmitted && now - looked_ >= kLookEvery) {
    looked_ = now;
    ForgetClosed();
  }
  const Admission admission = Judge(from);
  if (admission != Admission::kAdmitted) return admission;
  open_[fd] = {InodeOf(fd).value_or(0), from};
  if (!from.empty()) ++of_address_[from];
  return admission;
}

void OpenConnections::Forget(std::map<int, Open>::iterator connection) {
  const auto address = of_address_.find(connection->second.from);
  if (address != of_address_.end() && --address->second == 0) of_address_.erase(address);
  open_.erase(connection);
}

void OpenConnections::ForgetClosed() {
  for (auto next = open_.begin(); next != open_.end();) {
    const auto each = next++;
    if (InodeOf(each->first) != each->second.inode) Forget(each);
  }
}

Acceptor::Acceptor(ListeningSockets sockets, int max_connections, Take take)
    : sockets_(std::move(sockets)),
      max_connections_(max_connections),
      take_(std::move(take)),
      stop_(AnyDescriptor()),
      reserve_(AnyDescriptor()),
      open_(max_connections) {
  executor_.PostBlocking("accept", [this] { Run(); });
}

Acceptor::~Acceptor() { Stop(); }

void Acceptor::Stop() {
  eventfd_write(stop_.get(), 1);
  executor_.Stop();
  sockets_.Close();
}

void Acceptor::Run() {
  std::vector<pollfd> watched = {{stop_.get(), POLLIN, 0}};
  for (const Descriptor& socket : sockets_.sockets()) watched.push_back({socket.get(), POLLIN, 0});
  while (true) {
    // a signal
    if (poll(watched.data(), watched.size(), -1) < 0) continue;
    if (watched[0].revents != 0) return;
    for (size_t i = 1; i < watched.size(); ++i) {
      if (watched[i].revents != 0) TakeOne(sockets_.sockets()[i - 1]);
    }
  }
}

void Acceptor::TakeOne(const Descriptor& socket) {
  Descriptor connection = AcceptConnection(socket);
  // No descriptor is left, or the connection is gone by now.
  if (!connection) return IsOutOfDescriptors(errno) ? ShedOne(socket) : void();
  const std::string from = AddressOfPeer(connection);
  const OpenConnections::Admission admission =
      open_.Admit(connection.get(), from, Clock::Real().Elapsed());
  if (admission == OpenConnections::Admission::kAdmitted) return take_(std::move(connection));
  const std::string text =
      admission == OpenConnections::Admission::kTooMany
          ? absl::StrCat("refuses connections: ", max_connections_,
                         " are open (--max_connections). Find their peers with ss -tn, and block "
                         "strangers with a firewall")
          : absl::StrCat("refuses connections from ", from, ": ", open_.most_of_one_address(),
                         " of it are open, and one address may hold half of --max_connections. "
                         "Block the address with a firewall if it does not belong here; else raise "
                         "the flag");
  if (said_.Admit(text)) DIVVY_LOG(WARNING) << text;
}

void Acceptor::ShedOne(const Descriptor& socket) {
  const std::string text =
      "refuses connections: no file descriptor is left for them. Raise the limit of open files "
      "(ulimit -n)";
  if (said_.Admit(text)) DIVVY_LOG(WARNING) << text;
  reserve_.Close();
  const bool shed = static_cast<bool>(AcceptConnection(socket));
  reserve_ = AnyDescriptor();
  if (shed && reserve_) return;
  // Another thread took the last descriptor. Wait a little: one may be free then.
  pollfd stop{stop_.get(), POLLIN, 0};
  poll(&stop, 1, kAcceptPauseMs);
}

}  // namespace divvy
