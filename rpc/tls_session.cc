#include "rpc/tls_session.h"

#include <openssl/err.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "rpc/peer_certificate.h"

namespace divvy {
namespace {

LogLimit& TlsLogLimit() {
  static LogLimit* const limit = new LogLimit;
  return *limit;
}

}  // namespace

// ---- a session ----------------------------------------------------------------------------------

TlsSession::TlsSession(SSL_CTX& context, std::string domain)
    : domain_(std::move(domain)), ssl_(SSL_new(&context)) {
  // The session owns both.
  SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  SSL_set_accept_state(ssl_.get());
}

bool TlsSession::IsOfThisJob() const {
  const openssl::Certificate peer(SSL_get1_peer_certificate(ssl_.get()));
  const std::optional<PeerId> id = peer == nullptr ? std::nullopt : IdOf(peer.get());
  if (id && id->domain == domain_) return true;
  constexpr char kWhy[] =
      "a TLS connection was refused: the caller's certificate is of another job, or names no role: "
      "give it one of this job (divvyctl certs)";
  if (TlsLogLimit().Admit(kWhy)) DIVVY_LOG(WARNING) << kWhy;
  return false;
}

// False: the peer is refused.
bool TlsSession::Handshake() {
  const int done = SSL_do_handshake(ssl_.get());
  if (done == 1) {
    is_open_ = true;
    return IsOfThisJob();
  }
  return SSL_get_error(ssl_.get(), done) == SSL_ERROR_WANT_READ;
}

bool TlsSession::Receive(absl::string_view bytes, std::string& plain) {
  ERR_clear_error();
  BIO_write(SSL_get_rbio(ssl_.get()), bytes.data(), static_cast<int>(bytes.size()));
  if (!is_open_ && !Handshake()) return false;
  if (!is_open_) return true;
  char some[1024];
  while (true) {
    const int got = SSL_read(ssl_.get(), some, sizeof(some));
    if (got > 0) {
      plain.append(some, static_cast<size_t>(got));
      continue;
    }
    const int error = SSL_get_error(ssl_.get(), got);
    // A peer that sends no more may still want its answer.
    return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_ZERO_RETURN;
  }
}

void TlsSession::Finish(absl::string_view plain) {
  SSL_write(ssl_.get(), plain.data(), static_cast<int>(plain.size()));
  SSL_shutdown(ssl_.get());
}

std::string TlsSession::TakeOutgoing() {
  BIO* const out = SSL_get_wbio(ssl_.get());
  std::string bytes(BIO_ctrl_pending(out), '\0');
  if (!bytes.empty()) BIO_read(out, bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

// ---- sessions -----------------------------------------------------------------------------------

TlsSessions::Context TlsSessions::Read() const {
  ERR_clear_error();
  Context context(SSL_CTX_new(TLS_server_method()));
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  // Sessions are not resumed: OpenSSL refuses a caller that tries where it needs a certificate.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  const bool usable =
      SSL_CTX_use_certificate_chain_file(context.get(), files_.cert.c_str()) == 1 &&
      SSL_CTX_use_PrivateKey_file(context.get(), files_.key.c_str(), SSL_FILETYPE_PEM) == 1 &&
      SSL_CTX_check_private_key(context.get()) == 1 &&
      SSL_CTX_load_verify_locations(context.get(), files_.ca.c_str(), nullptr) == 1;
  ERR_clear_error();
  return usable ? std::move(context) : nullptr;
}

std::unique_ptr<TlsSession> TlsSessions::Accept(absl::Duration now) {
  if (context_ == nullptr || now - read_at_ >= absl::Seconds(files_.refresh_seconds)) {
    if (Context read = Read(); read != nullptr) {
      context_ = std::move(read);
      domain_ = DomainOf(files_.cert);
    } else if (const std::string why = absl::StrCat(
                   files_.cert, ", ", files_.key, " and ", files_.ca,
                   ": they cannot be used together, so --http_address goes on with the last ones");
               TlsLogLimit().Admit(why)) {
      DIVVY_LOG(WARNING) << why;
    }
    read_at_ = now;
  }
  if (context_ == nullptr) return nullptr;
  return std::unique_ptr<TlsSession>(new TlsSession(*context_, domain_));
}

}  // namespace divvy
