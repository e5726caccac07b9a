// TLS without a socket, for a server that reads and writes its connections itself.
#ifndef DIVVY_RPC_TLS_SESSION_H_
#define DIVVY_RPC_TLS_SESSION_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rpc/credentials.h"
#include "rpc/openssl.h"

namespace divvy {

// The server's end of one connection. Move nothing between threads; not thread-safe.
class TlsSession {
 public:
  // Takes bytes that the peer has sent, and appends what they say to `plain`. False: the peer is
  // refused, or breaks the protocol; send TakeOutgoing, which may tell it why, and close.
  bool Receive(absl::string_view bytes, std::string& plain);
  // Encrypts all that is said to the peer, and the end of the session. REQUIRES: Receive has given
  // some of the peer's text.
  void Finish(absl::string_view plain);
  // The bytes to send to the peer so far. The next call gives those that come later.
  std::string TakeOutgoing();

 private:
  friend class TlsSessions;
  TlsSession(SSL_CTX& context, std::string domain);
  bool Handshake();
  bool IsOfThisJob() const;

  const std::string domain_;
  const std::unique_ptr<SSL, openssl::Freer<SSL_free>> ssl_;
  bool is_open_ = false;
};

// Makes the sessions of a server: the peer needs a certificate that the job's CA has signed, of the
// same job. The files are read again every TlsFiles::refresh_seconds; files that cannot be used
// leave the last ones in force. Not thread-safe.
class TlsSessions {
 public:
  // REQUIRES: CheckTlsFiles is OK.
  explicit TlsSessions(TlsFiles files) : files_(std::move(files)) {}
  // May block on the disk. `now` rises. Null: the files have never been usable.
  std::unique_ptr<TlsSession> Accept(absl::Duration now);

 private:
  using Context = std::unique_ptr<SSL_CTX, openssl::Freer<SSL_CTX_free>>;
  Context Read() const;

  const TlsFiles files_;
  Context context_;
  std::string domain_;
  absl::Duration read_at_;
};

}  // namespace divvy

#endif  // DIVVY_RPC_TLS_SESSION_H_
