#include "tests/e2e/fault_proxy.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <list>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "tools/launch/poll_until.h"

namespace divvy {
namespace {

// Bytes held for one direction of a connection before its sender has to wait.
constexpr size_t kMostHeldBytes = 1 << 20;
constexpr int kDirections[] = {FaultProxy::kToTarget, FaultProxy::kFromTarget};

absl::Duration Now() { return Clock::Real().Elapsed(); }

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

absl::StatusOr<Descriptor> Listen() {
  Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_in address = Loopback(0);
  if (listener &&
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      listen(listener.get(), 128) == 0)
    return listener;
  return absl::ErrnoToStatus(errno, "cannot listen on 127.0.0.1");
}

int PortOf(const Descriptor& listener) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

absl::StatusOr<int> TargetPort(const std::string& target) {
  absl::string_view text = target;
  int port = 0;
  if (absl::ConsumePrefix(&text, "127.0.0.1:") && absl::SimpleAtoi(text, &port) && port >= 1 &&
      port <= 65535)
    return port;
  return absl::InvalidArgumentError(
      absl::StrCat("a fault proxy's target is 127.0.0.1:port, not \"", target, "\""));
}

// Closes the socket so that the connection ends in a reset.
void Reset(Descriptor& socket) {
  const linger now = {1, 0};
  if (socket) setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  socket.Close();
}

// The bytes in flight in one direction.
struct Stream {
  struct Chunk {
    absl::Duration due;
    std::string bytes;
  };
  std::deque<Chunk> chunks;
  size_t held = 0;  // bytes in `chunks`
  bool sender_done = false, receiver_told = false;
  bool lossy = false;  // some bytes were discarded
};

struct Connection {
  // ends[0] is the client, ends[1] the target. Stream d flows from ends[d] to ends[1 - d].
  Descriptor ends[2];
  Stream streams[2];
  bool broken = false;
};

}  // namespace

// The loop of the proxy's thread. Each turn waits, and then does all that is due.
class FaultProxy::Loop {
 public:
  Loop(FaultProxy& proxy, Descriptor listener) : proxy_(proxy), listener_(std::move(listener)) {}

  void Run() {
    while (proxy_.TakeRules(rules_)) {
      ObeyOnce();
      proxy_.Publish(counts_);
      Turn();
      Sweep();
    }
    for (Connection& connection : connections_) Break(connection);
  }

 private:
  void ObeyOnce() {
    for (const int d : kDirections) {
      if (rules_.cut_after[d].has_value()) budget_[d] = rules_.cut_after[d];
    }
    for (Connection& connection : connections_) {
      const bool lossy = connection.streams[0].lossy || connection.streams[1].lossy;
      if (rules_.cut_all || (rules_.cut_lossy && lossy)) Break(connection);
    }
    if (rules_.cut_lossy) budget_ = {};
    Sweep();
  }

  void Turn() {
    std::vector<pollfd> events = {{proxy_.wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    absl::Duration deadline = absl::InfiniteDuration();
    for (Connection& connection : connections_) {
      for (const int end : {0, 1}) {
        // An end with nothing to wait for is left out: if it has hung up, poll would return at once
        // for ever.
        const short wanted = Wanted(connection, end);
        events.push_back({wanted == 0 ? -1 : connection.ends[end].get(), wanted, 0});
      }
      for (const int d : kDirections)
        deadline = std::min(deadline, NextDue(connection.streams[d], d));
    }
    PollUntil(events, deadline);
    uint64_t count;
    if (events[0].revents != 0) [[maybe_unused]]
      const ssize_t drained = read(proxy_.wake_.get(), &count, sizeof(count));
    size_t i = 2;
    for (Connection& connection : connections_) {
      const short revents[] = {events[i].revents, events[i + 1].revents};
      i += 2;
      for (const int d : kDirections) Move(connection, d, revents[d], revents[1 - d]);
    }
    if (events[1].revents != 0) Accept();
  }

  // The events to wait for at one end: bytes to read, and room for bytes that are due.
  short Wanted(const Connection& connection, int end) const {
    const Stream &out = connection.streams[end], &in = connection.streams[1 - end];
    const bool may_take = !out.sender_done && out.held < kMostHeldBytes;
    const bool has_due =
        !rules_.stall[1 - end] && !in.chunks.empty() && in.chunks.front().due <= Now();
    return static_cast<short>((may_take ? POLLIN : 0) | (has_due ? POLLOUT : 0));
  }

  // The time at which the next chunk becomes due.
  absl::Duration NextDue(const Stream& stream, int d) const {
    if (rules_.stall[d] || stream.chunks.empty() || stream.chunks.front().due <= Now())
      return absl::InfiniteDuration();
    return stream.chunks.front().due;
  }

  void Move(Connection& connection, int d, short from, short to) {
    Stream& stream = connection.streams[d];
    if (connection.broken) return;
    if ((from & (POLLIN | POLLHUP)) != 0 && !stream.sender_done && stream.held < kMostHeldBytes)
      Take(connection, d);
    if ((from & POLLERR) != 0 || (to & POLLERR) != 0) Break(connection);
    if (!connection.broken && !rules_.stall[d]) Give(connection, d);
  }

  void Take(Connection& connection, int d) {
    Stream& stream = connection.streams[d];
    char buffer[65536];
    const ssize_t got = read(connection.ends[d].get(), buffer, sizeof(buffer));
    if (got < 0 && errno != EAGAIN) Break(connection);
    if (got == 0) stream.sender_done = true;
    if (got <= 0) return;
    if (rules_.swallow[d]) {
      stream.lossy = true;
      return;
    }
    stream.chunks.push_back({Now() + rules_.delay, std::string(buffer, static_cast<size_t>(got))});
    stream.held += static_cast<size_t>(got);
  }

  void Give(Connection& connection, int d) {
    Stream& stream = connection.streams[d];
    while (!connection.broken && !stream.chunks.empty() && stream.chunks.front().due <= Now()) {
      if (!GiveSome(connection, d)) return;
    }
    if (connection.broken || !stream.chunks.empty() || !stream.sender_done || rules_.swallow[d] ||
        std::exchange(stream.receiver_told, true))
      return;
    shutdown(connection.ends[1 - d].get(), SHUT_WR);
  }

  // Sends a part of the first chunk. Returns whether the receiver may have room for more.
  bool GiveSome(Connection& connection, int d) {
    Stream& stream = connection.streams[d];
    std::string& bytes = stream.chunks.front().bytes;
    const size_t allowed = budget_[d].has_value()
                               ? std::min(bytes.size(), static_cast<size_t>(*budget_[d]))
                               : bytes.size();
    const ssize_t put = send(connection.ends[1 - d].get(), bytes.data(), allowed, MSG_NOSIGNAL);
    // ENOTCONN: the connection to the target is not established yet.
    if (put < 0 && errno != EAGAIN && errno != ENOTCONN) Break(connection);
    if (put < 0) return false;
    stream.held -= static_cast<size_t>(put);
    counts_.bytes[d] += put;
    bytes.erase(0, static_cast<size_t>(put));
    if (bytes.empty()) stream.chunks.pop_front();
    if (budget_[d].has_value()) SpendBudget(d, put);
    return true;
  }

  void SpendBudget(int d, int64_t bytes) {
    *budget_[d] -= bytes;
    if (*budget_[d] > 0) return;
    budget_[d].reset();
    for (Connection& connection : connections_) Break(connection);
  }

  void Accept() {
    Descriptor client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!client) return;
    if (rules_.refuse) return Reset(client);
    Descriptor target(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const sockaddr_in address = Loopback(rules_.target_port);
    const int connected =
        connect(target.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    if (connected != 0 && errno != EINPROGRESS) return Reset(client);
    const int on = 1;
    for (const Descriptor* end : {&client, &target})
      setsockopt(end->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    ++counts_.accepted;
    connections_.emplace_back();
    connections_.back().ends[0] = std::move(client);
    connections_.back().ends[1] = std::move(target);
  }

  void Break(Connection& connection) {
    connection.broken = true;
    for (Descriptor& end : connection.ends) Reset(end);
  }

  // Removes the connections that have ended.
  void Sweep() {
    connections_.remove_if([](const Connection& connection) {
      return connection.broken ||
             (connection.streams[0].receiver_told && connection.streams[1].receiver_told);
    });
    counts_.open = static_cast<int>(connections_.size());
  }

  FaultProxy& proxy_;
  const Descriptor listener_;
  Rules rules_;
  std::array<std::optional<int64_t>, 2> budget_;  // bytes left of CutAfter
  std::list<Connection> connections_;
  Counts counts_;
};

// ---- methods for other threads

absl::StatusOr<std::unique_ptr<FaultProxy>> FaultProxy::Start(const std::string& target) {
  Rules rules;
  ASSIGN_OR_RETURN(rules.target_port, TargetPort(target));
  ASSIGN_OR_RETURN(Descriptor listener, Listen());
  std::string address = absl::StrCat("127.0.0.1:", PortOf(listener));
  return std::unique_ptr<FaultProxy>(
      new FaultProxy(std::move(listener), rules, std::move(address)));
}

FaultProxy::FaultProxy(Descriptor listener, Rules rules, std::string address)
    : address_(std::move(address)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), rules_(rules) {
  thread_.PostBlocking(
      "fault_proxy", [loop = std::make_shared<Loop>(*this, std::move(listener))] { loop->Run(); });
}

FaultProxy::~FaultProxy() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  Wake();
  thread_.Stop();
}

void FaultProxy::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
}

template <typename Change>
void FaultProxy::Apply(Change change) {
  MutexLock lock(mu_);
  change(rules_);
  const uint64_t mine = ++wanted_;
  Wake();
  changed_.Wait(mu_, [&]() DIVVY_REQUIRES(mu_) { return applied_ >= mine; });
}

bool FaultProxy::TakeRules(Rules& rules) {
  MutexLock lock(mu_);
  rules = rules_;
  rules_.cut_all = rules_.cut_lossy = false;
  rules_.cut_after = {};
  taken_ = wanted_;
  return !stopping_;
}

void FaultProxy::Publish(const Counts& counts) {
  MutexLock lock(mu_);
  counts_ = counts;
  applied_ = taken_;
  changed_.NotifyAll();
}

void FaultProxy::CutAll() {
  Apply([](Rules& rules) { rules.cut_all = true; });
}

void FaultProxy::CutAfter(Direction direction, int64_t bytes) {
  Apply([&](Rules& rules) { rules.cut_after[direction] = bytes; });
}

absl::Status FaultProxy::Retarget(const std::string& target) {
  ASSIGN_OR_RETURN(const int port, TargetPort(target));
  Apply([port](Rules& rules) { rules.target_port = port; });
  return absl::OkStatus();
}

void FaultProxy::Refuse() {
  Apply([](Rules& rules) { rules.refuse = true; });
}

void FaultProxy::Swallow(Direction direction) {
  Apply([&](Rules& rules) { rules.swallow[direction] = true; });
}

void FaultProxy::Stall(Direction direction) {
  Apply([&](Rules& rules) { rules.stall[direction] = true; });
}

void FaultProxy::Delay(absl::Duration delay) {
  Apply([&](Rules& rules) { rules.delay = delay; });
}

void FaultProxy::Inject(int fault, Direction direction, Random& random) {
  switch (fault) {
    case 0: return CutAll();
    case 1: return CutAfter(direction, static_cast<int64_t>(random.Below(5000)));
    case 2: return Delay(absl::Milliseconds(30));
    case 3: return Swallow(direction);
    case 4: return Stall(direction);
    case 5: return Refuse(), CutAll();
  }
}

void FaultProxy::Heal() {
  Apply([](Rules& rules) {
    const int target_port = rules.target_port;
    rules = Rules();
    rules.target_port = target_port;
    rules.cut_lossy = true;
  });
}

int64_t FaultProxy::bytes(Direction direction) const {
  MutexLock lock(mu_);
  return counts_.bytes[direction];
}

int FaultProxy::open_connections() const {
  MutexLock lock(mu_);
  return counts_.open;
}

int FaultProxy::accepted() const {
  MutexLock lock(mu_);
  return counts_.accepted;
}

bool FaultProxy::WaitForBytes(Direction direction, int64_t bytes, absl::Duration timeout) {
  MutexLock lock(mu_);
  return changed_.WaitFor(mu_, timeout,
                          [&]() DIVVY_REQUIRES(mu_) { return counts_.bytes[direction] >= bytes; });
}

bool FaultProxy::WaitForConnections(int open, absl::Duration timeout) {
  MutexLock lock(mu_);
  return changed_.WaitFor(mu_, timeout, [&]() DIVVY_REQUIRES(mu_) { return counts_.open == open; });
}

}  // namespace divvy
