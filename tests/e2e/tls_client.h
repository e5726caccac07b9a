// A TLS connection to a task of this machine, with any certificate or none, that sends whatever it
// is told to.
#ifndef DIVVY_TESTS_E2E_TLS_CLIENT_H_
#define DIVVY_TESTS_E2E_TLS_CLIENT_H_

#include <openssl/ssl.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/descriptor.h"

namespace divvy {

// PEM files of who connects. It believes every server.
struct ClientCertificate {
  std::string certificate, key;
};

// The first bytes that a TLS client sends, of gRPC's kind (ALPN h2).
std::string ClientHello();

// Not thread-safe. Blocks up to the timeouts given; nothing here waits for ever.
class TlsConnection {
 public:
  // None: the handshake failed. One that succeeds says nothing of the certificate yet: under TLS
  // 1.3 a server refuses it afterwards.
  static std::optional<TlsConnection> Open(const std::string& address,
                                           const std::optional<ClientCertificate>& certificate,
                                           absl::Duration timeout);
  TlsConnection(TlsConnection&&) = default;

  // False: the server takes no more (for `timeout`, or for ever).
  bool Send(const std::string& bytes);
  // Up to 64 KiB. Empty: the server has ended the connection, or said nothing for the timeout;
  // closed() tells which.
  std::string Receive();
  // Reads until the server says nothing more.
  std::string ReceiveAll();
  bool closed() const { return closed_; }

 private:
  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  };
  TlsConnection(Descriptor socket, std::unique_ptr<SSL_CTX, Free> context,
                std::unique_ptr<SSL, Free> ssl)
      : socket_(std::move(socket)), context_(std::move(context)), ssl_(std::move(ssl)) {}

  Descriptor socket_;
  std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> ssl_;
  bool closed_ = false;
};

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_TLS_CLIENT_H_
