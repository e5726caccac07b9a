// A small HTTP server, for probes and for pages that tell the state of a task.
#ifndef DIVVY_RPC_HTTP_SERVER_H_
#define DIVVY_RPC_HTTP_SERVER_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/descriptor.h"
#include "base/executor.h"
#include "rpc/credentials.h"
#include "rpc/listening_sockets.h"
#include "rpc/tls_session.h"

namespace divvy {

// What a path gives.
struct HttpPage {
  // 200, 404, 405 or 503
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};
// A page of plain text.
inline HttpPage TextPage(int status, std::string body) {
  HttpPage page;
  page.status = status;
  page.body = std::move(body);
  return page;
}
// Gives the page of a path, such as "/healthz". The path may have any characters but a space and a
// '?'. Called by the server's thread, one call at a time. REQUIRES: does not block.
using HttpPages = std::function<HttpPage(absl::string_view path)>;

// The answer to a caller that has sent `request` so far: to GET and HEAD the page, to another
// method 405. nullopt: the request is not complete yet. Calls `pages` at most once.
std::optional<std::string> HttpAnswer(absl::string_view request, const HttpPages& pages);

// The address on which ":port" listens, 127.0.0.1:port; another address as it is. Pure.
std::string WithLoopback(const std::string& address);

// Answers GET and HEAD over HTTP/1.1, then closes the connection. A flood of connections costs the
// time of one thread and 64 connections with their answers, never the task's memory: one more
// closes the oldest. A caller that sends its request at once is answered even then. A request has
// at most 8 KiB. A caller has 5 s to send it, and 5 s to take the answer. Uses one thread.
// Thread-safe.
class HttpServer {
 public:
  // Listens on WithLoopback(address). Errors as ListeningSockets::Open. `pages` is called until the
  // destructor returns. With `tls`, callers need TLS and a certificate of this job
  // (tls_session.h). REQUIRES: CheckTlsFiles is OK for `tls`.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const std::string& address, HttpPages pages,
      const std::optional<TlsFiles>& tls = std::nullopt);
  // Closes all connections and blocks until the thread has ended.
  ~HttpServer();

  int port() const { return sockets_.port(); }

 private:
  struct Caller {
    Descriptor connection;
    absl::Duration until;  // the time by which it must have sent its request, or taken the answer
    std::unique_ptr<TlsSession> tls;  // null: plaintext
    std::string request = {};
    bool is_answered = false;
    std::string outgoing = {};
    size_t sent = 0;  // bytes of `outgoing`
  };
  HttpServer(ListeningSockets sockets, HttpPages pages, const std::optional<TlsFiles>& tls);
  void Run();
  void TakeOne(const Descriptor& socket);
  int MillisecondsToWait() const;
  // False: the connection is over.
  bool Serve(Caller& caller) const;
  bool Hear(Caller& caller) const;
  void Answer(Caller& caller, absl::string_view answer) const;

  const ListeningSockets sockets_;
  const HttpPages pages_;
  std::unique_ptr<TlsSessions> tls_;  // null: plaintext; used only by the thread
  const Descriptor stop_;  // readable once the thread must end
  std::deque<Caller> callers_;  // oldest first; used only by the thread
  ThreadPoolExecutor executor_{1};
};

}  // namespace divvy

#endif  // DIVVY_RPC_HTTP_SERVER_H_
