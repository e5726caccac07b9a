#include "rpc/credentials.h"

#include <openssl/err.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "cluster/task_address.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "rpc/openssl.h"
#include "rpc/peer_certificate.h"

namespace divvy {
namespace {

namespace ssl = openssl;
namespace tls = grpc::experimental;

// ---- problems of the files ----------------------------------------------------------------------

// `chain`: the task's certificate, then the intermediate certificates.
void CheckSigned(const TlsFiles& files, const std::vector<ssl::Certificate>& chain,
                 std::vector<std::string>& problems) {
  const ssl::Store store(X509_STORE_new());
  if (X509_STORE_load_file(store.get(), files.ca.c_str()) != 1) {
    problems.push_back(
        absl::StrCat("--tls_ca=", files.ca, ": cannot read PEM certificates from it"));
    return;
  }
  if (chain.empty()) return;
  const ssl::Stack between(sk_X509_new_null());
  for (size_t i = 1; i < chain.size(); ++i) sk_X509_push(between.get(), chain[i].get());
  const ssl::StoreContext context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), chain[0].get(), between.get());
  if (X509_verify_cert(context.get()) == 1) return;
  problems.push_back(
      absl::StrCat("--tls_cert=", files.cert, ": ",
                   X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get())),
                   " (checked against --tls_ca=", files.ca, ")"));
}

// `owner` may be null: any role is accepted.
void CheckRole(const TlsFiles& files, const X509* certificate, const PeerRole* owner,
               std::vector<std::string>& problems) {
  const std::optional<PeerId> id = IdOf(certificate);
  if (!id) {
    problems.push_back(absl::StrCat(
        "--tls_cert=", files.cert,
        " names no role: it needs one URI spiffe://DOMAIN/ROLE/INDEX (divvyctl certs makes one)"));
  } else if (owner != nullptr && !(id->task == *owner)) {
    problems.push_back(absl::StrCat("--tls_cert=", files.cert, " is the certificate of ",
                                    id->task.text(), ", and this task is ", owner->text(),
                                    ": give it its own"));
  }
}

absl::Status CheckFiles(const TlsFiles& files, const PeerRole* owner) {
  std::vector<std::string> problems;
  const std::vector<ssl::Certificate> chain =
      ssl::ReadCertificates(ssl::OpenFile(files.cert).get());
  const ssl::Key key = ssl::ReadKey(ssl::OpenFile(files.key).get());
  if (chain.empty()) {
    problems.push_back(
        absl::StrCat("--tls_cert=", files.cert, ": cannot read a PEM certificate from it"));
  } else {
    CheckRole(files, chain[0].get(), owner, problems);
  }
  if (key == nullptr)
    problems.push_back(absl::StrCat("--tls_key=", files.key,
                                    ": cannot read a PEM private key without password from it"));
  if (!chain.empty() && key != nullptr && X509_check_private_key(chain[0].get(), key.get()) != 1) {
    problems.push_back(
        absl::StrCat("--tls_key=", files.key, " is not the key of --tls_cert=", files.cert));
  }
  CheckSigned(files, chain, problems);
  ERR_clear_error();
  if (problems.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrJoin(problems, "; "));
}

// Some volumes of secrets allow no other mode, so this is only a warning.
void WarnOfOpenKey(const std::string& key) {
  struct stat info;
  if (stat(key.c_str(), &info) != 0 || (info.st_mode & (S_IROTH | S_IWOTH)) == 0) return;
  DIVVY_LOG(WARNING) << "--tls_key=" << key << ": every user of this machine can "
                     << ((info.st_mode & S_IROTH) != 0 ? "read" : "write")
                     << " it, and impersonate this task. chmod o-rw " << key;
}

// ---- checks of a peer's certificate -------------------------------------------------------------

std::optional<PeerId> IdOf(const tls::TlsCustomVerificationCheckRequest& peer) {
  const std::vector<grpc::string_ref> uris = peer.uri_names();
  return uris.size() == 1 ? ParseRoleUri(absl::string_view(uris[0].data(), uris[0].size()))
                          : std::nullopt;
}

std::string OfAnotherJob(const PeerId& peer, absl::string_view own_domain) {
  return absl::StrCat("certificate is that of ", peer.task.text(), " of job \"", peer.domain,
                      "\", and this task's is of job \"", own_domain,
                      "\": check which certificates both were given (divvyctl certs --job=NAME "
                      "makes those of a job)");
}

// Checks the peer's certificate after its chain has been verified.
class PeerVerifier : public tls::ExternalCertificateVerifier {
 public:
  bool Verify(tls::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* sync_status) override {
    const std::string fault = FaultOf(IdOf(*request));
    if (!fault.empty()) *sync_status = grpc::Status(grpc::StatusCode::UNAUTHENTICATED, fault);
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  // empty: no fault
  virtual std::string FaultOf(const std::optional<PeerId>& peer) const = 0;
};

class ServerVerifier : public PeerVerifier {
 public:
  ServerVerifier(std::string domain, std::string role, std::optional<int> index)
      : domain_(std::move(domain)), role_(std::move(role)), index_(index) {}

 private:
  std::string FaultOf(const std::optional<PeerId>& server) const override {
    if (!server) return IsNot("has no role");
    if (!role_.empty() && server->task.role != role_)
      return IsNot(absl::StrCat("is not that of a ", role_));
    if (index_ && server->task.index != absl::StrCat(*index_))
      return IsNot(
          absl::StrCat("is that of ", server->task.text(), ", not of ", role_, " ", *index_));
    // A task without a job of its own has nothing to compare. The server refuses the connection of
    // such a task (CallerVerifier).
    return domain_.empty() || server->domain == domain_
               ? ""
               : absl::StrCat("the server's ", OfAnotherJob(*server, domain_));
  }
  static std::string IsNot(absl::string_view fault) {
    return absl::StrCat(
        "the server's certificate ", fault,
        ": check which certificate the task there was given (divvyctl certs makes some)");
  }

  const std::string domain_, role_;
  const std::optional<int> index_;
};

// authorization.h decides what a caller may do, at each call. This verifier refuses two kinds of
// callers before gRPC reads a byte from them: those of another job, and those without a role, which
// may make no call.
class CallerVerifier : public PeerVerifier {
 public:
  explicit CallerVerifier(std::string domain) : domain_(std::move(domain)) {}

 private:
  std::string FaultOf(const std::optional<PeerId>& caller) const override {
    if (caller && caller->domain == domain_) return "";
    const std::string fault =
        absl::StrCat("a TLS connection was refused: the peer's ",
                     caller ? OfAnotherJob(*caller, domain_)
                            : "certificate names no role: it needs one URI "
                              "spiffe://DOMAIN/ROLE/INDEX (divvyctl certs makes one)");
    // gRPC does not log a refused connection.
    if (limit_.Admit(fault)) DIVVY_LOG(WARNING) << fault;
    return fault;
  }

  const std::string domain_;
  mutable LogLimit limit_;
};

std::shared_ptr<tls::FileWatcherCertificateProvider> Provider(const TlsFiles& files) {
  return std::make_shared<tls::FileWatcherCertificateProvider>(files.key, files.cert, files.ca,
                                                               files.refresh_seconds);
}

// Numeric addresses of 127.0.0.0/8 only: "127.example.com" may be another host.
bool IsLoopbackV4(absl::string_view host) {
  const std::vector<std::string> parts = absl::StrSplit(host, '.');
  if (parts.size() != 4 || parts[0] != "127") return false;
  return std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
    int value = 0;
    return part.size() <= 3 && absl::SimpleAtoi(part, &value) && value >= 0 && value <= 255;
  });
}

}  // namespace

std::optional<absl::Time> EndOfCertificate(const std::string& cert_file) {
  const std::vector<ssl::Certificate> chain = ssl::ReadCertificates(ssl::OpenFile(cert_file).get());
  ERR_clear_error();
  std::tm end{};
  if (chain.empty() || ASN1_TIME_to_tm(X509_get0_notAfter(chain[0].get()), &end) != 1)
    return std::nullopt;
  return absl::FromTM(end, absl::UTCTimeZone());
}

absl::Status CheckTlsFiles(const TlsFiles& files) { return CheckFiles(files, nullptr); }

absl::Status CheckTlsFiles(const TlsFiles& files, const PeerRole& owner) {
  return CheckFiles(files, &owner);
}

std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(
    const std::optional<TlsFiles>& files) {
  if (!files) return grpc::InsecureServerCredentials();
  WarnOfOpenKey(files->key);
  tls::TlsServerCredentialsOptions options(Provider(*files));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.set_certificate_verifier(
      tls::ExternalCertificateVerifier::Create<CallerVerifier>(DomainOf(files->cert)));
  return tls::TlsServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(
    const std::optional<TlsFiles>& files, absl::string_view role) {
  return ChannelIdentity(files).For(role);
}

ChannelIdentity::ChannelIdentity(const std::optional<TlsFiles>& files) {
  if (!files) return;
  provider_ = Provider(*files);
  domain_ = DomainOf(files->cert);
}

std::shared_ptr<grpc::ChannelCredentials> ChannelIdentity::For(absl::string_view role,
                                                               std::optional<int> index) const {
  if (provider_ == nullptr) return grpc::InsecureChannelCredentials();
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(provider_);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_check_call_host(false);
  options.set_certificate_verifier(
      tls::ExternalCertificateVerifier::Create<ServerVerifier>(domain_, std::string(role), index));
  return tls::TlsCredentials(options);
}

bool IsLoopback(absl::string_view address) {
  if (SocketPathOf(address)) return true;
  const absl::string_view host = address.substr(0, address.rfind(':'));
  return host == "localhost" || host == "[::1]" || IsLoopbackV4(host);
}

absl::Status CheckPlaintext(const std::vector<std::string>& addresses) {
  std::vector<std::string> outside;
  for (const std::string& address : addresses) {
    if (!address.empty() && !IsLoopback(address)) outside.push_back(address);
  }
  if (outside.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("without certificates a cluster must stay on loopback, but ",
                   absl::StrJoin(outside, ", "), outside.size() == 1 ? " is" : " are",
                   " not: give --tls_cert, --tls_key and --tls_ca (divvyctl certs makes some)"));
}

}  // namespace divvy
