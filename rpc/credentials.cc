#include "rpc/credentials.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdio>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "rpc/authorization.h"

namespace divvy {
namespace {

namespace tls = grpc::experimental;

constexpr unsigned kRefreshSeconds = 600;

// ---- what is wrong with the files --------------------------------------------------------------------------------------------------------------------------

template <typename T, void (*Free)(T*)>
struct Freer {
  void operator()(T* object) const { Free(object); }
};
using Certificate = std::unique_ptr<X509, Freer<X509, X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY, EVP_PKEY_free>>;
using Store = std::unique_ptr<X509_STORE, Freer<X509_STORE, X509_STORE_free>>;
using StoreContext = std::unique_ptr<X509_STORE_CTX, Freer<X509_STORE_CTX, X509_STORE_CTX_free>>;
struct BioFree {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using Bio = std::unique_ptr<BIO, BioFree>;

Certificate ReadCertificate(const std::string& path) {
  const Bio bio(BIO_new_file(path.c_str(), "r"));
  return Certificate(bio == nullptr ? nullptr : PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
}

Key ReadKey(const std::string& path) {
  const Bio bio(BIO_new_file(path.c_str(), "r"));
  return Key(bio == nullptr ? nullptr : PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
}

void CheckSigned(const TlsFiles& files, X509* certificate, std::vector<std::string>& problems) {
  const Store store(X509_STORE_new());
  if (X509_STORE_load_file(store.get(), files.ca.c_str()) != 1) {
    problems.push_back(absl::StrCat("--tls_ca=", files.ca, ": cannot read PEM certificates from it"));
    return;
  }
  if (certificate == nullptr) return;
  const StoreContext context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), certificate, nullptr);
  if (X509_verify_cert(context.get()) == 1) return;
  problems.push_back(absl::StrCat("--tls_cert=", files.cert, ": ", X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get())), " (checked against --tls_ca=",
                                  files.ca, ")"));
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
    *sync_status = grpc::Status(grpc::StatusCode::UNAUTHENTICATED, absl::StrCat("the server's certificate is not that of a ", role_));
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  const std::string role_;
};

std::shared_ptr<tls::FileWatcherCertificateProvider> Provider(const TlsFiles& files) {
  return std::make_shared<tls::FileWatcherCertificateProvider>(files.key, files.cert, files.ca, kRefreshSeconds);
}

}  // namespace

absl::Status CheckTlsFiles(const TlsFiles& files) {
  std::vector<std::string> problems;
  const Certificate certificate = ReadCertificate(files.cert);
  const Key key = ReadKey(files.key);
  if (certificate == nullptr) problems.push_back(absl::StrCat("--tls_cert=", files.cert, ": cannot read a PEM certificate from it"));
  if (key == nullptr) problems.push_back(absl::StrCat("--tls_key=", files.key, ": cannot read a PEM private key from it"));
  if (certificate != nullptr && key != nullptr && X509_check_private_key(certificate.get(), key.get()) != 1) {
    problems.push_back(absl::StrCat("--tls_key=", files.key, " is not the key of --tls_cert=", files.cert));
  }
  CheckSigned(files, certificate.get(), problems);
  ERR_clear_error();
  if (problems.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrJoin(problems, "; "));
}

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
  return host == "localhost" || host == "[::1]" || absl::StartsWith(host, "127.");
}

absl::Status CheckPlaintext(const std::vector<std::string>& addresses) {
  std::vector<std::string> outside;
  for (const std::string& address : addresses) {
    if (!address.empty() && !IsLoopback(address)) outside.push_back(address);
  }
  if (outside.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("without certificates a cluster must stay on loopback, but ", absl::StrJoin(outside, ", "),
                                                    outside.size() == 1 ? " is" : " are", " not: give --tls_cert, --tls_key and --tls_ca (divvyctl certs makes some)"));
}

}  // namespace divvy
