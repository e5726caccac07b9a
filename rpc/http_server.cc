#include "rpc/http_server.h"

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
#include "base/status_macros.h"

namespace divvy {
namespace {

// one more closes the oldest connection
constexpr size_t kMostCallers = 64;
constexpr size_t kMostRequest = 8192;  // bytes
constexpr absl::Duration kPatience = absl::Seconds(5);
// the pause if no descriptor is left
constexpr int kPauseMs = 100;

absl::Duration Now() { return Clock::Real().Elapsed(); }

absl::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 503: return "Service Unavailable";
  }
  return "Error";
}

// Of the request's first line: from the method's end to the next space or '?'.
absl::string_view PathOf(absl::string_view request) {
  absl::string_view path = request.substr(request.find(' ') + 1);
  path = path.substr(0, path.find_first_of("\r\n"));
  return path.substr(0, path.find_first_of(" ?"));
}

}  // namespace

std::optional<std::string> HttpAnswer(absl::string_view request, const HttpPages& pages) {
  if (!absl::StrContains(request, "\r\n\r\n")) return std::nullopt;
  const bool is_head = absl::StartsWith(request, "HEAD "),
             known = is_head || absl::StartsWith(request, "GET ");
  const HttpPage page = known ? pages(PathOf(request)) : TextPage(405, "GET or HEAD\n");
  return absl::StrCat("HTTP/1.1 ", page.status, " ", ReasonPhrase(page.status),
                      "\r\nContent-Type: ", page.content_type,
                      "\r\nContent-Length: ", page.body.size(), "\r\nConnection: close\r\n\r\n",
                      is_head ? "" : page.body);
}

std::string WithLoopback(const std::string& address) {
  return absl::StartsWith(address, ":") ? absl::StrCat("127.0.0.1", address) : address;
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address,
                                                              HttpPages pages,
                                                              const std::optional<TlsFiles>& tls) {
  ASSIGN_OR_RETURN(ListeningSockets sockets, ListeningSockets::Open(WithLoopback(address)));
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(sockets), std::move(pages), tls));
}

HttpServer::HttpServer(ListeningSockets sockets, HttpPages pages,
                       const std::optional<TlsFiles>& tls)
    : sockets_(std::move(sockets)),
      pages_(std::move(pages)),
      tls_(tls ? std::make_unique<TlsSessions>(*tls) : nullptr),
      stop_(eventfd(0, EFD_CLOEXEC)) {
  executor_.PostBlocking("http", [this] { Run(); });
}

HttpServer::~HttpServer() {
  eventfd_write(stop_.get(), 1);
  executor_.Stop();
}

int HttpServer::MillisecondsToWait() const {
  if (callers_.empty()) return -1;
  const auto first =
      std::min_element(callers_.begin(), callers_.end(),
                       [](const Caller& a, const Caller& b) { return a.until < b.until; });
  return static_cast<int>(std::max<int64_t>(0, absl::ToInt64Milliseconds(first->until - Now())) +
                          1);
}

void HttpServer::Run() {
  const std::vector<Descriptor>& sockets = sockets_.sockets();
  while (true) {
    std::vector<pollfd> watched = {{stop_.get(), POLLIN, 0}};
    for (const Descriptor& socket : sockets) watched.push_back({socket.get(), POLLIN, 0});
    for (const Caller& caller : callers_) {
      const int awaited =
          (caller.is_answered ? 0 : POLLIN) | (caller.sent < caller.outgoing.size() ? POLLOUT : 0);
      watched.push_back({caller.connection.get(), static_cast<short>(awaited), 0});
    }
    // a signal
    if (poll(watched.data(), watched.size(), MillisecondsToWait()) < 0) continue;
    if (watched[0].revents != 0) return;
    std::deque<Caller> stay;
    for (size_t i = 0; i < callers_.size(); ++i) {
      Caller& caller = callers_[i];
      const bool has_news = watched[1 + sockets.size() + i].revents != 0;
      if (Now() < caller.until && (!has_news || Serve(caller))) stay.push_back(std::move(caller));
    }
    callers_ = std::move(stay);
    for (size_t i = 0; i < sockets.size(); ++i) {
      if (watched[1 + i].revents != 0) TakeOne(sockets[i]);
    }
  }
}

void HttpServer::TakeOne(const Descriptor& socket) {
  Descriptor connection = AcceptConnection(socket);
  if (!connection) {
    if (errno == EAGAIN || errno == ECONNABORTED) return;
    pollfd stop{stop_.get(), POLLIN, 0};
    poll(&stop, 1, kPauseMs);
    return;
  }
  Caller caller{std::move(connection), Now() + kPatience, nullptr};
  if (tls_ != nullptr && (caller.tls = tls_->Accept(Now())) == nullptr) return;
  if (callers_.size() >= kMostCallers) callers_.pop_front();
  callers_.push_back(std::move(caller));
}

bool HttpServer::Serve(Caller& caller) const {
  if (!caller.is_answered && !Hear(caller)) return false;
  const size_t left = caller.outgoing.size() - caller.sent;
  if (left == 0) return true;
  const ssize_t sent = send(caller.connection.get(), caller.outgoing.data() + caller.sent, left,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  caller.sent += static_cast<size_t>(sent);
  return !caller.is_answered || caller.sent < caller.outgoing.size();
}

bool HttpServer::Hear(Caller& caller) const {
  char some[1024];
  const ssize_t got = recv(caller.connection.get(), some, sizeof(some), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) return false;
  const absl::string_view bytes(some, static_cast<size_t>(got));
  if (caller.tls == nullptr) {
    caller.request.append(bytes.data(), bytes.size());
  } else {
    // A refused peer is still told why.
    caller.is_answered = !caller.tls->Receive(bytes, caller.request);
    caller.outgoing += caller.tls->TakeOutgoing();
    if (caller.is_answered) return !caller.outgoing.empty();
  }
  const std::optional<std::string> answer = HttpAnswer(caller.request, pages_);
  if (answer) Answer(caller, *answer);
  return answer || caller.request.size() <= kMostRequest;
}

void HttpServer::Answer(Caller& caller, absl::string_view answer) const {
  caller.is_answered = true;
  caller.until = Now() + kPatience;
  if (caller.tls == nullptr) {
    caller.outgoing.append(answer.data(), answer.size());
  } else {
    caller.tls->Finish(answer);
    caller.outgoing += caller.tls->TakeOutgoing();
  }
}

}  // namespace divvy
