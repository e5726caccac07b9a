#include "bench/raw_tcp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

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

absl::Status SendAll(int socket, const void* data, int64_t bytes) {
  for (const char* next = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t sent = send(socket, next, static_cast<size_t>(bytes), MSG_NOSIGNAL);
    if (sent <= 0) return ErrnoStatus("send");
    next += sent;
    bytes -= sent;
  }
  return absl::OkStatus();
}

absl::Status ReceiveAll(int socket, void* data, int64_t bytes) {
  for (char* next = static_cast<char*>(data); bytes > 0;) {
    const ssize_t received = recv(socket, next, static_cast<size_t>(bytes), 0);
    if (received <= 0) return ErrnoStatus("recv");
    next += received;
    bytes -= received;
  }
  return absl::OkStatus();
}

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void SetNoDelay(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

std::vector<std::vector<char>> TouchedBuffers(int64_t bytes) {
  return std::vector<std::vector<char>>(kBuffers, std::vector<char>(static_cast<size_t>(bytes), 1));
}

// Serves requests until the other end closes the connection.
void ServeConnection(int socket, int64_t largest_bytes) {
  std::vector<std::vector<char>> buffers = TouchedBuffers(largest_bytes);
  Request request;
  for (size_t turn = 0; ReceiveAll(socket, &request, sizeof(request)).ok(); ++turn) {
    std::vector<char>& buffer = buffers[turn % buffers.size()];
    if (request.push_bytes > largest_bytes || request.pull_bytes > largest_bytes) return;
    if (!ReceiveAll(socket, buffer.data(), request.push_bytes).ok()) return;
    if (!SendAll(socket, buffer.data(), request.pull_bytes > 0 ? request.pull_bytes : 1).ok())
      return;
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

absl::Status RawTcpServer::Serve(int64_t largest_bytes) {
  const int connection = accept(listener_, nullptr, nullptr);
  if (connection < 0) return ErrnoStatus("accept");
  SetNoDelay(connection);
  ServeConnection(connection, largest_bytes);
  close(connection);
  return absl::OkStatus();
}

void RawTcpServer::Stop() { shutdown(listener_, SHUT_RDWR); }

RawTcp::RawTcp(int socket, int64_t largest_bytes)
    : socket_(socket), buffers_(TouchedBuffers(largest_bytes)) {}
RawTcp::~RawTcp() { close(socket_); }

absl::StatusOr<std::unique_ptr<RawTcp>> RawTcp::Connect(int port, int64_t largest_bytes) {
  const int connection = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = Loopback(port);
  if (connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return ErrnoStatus("connect");
  SetNoDelay(connection);
  return std::unique_ptr<RawTcp>(new RawTcp(connection, largest_bytes));
}

absl::Status RawTcp::Push(int64_t bytes, int count, int outstanding) {
  const Request request{bytes, 0};
  char answer = 0;
  for (int i = 0; i < count + outstanding; ++i) {
    if (i >= outstanding) RETURN_IF_ERROR(ReceiveAll(socket_, &answer, 1));
    if (i >= count) continue;
    RETURN_IF_ERROR(SendAll(socket_, &request, sizeof(request)));
    RETURN_IF_ERROR(
        SendAll(socket_, buffers_[static_cast<size_t>(i) % buffers_.size()].data(), bytes));
  }
  return absl::OkStatus();
}

absl::Status RawTcp::Pull(int64_t bytes, int count, int outstanding) {
  const Request request{0, bytes};
  for (int i = 0; i < count + outstanding; ++i) {
    if (i >= outstanding)
      RETURN_IF_ERROR(
          ReceiveAll(socket_, buffers_[static_cast<size_t>(i) % buffers_.size()].data(), bytes));
    if (i < count) RETURN_IF_ERROR(SendAll(socket_, &request, sizeof(request)));
  }
  return absl::OkStatus();
}

}  // namespace divvy::bench
