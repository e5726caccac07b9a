#include "tests/e2e/tls_client.h"

#include <openssl/err.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <utility>

#include "tests/e2e/loopback_client.h"

namespace divvy {
namespace {

constexpr unsigned char kH2[] = {2, 'h', '2'};  // ALPN's notation
constexpr size_t kMostAtOnce = 64 << 10;

SSL_CTX* MakeContext(const std::optional<ClientCertificate>& certificate) {
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_verify(context, SSL_VERIFY_NONE, nullptr);
  SSL_CTX_set_alpn_protos(context, kH2, sizeof(kH2));
  if (!certificate) return context;
  SSL_CTX_use_certificate_chain_file(context, certificate->certificate.c_str());
  SSL_CTX_use_PrivateKey_file(context, certificate->key.c_str(), SSL_FILETYPE_PEM);
  return context;
}

void SetTimeouts(const Descriptor& socket, absl::Duration timeout) {
  const timeval limit = absl::ToTimeval(timeout);
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

}  // namespace

std::string ClientHello() {
  SSL_CTX* const context = MakeContext(std::nullopt);
  SSL* const ssl = SSL_new(context);
  BIO* const sent = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl, BIO_new(BIO_s_mem()), sent);
  SSL_connect(ssl);  // sends its first message, and gets no answer
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(sent, &bytes);
  std::string hello(bytes, static_cast<size_t>(size));
  SSL_free(ssl);
  SSL_CTX_free(context);
  ERR_clear_error();
  return hello;
}

std::optional<TlsConnection> TlsConnection::Open(
    const std::string& address, const std::optional<ClientCertificate>& certificate,
    absl::Duration timeout) {
  Descriptor socket = ConnectTo(address);
  if (!socket) return std::nullopt;
  SetTimeouts(socket, timeout);
  std::unique_ptr<SSL_CTX, Free> context(MakeContext(certificate));
  std::unique_ptr<SSL, Free> ssl(SSL_new(context.get()));
  SSL_set_fd(ssl.get(), socket.get());
  const bool shaken = SSL_connect(ssl.get()) == 1;
  ERR_clear_error();
  if (!shaken) return std::nullopt;
  return TlsConnection(std::move(socket), std::move(context), std::move(ssl));
}

bool TlsConnection::Send(const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size() && !closed_;) {
    const int put = SSL_write(ssl_.get(), bytes.data() + sent,
                              static_cast<int>(std::min(kMostAtOnce, bytes.size() - sent)));
    if (put <= 0) closed_ = true;
    if (put > 0) sent += static_cast<size_t>(put);
  }
  ERR_clear_error();
  return !closed_;
}

std::string TlsConnection::Receive() {
  std::string bytes(kMostAtOnce, 0);
  const int got = SSL_read(ssl_.get(), bytes.data(), static_cast<int>(bytes.size()));
  if (got <= 0) {
    const int why = SSL_get_error(ssl_.get(), got);
    closed_ = why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE;
  }
  ERR_clear_error();
  bytes.resize(static_cast<size_t>(std::max(got, 0)));
  return bytes;
}

std::string TlsConnection::ReceiveAll() {
  std::string all;
  for (std::string next = Receive(); !next.empty(); next = Receive()) all += next;
  return all;
}

}  // namespace divvy
