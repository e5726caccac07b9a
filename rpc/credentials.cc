#include "rpc/credentials.h"

#include <openssl/err.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "rpc/openssl.h"

namespace divvy {
namespace {

namespace ssl = openssl;
namespace tls = grpc::experimental;

constexpr unsigned kRefreshSeconds = 60;

// ---- what is wrong with the files --------------------------------------------------------------------------------------------------------------------------

ssl::Bio OpenFile(const std::string& path) { return ssl::Bio(BIO_new_file(path.c_str(), "r")); }

// `chain`: the task's certificate, then those between it and the CA.
void CheckSigned(const TlsFiles& files, const std::vector<ssl::Certificate>& chain, std::vector<std::string>& problems) {
  const ssl::Store store(X509_STORE_new());
  if (X509_STORE_load_file(store.get(), files.ca.c_str()) != 1) {
    problems.push_back(absl::StrCat("--tls_ca=", files.ca, ": cannot read PEM certificates from it"));
    return;
  }
  if (chain.empty()) return;
  const ssl::Stack between(sk_X509_new_null());
  for (size_t i = 1; i < chain.size(); ++i) sk_X509_push(between.get(), chain[i].get());
  const ssl::StoreContext context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), chain[0].get(), between.get());
  if (X509_verify_cert(context.get()) == 1) return;
  problems.push_back(absl::StrCat("--tls_cert=", files.cert, ": ", X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get())),
                                  " (checked against --tls_ca=", files.ca, ")"));
}

// The role in the one URI of the certificate.
std::optional<PeerRole> RoleOf(const X509* certificate) {
  const std::unique_ptr<GENERAL_NAMES, ssl::Freer<GENERAL_NAMES_free>> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> uris;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)), static_cast<size_t>(ASN1_STRING_length(uri)));
  }
  return uris.size() == 1 ? ParseRoleUri(uris[0]) : std::nullopt;
}

// `owner` may be null: any role will do.
void CheckRole(const TlsFiles& files, const X509* certificate, const PeerRole* owner, std::vector<std::string>& problems) {
  const std::optional<PeerRole> role = RoleOf(certificate);
  if (!role) {
    problems.push_back(absl::StrCat("--tls_cert=", files.cert, " names no role: it needs one URI spiffe://DOMAIN/ROLE/INDEX (divvyctl certs makes such)"));
  } else if (owner != nullptr && !(*role == *owner)) {
    problems.push_back(
        absl::StrCat("--tls_cert=", files.cert, " is the certificate of ", role->text(), ", and this task is ", owner->text(), ": give it its own"));
  }
}

absl::Status CheckFiles(const TlsFiles& files, const PeerRole* owner) {
  std::vector<std::string> problems;
  const std::vector<ssl::Certificate> chain = ssl::ReadCertificates(OpenFile(files.cert).get());
  const ssl::Key key = ssl::ReadKey(OpenFile(files.key).get());
  if (chain.empty()) {
    problems.push_back(absl::StrCat("--tls_cert=", files.cert, ": cannot read a PEM certificate from it"));
  } else {
    CheckRole(files, chain[0].get(), owner, problems);
  }
  if (key == nullptr) problems.push_back(absl::StrCat("--tls_key=", files.key, ": cannot read a PEM private key without password from it"));
  if (!chain.empty() && key != nullptr && X509_check_private_key(chain[0].get(), key.get()) != 1) {
    problems.push_back(absl::StrCat("--tls_key=", files.key, " is not the key of --tls_cert=", files.cert));
  }
  CheckSigned(files, chain, problems);
  ERR_clear_error();
  if (problems.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrJoin(problems, "; "));
}

// ---- whom a client believes --------------------------------------------------------------------------------------------------------------------------------

class RoleVerifier : public tls::ExternalCertificateVerifier {
 public:
  explicit RoleVerifier(std::string role) : role_(std::move(role)) {}
  bool Verify(tls::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>, grpc::Status* sync_status) override {
    for (const grpc::string_ref& uri : request->uri_names()) {
      const std::optional<PeerRole> peer = ParseRoleUri(absl::string_view(uri.data(), uri.size()));
      if (peer && (role_.empty() || peer->role == role_)) return true;
    }
    const std::string fault = role_.empty() ? "has no role" : absl::StrCat("is not that of a ", role_);
    *sync_status =
        grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                     absl::StrCat("the server's certificate ", fault, ": check which certificate the task there was given (divvyctl certs makes some)"));
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  const std::string role_;
};

std::shared_ptr<tls::FileWatcherCertificateProvider> Provider(const TlsFiles& files) {
  return std::make_shared<tls::FileWatcherCertificateProvider>(files.key, files.cert, files.ca, kRefreshSeconds);
}

// 127.0.0.0/8 in figures: "127.example.com" is somebody's host.
bool IsLoopbackV4(absl::string_view host) {
  const std::vector<std::string> parts = absl::StrSplit(host, '.');
  if (parts.size() != 4 || parts[0] != "127") return false;
  return std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
    int value = 0;
    return part.size() <= 3 && absl::SimpleAtoi(part, &value) && value >= 0 && value <= 255;
  });
}

}  // namespace

absl::Status CheckTlsFiles(const TlsFiles& files) { return CheckFiles(files, nullptr); }

absl::Status CheckTlsFiles(const TlsFiles& files, const PeerRole& owner) { return CheckFiles(files, &owner); }

std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(const std::optional<TlsFiles>& files) {
  if (!files) return grpc::InsecureServerCredentials();
  tls::TlsServerCredentialsOptions options(Provider(*files));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return tls::TlsServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(const std::optional<TlsFiles>& files, absl::string_view role) {
  if (!files) return grpc::InsecureChannelCredentials();
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(Provider(*files));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_check_call_host(false);
  options.set_certificate_verifier(tls::ExternalCertificateVerifier::Create<RoleVerifier>(std::string(role)));
  return tls::TlsCredentials(options);
}

bool IsLoopback(absl::string_view address) {
  if (absl::StartsWith(address, "unix:")) return true;
  const absl::string_view host = address.substr(0, address.rfind(':'));
  return host == "localhost" || host == "[::1]" || IsLoopbackV4(host);
}

absl::Status CheckPlaintext(const std::vector<std::string>& addresses) {
  std::vector<std::string> outside;
  for (const std::string& address : addresses) {
    if (!address.empty() && !IsLoopback(address)) outside.push_back(address);
  }
  if (outside.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("without certificates a cluster must stay on loopback, but ", absl::StrJoin(outside, ", "),
                                                    outside.size() == 1 ? " is" : " are",
                                                    " not: give --tls_cert, --tls_key and --tls_ca (divvyctl certs makes some)"));
}

}  // namespace divvy
