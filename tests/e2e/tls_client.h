// A TLS connection to a task of this machine, with any certificate or none, that sends any bytes.
#ifndef DIVVY_TESTS_E2E_TLS_CLIENT_H_
#define DIVVY_TESTS_E2E_TLS_CLIENT_H_

#include <openssl/ssl.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/descriptor.h"

namespace divvy {

// PEM files of the client. The client trusts every server.
struct ClientCertificate {
  std::string certificate, key;
};

// The first bytes that a gRPC client sends over TLS (ALPN h2).
std::string ClientHello();

// Not thread-safe. Blocks up to the given timeouts, never longer.
class TlsConnection {
 public:
  // Returns nullopt if the handshake failed. A handshake that succeeds does not mean that the
  // certificate was accepted: under TLS 1.3 the server refuses it afterwards.
  static std::optional<TlsConnection> Open(const std::string& address,
                                           const std::optional<ClientCertificate>& certificate,
                                           absl::Duration timeout);
  TlsConnection(TlsConnection&&) = default;

  // Returns false if the server takes no more bytes within `timeout`, or has closed the connection.
  bool Send(const std::string& bytes);
  // Reads up to 64 KiB. The result is empty if the server has ended the connection or sent nothing
  // within the timeout; closed() tells which.
  std::string Receive();
  // Reads until the server sends nothing more.
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
