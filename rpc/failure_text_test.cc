#include "rpc/failure_text.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

// The text that gRPC 1.51 logs, which ends with OpenSSL's.
std::string Handshake(const std::string& openssl) {
  return "Handshake failed with fatal error SSL_ERROR_SSL: error:0A000000:SSL routines::" + openssl;
}

TEST(FailureTextTest, AHandshakeThatFailsIsSaidWithWhatToGiveThePeer) {
  const std::string refused = "a TLS connection was refused: ";
  EXPECT_EQ(HandshakeFailure(Handshake("peer did not return a certificate")),
            refused + "the peer has no certificate: give it --tls_cert and --tls_key");
  EXPECT_EQ(HandshakeFailure(Handshake("certificate verify failed")),
            refused + "the peer's certificate is not signed by --tls_ca, or has expired");
  for (const char* plain : {"wrong version number", "http request"}) {
    EXPECT_EQ(HandshakeFailure(Handshake(plain)),
              refused + "the peer does not speak TLS: give it --tls_cert, --tls_key and --tls_ca")
        << plain;
  }
}

TEST(FailureTextTest, AHandshakeThatFailsInAnUnknownWayIsSaidInItsOwnWords) {
  EXPECT_EQ(HandshakeFailure(Handshake("no shared cipher")),
            "a TLS connection was refused: " + Handshake("no shared cipher"));
}

TEST(FailureTextTest, WhatIsNoHandshakeIsNotSaidToBeOne) {
  EXPECT_EQ(HandshakeFailure("Endpoint read failed: certificate verify failed"), "");
}

TEST(FailureTextTest, AConnectionThatIsNotMadeIsSaidWithItsCause) {
  const std::string failed =
      "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: ";
  EXPECT_EQ(ConnectFailure(failed + "Failed to connect to remote host: Connection refused"),
            "connection refused: nothing listens there");
  EXPECT_EQ(ConnectFailure("DNS resolution failed for nowhere:1: C-ares status is not "
                           "ARES_SUCCESS: Domain name not found"),
            "there is no such host name");
  EXPECT_EQ(ConnectFailure(
                failed +
                "Custom verification check failed with error: UNAUTHENTICATED: it is a worker's"),
            "it is a worker's")
      << "a verifier's words";
  for (const char* cause :
       {"it wants a certificate and got none", "--max_connections of its connections are open",
        "Its log has the reason"}) {
    EXPECT_THAT(ConnectFailure(failed + "Socket closed"), testing::HasSubstr(cause));
  }
  EXPECT_EQ(ConnectFailure(failed + "something new"), failed + "something new");
  EXPECT_EQ(ConnectFailure("Connection refused by the step"), "Connection refused by the step")
      << "it is not about a connection";
}

TEST(FailureTextTest, APortThatCannotBeListenedOnIsSaidWithItsCause) {
  EXPECT_EQ(ListenFailure("bind: Address already in use"),
            "the port is in use: another process listens there");
  EXPECT_EQ(ListenFailure("bind: Permission denied"),
            "permission denied: ports below 1024 need privileges");
  EXPECT_EQ(ListenFailure("bind: No buffer space available"), "bind: No buffer space available");
  EXPECT_EQ(ListenFailure(""), "no reason given");
}

}  // namespace
}  // namespace divvy
