#include "rpc/acceptor.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
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

constexpr absl::Duration kLookEvery = absl::Milliseconds(100);  // at most: looking costs a system call a connection, and a flood must not buy them
constexpr int kPauseMs = 100;                                   // where no descriptor is left, not even the reserve

Descriptor AnyDescriptor() { return Descriptor(eventfd(0, EFD_CLOEXEC)); }

std::optional<ino_t> InodeOf(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 ? std::optional<ino_t>(info.st_ino) : std::nullopt;
}

bool IsOutOfDescriptors(int error) { return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM; }

}  // namespace

bool OpenConnections::Admit(int fd, absl::Duration now) {
  open_.erase(fd);  // whatever had this number is closed
  if (open_.size() >= most_ && now - looked_ >= kLookEvery) {
    looked_ = now;
    ForgetClosed();
  }
  if (open_.size() >= most_) return false;
  open_[fd] = InodeOf(fd).value_or(0);
  return true;
}

void OpenConnections::ForgetClosed() {
  for (auto next = open_.begin(); next != open_.end();) next = InodeOf(next->first) == next->second ? std::next(next) : open_.erase(next);
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
    if (poll(watched.data(), watched.size(), -1) < 0) continue;  // a signal
    if (watched[0].revents != 0) return;
    for (size_t i = 1; i < watched.size(); ++i) {
      if (watched[i].revents != 0) TakeOne(sockets_.sockets()[i - 1]);
    }
  }
}

void Acceptor::TakeOne(const Descriptor& socket) {
  Descriptor connection = AcceptConnection(socket);
  if (!connection) return IsOutOfDescriptors(errno) ? ShedOne(socket) : void();  // else it has gone meanwhile
  if (open_.Admit(connection.get(), Clock::Real().Elapsed())) return take_(std::move(connection));
  const std::string text = absl::StrCat("refuses connections: ", max_connections_,
                                        " are open (--max_connections). See who holds them (ss -tn), and keep out who does not belong here by a firewall");
  if (said_.Admit(text)) DIVVY_LOG(WARNING) << text;
}

void Acceptor::ShedOne(const Descriptor& socket) {
  const std::string text = "refuses connections: no file descriptor is left for them. Raise the limit of open files (ulimit -n)";
  if (said_.Admit(text)) DIVVY_LOG(WARNING) << text;
  reserve_.Close();
  const bool shed = static_cast<bool>(AcceptConnection(socket));
  reserve_ = AnyDescriptor();
  if (shed && reserve_) return;
  pollfd stop{stop_.get(), POLLIN, 0};  // another thread was faster; some time later there will be one
  poll(&stop, 1, kPauseMs);
}

}  // namespace divvy
