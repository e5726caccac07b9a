#include "bench/raw_tcp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "rpc/openssl.h"

namespace divvy::bench {
namespace {

constexpr int kBuffers = 2;  // the largest number of transfers in flight

struct Request {
  int64_t push_bytes = 0;  // that follow the request
  int64_t pull_bytes = 0;  // of the reply; 0: the reply is one byte
};

absl::Status ErrnoStatus(const char* what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

std::vector<std::vector<char>> TouchedBuffers(int64_t bytes) {
  return std::vector<std::vector<char>>(kBuffers, std::vector<char>(static_cast<size_t>(bytes), 1));
}

}  // namespace

// A connection whose calls move all bytes. Closes it at the end.
class Wire {
 public:
  enum class End { kClient, kServer };
  static absl::StatusOr<std::unique_ptr<Wire>> Over(int socket, End end,
                                                    const std::optional<TlsFiles>& files) {
    auto wire = std::make_unique<Wire>(socket);
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (files.has_value() && !wire->StartTls(end, *files))
      return absl::UnavailableError("the TLS handshake of the raw socket failed");
    return wire;
  }
  explicit Wire(int socket) : socket_(socket) {}
  ~Wire() { close(socket_); }

  absl::Status Send(const void* data, int64_t bytes) {
    return All(static_cast<const char*>(data), bytes, "send",
               [this](const char* next, size_t left) {
                 return tls_ ? SSL_write(tls_.get(), next, static_cast<int>(left))
                             : send(socket_, next, left, MSG_NOSIGNAL);
               });
  }
  absl::Status Receive(void* data, int64_t bytes) {
    return All(static_cast<char*>(data), bytes, "recv", [this](char* next, size_t left) {
      return tls_ ? SSL_read(tls_.get(), next, static_cast<int>(left))
                  : recv(socket_, next, left, 0);
    });
  }

 private:
  template <typename Byte, typename Move>
  static absl::Status All(Byte* next, int64_t bytes, const char* what, const Move& move) {
    while (bytes > 0) {
      const ssize_t moved = move(next, static_cast<size_t>(bytes));
      if (moved <= 0) return ErrnoStatus(what);
      next += moved;
      bytes -= moved;
    }
    return absl::OkStatus();
  }

  // Both ends show a certificate, as all tasks do.
  bool StartTls(End end, const TlsFiles& files) {
    const std::unique_ptr<SSL_CTX, openssl::Freer<SSL_CTX_free>> context(
        SSL_CTX_new(end == End::kServer ? TLS_server_method() : TLS_client_method()));
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    if (SSL_CTX_use_certificate_chain_file(context.get(), files.cert.c_str()) != 1 ||
        SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(), SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_load_verify_locations(context.get(), files.ca.c_str(), nullptr) != 1)
      return false;
    tls_.reset(SSL_new(context.get()));
    SSL_set_fd(tls_.get(), socket_);
    return (end == End::kServer ? SSL_accept(tls_.get()) : SSL_connect(tls_.get())) == 1;
  }

  const int socket_;
  std::unique_ptr<SSL, openssl::Freer<SSL_free>> tls_;  // null: plain
};

namespace {

// Serves requests until the other end closes the connection.
void ServeConnection(Wire& wire, int64_t largest_bytes) {
  std::vector<std::vector<char>> buffers = TouchedBuffers(largest_bytes);
  Request request;
  for (size_t turn = 0; wire.Receive(&request, sizeof(request)).ok(); ++turn) {
    std::vector<char>& buffer = buffers[turn % buffers.size()];
    if (request.push_bytes > largest_bytes || request.pull_bytes > largest_bytes) return;
    if (!wire.Receive(buffer.data(), request.push_bytes).ok()) return;
    if (!wire.Send(buffer.data(), request.pull_bytes > 0 ? request.pull_bytes : 1).ok()) return;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<RawTcpServer>> RawTcpServer::Listen() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener, 1) != 0)
    return ErrnoStatus("listen");
  if (getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return ErrnoStatus("getsockname");
  return std::unique_ptr<RawTcpServer>(new RawTcpServer(listener, ntohs(address.sin_port)));
}

RawTcpServer::~RawTcpServer() { close(listener_); }

absl::Status RawTcpServer::Serve(int64_t largest_bytes, const std::optional<TlsFiles>& tls) {
  const int connection = accept(listener_, nullptr, nullptr);
  if (connection < 0) return ErrnoStatus("accept");
  ASSIGN_OR_RETURN(const std::unique_ptr<Wire> wire,
                   Wire::Over(connection, Wire::End::kServer, tls));
  ServeConnection(*wire, largest_bytes);
  return absl::OkStatus();
}

void RawTcpServer::Stop() { shutdown(listener_, SHUT_RDWR); }

RawTcp::RawTcp(std::unique_ptr<Wire> wire, int64_t largest_bytes)
    : wire_(std::move(wire)), buffers_(TouchedBuffers(largest_bytes)) {}
RawTcp::~RawTcp() = default;

absl::StatusOr<std::unique_ptr<RawTcp>> RawTcp::Connect(int port, int64_t largest_bytes,
                                                        const std::optional<TlsFiles>& tls) {
  const int connection = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = Loopback(port);
  if (connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return ErrnoStatus("connect");
  ASSIGN_OR_RETURN(std::unique_ptr<Wire> wire, Wire::Over(connection, Wire::End::kClient, tls));
  return std::unique_ptr<RawTcp>(new RawTcp(std::move(wire), largest_bytes));
}

absl::Status RawTcp::Push(int64_t bytes, int count, int outstanding) {
  const Request request{bytes, 0};
  char answer = 0;
  for (int i = 0; i < count + outstanding; ++i) {
    if (i >= outstanding) RETURN_IF_ERROR(wire_->Receive(&answer, 1));
    if (i >= count) continue;
    RETURN_IF_ERROR(wire_->Send(&request, sizeof(request)));
    RETURN_IF_ERROR(wire_->Send(buffers_[static_cast<size_t>(i) % buffers_.size()].data(), bytes));
  }
  return absl::OkStatus();
}

absl::Status RawTcp::Pull(int64_t bytes, int count, int outstanding) {
  const Request request{0, bytes};
  for (int i = 0; i < count + outstanding; ++i) {
    if (i >= outstanding)
      RETURN_IF_ERROR(
          wire_->Receive(buffers_[static_cast<size_t>(i) % buffers_.size()].data(), bytes));
    if (i < count) RETURN_IF_ERROR(wire_->Send(&request, sizeof(request)));
  }
  return absl::OkStatus();
}

}  // namespace divvy::bench
