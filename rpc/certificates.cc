#include "rpc/certificates.h"

#include <openssl/err.h>
#include <openssl/rand.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "rpc/openssl.h"

namespace divvy {
namespace {

namespace ssl = openssl;

// Version 3 is encoded as 2.
constexpr long kX509Version3 = 2;
constexpr absl::Duration kClockSkew = absl::Minutes(5);

struct ExtensionText {
  int nid;
  // in OpenSSL's notation
  std::string value;
};

absl::Status Failed(absl::string_view what) {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  return absl::InternalError(
      absl::StrCat("OpenSSL cannot ", what, ": ",
                   code == 0 ? "no reason given" : ERR_reason_error_string(code)));
}

// OpenSSL's notation of a list gives these characters a meaning. No host or URI of ours has one of
// them.
bool Travels(absl::string_view name) {
  for (const char c : name) {
    if (c <= ' ' || c > '~' || c == ',' || c == ';' || c == '"' || c == '\\') return false;
  }
  return !name.empty();
}

bool IsIpAddress(const std::string& host) {
  ASN1_OCTET_STRING* const address = a2i_IPADDRESS(host.c_str());
  ASN1_OCTET_STRING_free(address);
  ERR_clear_error();
  return address != nullptr;
}

absl::Status CheckTravels(absl::string_view name) {
  if (Travels(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a certificate cannot hold the name \"", name, "\""));
}

absl::StatusOr<std::string> AlternativeNames(const CertificateRequest& request) {
  std::vector<std::string> names;
  if (!request.uri.empty()) {
    RETURN_IF_ERROR(CheckTravels(request.uri));
    names.push_back(absl::StrCat("URI:", request.uri));
  }
  for (const std::string& host : request.hosts) {
    RETURN_IF_ERROR(CheckTravels(host));
    names.push_back(absl::StrCat(IsIpAddress(host) ? "IP:" : "DNS:", host));
  }
  return absl::StrJoin(names, ",");
}

std::string Pem(const ssl::Bio& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

absl::StatusOr<CertifiedKey> ToPem(X509* certificate, EVP_PKEY* key) {
  const ssl::Bio certificate_pem(BIO_new(BIO_s_mem())), key_pem(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(certificate_pem.get(), certificate) != 1)
    return Failed("write a certificate");
  if (PEM_write_bio_PKCS8PrivateKey(key_pem.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return Failed("write a key");
  return CertifiedKey{Pem(certificate_pem), Pem(key_pem)};
}

absl::Status SetSerial(X509* certificate) {
  unsigned char bytes[16];
  if (RAND_bytes(bytes, sizeof bytes) != 1) return Failed("draw a serial number");
  // Makes it positive.
  bytes[0] &= 0x7f;
  const std::unique_ptr<BIGNUM, ssl::Freer<BN_free>> number(
      BN_bin2bn(bytes, sizeof bytes, nullptr));
  return BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) == nullptr
             ? Failed("set a serial number")
             : absl::OkStatus();
}

absl::Status SetName(X509* certificate, absl::string_view common_name) {
  X509_NAME* const name = X509_get_subject_name(certificate);
  const auto* const text = reinterpret_cast<const unsigned char*>(common_name.data());
  if (X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, text,
                                 static_cast<int>(common_name.size()), -1, 0) == 1)
    return absl::OkStatus();
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat("a certificate cannot have the name \"",
                                                 common_name, "\": at most 64 characters"));
}

absl::Status AddExtension(X509* certificate, X509* issuer, const ExtensionText& text) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const ssl::Extension extension(
      X509V3_EXT_conf_nid(nullptr, &context, text.nid, text.value.c_str()));
  if (extension == nullptr || X509_add_ext(certificate, extension.get(), -1) != 1)
    return Failed(absl::StrCat("add \"", text.value, "\" to a certificate"));
  return absl::OkStatus();
}

// Makes a new key and its certificate, signed by `issuer_key`. If both arguments of the issuer are
// null, the certificate signs itself.
absl::StatusOr<CertifiedKey> Make(absl::string_view name, absl::Duration lifetime,
                                  const std::vector<ExtensionText>& extensions, X509* issuer,
                                  EVP_PKEY* issuer_key) {
  const ssl::Key key(EVP_EC_gen("P-256"));
  const ssl::Certificate certificate(X509_new());
  if (key == nullptr || certificate == nullptr) return Failed("make a key");
  X509* const made = certificate.get();
  X509_set_version(made, kX509Version3);
  RETURN_IF_ERROR(SetSerial(made));
  RETURN_IF_ERROR(SetName(made, name));
  X509_set_issuer_name(made, X509_get_subject_name(issuer == nullptr ? made : issuer));
  const absl::Duration begin =
      lifetime < absl::ZeroDuration() ? lifetime - kClockSkew : -kClockSkew;
  X509_gmtime_adj(X509_getm_notBefore(made), absl::ToInt64Seconds(begin));
  X509_gmtime_adj(X509_getm_notAfter(made), absl::ToInt64Seconds(lifetime));
  X509_set_pubkey(made, key.get());
  for (const ExtensionText& extension : extensions)
    RETURN_IF_ERROR(AddExtension(made, issuer == nullptr ? made : issuer, extension));
  if (X509_sign(made, issuer_key == nullptr ? key.get() : issuer_key, EVP_sha256()) == 0)
    return Failed("sign a certificate");
  return ToPem(made, key.get());
}

}  // namespace

absl::StatusOr<CertifiedKey> MakeAuthority(absl::string_view name, absl::Duration lifetime) {
  return Make(name, lifetime,
              {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
               {NID_key_usage, "critical,keyCertSign,cRLSign"},
               {NID_subject_key_identifier, "hash"}},
              nullptr, nullptr);
}

namespace {

struct ReadAuthority {
  ssl::Certificate certificate;
  ssl::Key key;
};

absl::StatusOr<ReadAuthority> Read(const CertifiedKey& authority) {
  const ssl::Bio certificate_pem(BIO_new_mem_buf(authority.certificate.data(),
                                                 static_cast<int>(authority.certificate.size())));
  const ssl::Bio key_pem(
      BIO_new_mem_buf(authority.key.data(), static_cast<int>(authority.key.size())));
  std::vector<ssl::Certificate> certificates = ssl::ReadCertificates(certificate_pem.get());
  ssl::Key key = ssl::ReadKey(key_pem.get());
  ERR_clear_error();
  if (certificates.empty() || key == nullptr)
    return absl::InvalidArgumentError("the authority's certificate or key is not PEM");
  return ReadAuthority{std::move(certificates[0]), std::move(key)};
}

}  // namespace

absl::StatusOr<CertifiedKey> IssueCertificate(const CertifiedKey& authority,
                                              const CertificateRequest& request) {
  ASSIGN_OR_RETURN(const ReadAuthority issuer, Read(authority));
  ASSIGN_OR_RETURN(const std::string names, AlternativeNames(request));
  std::vector<ExtensionText> extensions = {{NID_basic_constraints, "critical,CA:FALSE"},
                                           {NID_key_usage, "critical,digitalSignature"},
                                           {NID_ext_key_usage, "serverAuth,clientAuth"},
                                           {NID_authority_key_identifier, "keyid"}};
  if (!names.empty()) extensions.push_back({NID_subject_alt_name, names});
  return Make("divvy", request.lifetime, extensions, issuer.certificate.get(), issuer.key.get());
}

absl::StatusOr<std::string> NameOfAuthority(const CertifiedKey& authority) {
  ASSIGN_OR_RETURN(const ReadAuthority read, Read(authority));
  if (X509_check_private_key(read.certificate.get(), read.key.get()) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError("the key is not that of the certificate");
  }
  char name[256] = "";
  X509_NAME_get_text_by_NID(X509_get_subject_name(read.certificate.get()), NID_commonName, name,
                            sizeof name);
  return std::string(name);
}

}  // namespace divvy
