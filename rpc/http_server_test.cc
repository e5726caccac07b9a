#include "rpc/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <memory>
#include <optional>
#include <string>

#include "base/descriptor.h"
#include "base/testing/captured_log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rpc/openssl.h"
#include "rpc/testing/pki.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

HttpPage Echo(absl::string_view path) {
  return path == "/none" ? HttpPage{404, "text/plain", "none\n"}
                         : HttpPage{200, "text/x", std::string(path)};
}

TEST(HttpAnswerTest, APathEndsAtASpaceOrAQuestionMark) {
  EXPECT_THAT(*HttpAnswer("GET /a/b HTTP/1.1\r\n\r\n", Echo),
              AllOf(HasSubstr("HTTP/1.1 200 OK\r\nContent-Type: text/x\r\nContent-Length: 4\r\n"),
                    HasSubstr("\r\n\r\n/a/b")));
  EXPECT_THAT(*HttpAnswer("GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n", Echo), HasSubstr("\r\n\r\n/a"));
  EXPECT_THAT(*HttpAnswer("GET /a\r\nX: y\r\n\r\n", Echo), testing::EndsWith("\r\n\r\n/a"));
  EXPECT_THAT(*HttpAnswer("GET \r\n\r\n", Echo), testing::EndsWith("\r\n\r\n"));
}

TEST(HttpAnswerTest, OnlyGetAndHead) {
  EXPECT_THAT(*HttpAnswer("GET /none HTTP/1.1\r\n\r\n", Echo), HasSubstr("404 Not Found"));
  EXPECT_THAT(*HttpAnswer("HEAD /a HTTP/1.1\r\n\r\n", Echo),
              AllOf(HasSubstr("Content-Length: 2\r\n"), testing::EndsWith("\r\n\r\n")));
  EXPECT_THAT(*HttpAnswer("POST /a HTTP/1.1\r\n\r\nbody", Echo),
              AllOf(HasSubstr("405 Method Not Allowed"), Not(HasSubstr("/a"))));
  EXPECT_EQ(HttpAnswer("GET /a HTTP/1.1\r\n", Echo), std::nullopt);
}

TEST(HttpServerTest, APortAloneIsOnLoopback) {
  EXPECT_EQ(WithLoopback(":80"), "127.0.0.1:80");
  EXPECT_EQ(WithLoopback("10.0.0.1:80"), "10.0.0.1:80");
}

Descriptor Dial(int port) {
  Descriptor connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(connection.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return connection;
}

// A page that no socket's buffer holds, for a caller that reads it in small pieces.
TEST(HttpServerTest, ALargePageArrivesWhole) {
  constexpr size_t kBytes = 16 << 20;
  const auto server = HttpServer::Start(":0", [](absl::string_view) {
    return HttpPage{200, "text/plain", std::string(kBytes, 'x')};
  });
  ASSERT_TRUE(server.ok()) << server.status();
  const Descriptor slow = Dial((*server)->port()), quick = Dial((*server)->port());
  constexpr absl::string_view kRequest = "GET / HTTP/1.1\r\n\r\n";
  for (const Descriptor* each : {&slow, &quick})
    ASSERT_EQ(send(each->get(), kRequest.data(), kRequest.size(), 0),
              static_cast<ssize_t>(kRequest.size()));
  // The second caller is served although the first one takes nothing.
  for (const Descriptor* each : {&quick, &slow}) {
    size_t heard = 0;
    char some[4099];
    ssize_t got = 0;
    while ((got = recv(each->get(), some, sizeof(some), 0)) > 0) heard += static_cast<size_t>(got);
    EXPECT_GT(heard, kBytes);
  }
}

using ClientContext = std::unique_ptr<SSL_CTX, openssl::Freer<SSL_CTX_free>>;
using ClientSession = std::unique_ptr<SSL_SESSION, openssl::Freer<SSL_SESSION_free>>;

// What a caller with these files hears; without files it has no certificate. "": it was refused.
// With `session`, it tries to resume that one, and leaves its own there.
std::string GetOverTls(int port, const std::optional<TlsFiles>& files,
                       ClientSession* session = nullptr) {
  const ClientContext context(SSL_CTX_new(TLS_client_method()));
  if (files) {
    EXPECT_EQ(SSL_CTX_use_certificate_chain_file(context.get(), files->cert.c_str()), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey_file(context.get(), files->key.c_str(), SSL_FILETYPE_PEM), 1);
  }
  // The server may close the connection while OpenSSL writes.
  signal(SIGPIPE, SIG_IGN);
  const Descriptor connection = Dial(port);
  const std::unique_ptr<SSL, openssl::Freer<SSL_free>> ssl(SSL_new(context.get()));
  SSL_set_fd(ssl.get(), connection.get());
  if (session != nullptr && *session != nullptr) SSL_set_session(ssl.get(), session->get());
  constexpr absl::string_view kRequest = "GET /a HTTP/1.1\r\n\r\n";
  if (SSL_connect(ssl.get()) != 1 ||
      SSL_write(ssl.get(), kRequest.data(), static_cast<int>(kRequest.size())) <= 0)
    return "";
  std::string heard;
  char some[4096];
  for (int got = 0; (got = SSL_read(ssl.get(), some, sizeof(some))) > 0;)
    heard.append(some, static_cast<size_t>(got));
  if (session != nullptr) session->reset(SSL_get1_session(ssl.get()));
  return heard;
}

// As browsers do, and curl with two addresses.
TEST(HttpServerTest, ACallerThatWouldResumeItsSessionIsAnswered) {
  Pki pki("http_again");
  const auto server = HttpServer::Start(":0", Echo, pki.Role("ps"));
  ASSERT_TRUE(server.ok()) << server.status();
  ClientSession session;
  for (int i = 0; i < 3; ++i)
    EXPECT_THAT(GetOverTls((*server)->port(), pki.Role("admin"), &session), HasSubstr("200 OK"));
}

TEST(HttpServerTest, OverTlsOnlyACallerOfTheJobIsAnswered) {
  Pki pki("http"), stranger("http_stranger");
  const auto server = HttpServer::Start(":0", Echo, pki.Role("ps"));
  ASSERT_TRUE(server.ok()) << server.status();
  const int port = (*server)->port();
  EXPECT_THAT(GetOverTls(port, pki.Role("admin")), testing::EndsWith("\r\n\r\n/a"));
  EXPECT_EQ(GetOverTls(port, std::nullopt), "");
  EXPECT_EQ(GetOverTls(port, stranger.Role("admin")), "") << "another CA";
  const CapturedLog log;
  EXPECT_EQ(GetOverTls(port, pki.Files("other", pki.Issue("spiffe://other/admin/0"))), "");
  EXPECT_THAT(log.text(Severity::kWarning), HasSubstr("of another job"));
  EXPECT_EQ(GetOverTls(port, pki.Files("nobody", pki.Issue(""))), "");
  // Plaintext is answered with an alert at most.
  const Descriptor plain = Dial(port);
  constexpr absl::string_view kRequest = "GET / HTTP/1.1\r\n\r\n";
  send(plain.get(), kRequest.data(), kRequest.size(), 0);
  char some[4096];
  EXPECT_LT(recv(plain.get(), some, sizeof(some), MSG_WAITALL), 100);
  EXPECT_THAT(GetOverTls(port, pki.Role("worker")), HasSubstr("200 OK"));
}

TEST(HttpServerTest, ALargePageArrivesWholeOverTls) {
  constexpr size_t kBytes = 4 << 20;
  Pki pki("http_large");
  const auto server = HttpServer::Start(
      ":0",
      [](absl::string_view) {
        return HttpPage{200, "text/plain", std::string(kBytes, 'x')};
      },
      pki.Role("ps"));
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_GT(GetOverTls((*server)->port(), pki.Role("admin")).size(), kBytes);
}

// The handshake's first flight has the server's certificate.
TEST(TlsSessionsTest, FilesThatAreReplacedAreReadAgainAndBadOnesAreNot) {
  Pki pki("http_renewed");
  const TlsFiles files = pki.Role("ps");
  TlsSessions sessions(files);
  EXPECT_NE(sessions.Accept(absl::Seconds(1)), nullptr);
  pki.Write("ps.pem", "no certificate");
  EXPECT_NE(sessions.Accept(absl::Seconds(2)), nullptr);
  EXPECT_NE(sessions.Accept(absl::Seconds(100)), nullptr) << "the last files stay in force";
  EXPECT_EQ(TlsSessions(files).Accept(absl::Seconds(1)), nullptr);
  pki.Role("ps");
  EXPECT_NE(TlsSessions(files).Accept(absl::Seconds(1)), nullptr);
}

}  // namespace
}  // namespace divvy
