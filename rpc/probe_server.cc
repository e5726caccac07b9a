#include "rpc/probe_server.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "rpc/credentials.h"

namespace divvy {
namespace {

// one more closes the oldest connection
constexpr size_t kMostCallers = 64;
constexpr size_t kMostRequest = 4096;  // bytes
constexpr absl::Duration kPatience = absl::Seconds(5);
// the pause if no descriptor is left
constexpr int kPauseMs = 100;

absl::Duration Now() { return Clock::Real().Elapsed(); }

}  // namespace

absl::StatusOr<std::unique_ptr<ProbeServer>> ProbeServer::Start(const std::string& address) {
  const std::string whole =
      absl::StartsWith(address, ":") ? absl::StrCat("127.0.0.1", address) : address;
  ASSIGN_OR_RETURN(ListeningSockets sockets, ListeningSockets::Open(whole));
  if (!IsLoopback(whole))
    DIVVY_LOG(WARNING)
        << "--health_address=" << address
        << ": everybody who reaches it is told whether this task serves, and nothing else";
  return std::unique_ptr<ProbeServer>(new ProbeServer(std::move(sockets)));
}

ProbeServer::ProbeServer(ListeningSockets sockets)
    : sockets_(std::move(sockets)), stop_(eventfd(0, EFD_CLOEXEC)) {
  executor_.PostBlocking("probes", [this] { Run(); });
}

ProbeServer::~ProbeServer() {
  eventfd_write(stop_.get(), 1);
  executor_.Stop();
}

void ProbeServer::Run() {
  const std::vector<Descriptor>& sockets = sockets_.sockets();
  while (true) {
    std::vector<pollfd> watched = {{stop_.get(), POLLIN, 0}};
    for (const Descriptor& socket : sockets) watched.push_back({socket.get(), POLLIN, 0});
    for (const Caller& caller : callers_) watched.push_back({caller.connection.get(), POLLIN, 0});
    const int wait_ms =
        callers_.empty()
            ? -1
            : static_cast<int>(
                  std::max<int64_t>(0, absl::ToInt64Milliseconds(callers_.front().until - Now())) +
                  1);
    // a signal
    if (poll(watched.data(), watched.size(), wait_ms) < 0) continue;
    if (watched[0].revents != 0) return;
    std::deque<Caller> stay;
    for (size_t i = 0; i < callers_.size(); ++i) {
      Caller& caller = callers_[i];
      const bool has_news = watched[1 + sockets.size() + i].revents != 0;
      if (has_news ? Serve(caller) : Now() < caller.until) stay.push_back(std::move(caller));
    }
    callers_ = std::move(stay);
    for (size_t i = 0; i < sockets.size(); ++i) {
      if (watched[1 + i].revents != 0) TakeOne(sockets[i]);
    }
  }
}

void ProbeServer::TakeOne(const Descriptor& socket) {
  Descriptor connection = AcceptConnection(socket);
  if (!connection) {
    if (errno == EAGAIN || errno == ECONNABORTED) return;
    pollfd stop{stop_.get(), POLLIN, 0};
    poll(&stop, 1, kPauseMs);
    return;
  }
  if (callers_.size() >= kMostCallers) callers_.pop_front();
  callers_.push_back({std::move(connection), Now() + kPatience, ""});
}

bool ProbeServer::Serve(Caller& caller) const {
  char some[1024];
  const ssize_t got = recv(caller.connection.get(), some, sizeof(some), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) return false;
  caller.request.append(some, static_cast<size_t>(got));
  const std::optional<std::string> answer = AnswerToProbe(caller.request, serving_);
  if (!answer) return caller.request.size() <= kMostRequest;
  // A peer that does not take these few bytes at once gets none.
  send(caller.connection.get(), answer->data(), answer->size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return false;
}

std::optional<std::string> AnswerToProbe(absl::string_view request, bool serving) {
  if (!absl::StrContains(request, "\r\n\r\n")) return std::nullopt;
  const bool is_head = absl::StartsWith(request, "HEAD "),
             known = is_head || absl::StartsWith(request, "GET ");
  const absl::string_view status = !known    ? "405 Method Not Allowed"
                                   : serving ? "200 OK"
                                             : "503 Service Unavailable";
  const absl::string_view body = !known ? "GET or HEAD\n" : serving ? "serving\n" : "not serving\n";
  return absl::StrCat("HTTP/1.1 ", status,
                      "\r\nContent-Type: text/plain\r\nContent-Length: ", body.size(),
                      "\r\nConnection: close\r\n\r\n", is_head ? "" : body);
}

}  // namespace divvy
