#include "rpc/failure_text.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace divvy {
namespace {

struct KnownFailure {
  absl::string_view sign;
  absl::string_view text;
};

constexpr KnownFailure kListen[] = {
    {"Address already in use", "the port is in use: another process listens there"},
    {"Cannot assign requested address", "this machine has no such address"},
    {"Permission denied", "permission denied: ports below 1024 need privileges"},
    {"Name or service not known", "there is no such host name"},
};

constexpr KnownFailure kConnect[] = {
    {"Connection refused", "connection refused: nothing listens there"},
    {"certificate verify failed", "its certificate is not signed by --tls_ca, or has expired"},
    {"wrong version number", "it does not speak TLS, as this task does"},
    {"Socket closed",
     "it closed the connection at once: it wants a certificate and got none, or one that is not "
     "signed by its --tls_ca, has expired, or is of another job or "
     "of none; or --max_connections of its connections are open. Its log has "
     "the reason"},
    {"Name or service not known", "there is no such host name"},
    {"Domain name not found", "there is no such host name"},
};

constexpr KnownFailure kHandshake[] = {
    {"peer did not return a certificate",
     "the peer has no certificate: give it --tls_cert and --tls_key"},
    {"certificate verify failed",
     "the peer's certificate is not signed by --tls_ca, or has expired"},
    {"wrong version number",
     "the peer does not speak TLS: give it --tls_cert, --tls_key and --tls_ca"},
    {"http request", "the peer does not speak TLS: give it --tls_cert, --tls_key and --tls_ca"},
};

std::string Find(absl::Span<const KnownFailure> known, absl::string_view text) {
  for (const KnownFailure& failure : known) {
    if (absl::StrContains(text, failure.sign)) return std::string(failure.text);
  }
  return std::string(text);
}

// "...: Custom verification check failed with error: UNAUTHENTICATED: words" -> the text of our own
// verifier (credentials.cc).
absl::string_view VerifiersWords(absl::string_view text) {
  constexpr absl::string_view kSign = "UNAUTHENTICATED: ";
  const size_t at = text.find(kSign);
  return at == absl::string_view::npos ? absl::string_view() : text.substr(at + kSign.size());
}

}  // namespace

std::string ListenFailure(absl::string_view grpc_text) {
  return grpc_text.empty() ? "no reason given" : Find(kListen, grpc_text);
}

std::string ConnectFailure(absl::string_view grpc_text) {
  if (!absl::StrContains(grpc_text, "failed to connect") &&
      !absl::StrContains(grpc_text, "DNS resolution failed"))
    return std::string(grpc_text);
  const absl::string_view words = VerifiersWords(grpc_text);
  return words.empty() ? Find(kConnect, grpc_text) : std::string(words);
}

std::string HandshakeFailure(absl::string_view grpc_text) {
  if (!absl::StrContains(grpc_text, "Handshake failed")) return "";
  return absl::StrCat("a TLS connection was refused: ", Find(kHandshake, grpc_text));
}

}  // namespace divvy
