#include "rpc/peer_certificate.h"

#include <openssl/err.h>

#include <ctime>
#include <memory>
#include <vector>

namespace divvy {

namespace ssl = openssl;

std::optional<PeerId> IdOf(const X509* certificate) {
  const std::unique_ptr<GENERAL_NAMES, ssl::Freer<GENERAL_NAMES_free>> names(
      static_cast<GENERAL_NAMES*>(
          X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> uris;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                      static_cast<size_t>(ASN1_STRING_length(uri)));
  }
  return uris.size() == 1 ? ParseRoleUri(uris[0]) : std::nullopt;
}

std::string DomainOf(const std::string& file) {
  const std::vector<ssl::Certificate> chain = ssl::ReadCertificates(ssl::OpenFile(file).get());
  ERR_clear_error();
  const std::optional<PeerId> own = chain.empty() ? std::nullopt : IdOf(chain[0].get());
  return own ? own->domain : "";
}

std::optional<absl::Time> EndOfCertificate(const std::string& cert_file) {
  const std::vector<ssl::Certificate> chain = ssl::ReadCertificates(ssl::OpenFile(cert_file).get());
  ERR_clear_error();
  std::tm end{};
  if (chain.empty() || ASN1_TIME_to_tm(X509_get0_notAfter(chain[0].get()), &end) != 1)
    return std::nullopt;
  return absl::FromTM(end, absl::UTCTimeZone());
}

}  // namespace divvy
