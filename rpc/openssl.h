// OpenSSL's objects as values that free themselves, for the files of this folder that use them.
#ifndef DIVVY_RPC_OPENSSL_H_
#define DIVVY_RPC_OPENSSL_H_

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace divvy::openssl {

// A deleter for std::unique_ptr that calls kFree.
template <auto kFree>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
// Frees the stack, not the certificates in it, which are owned elsewhere.
inline void FreeStack(STACK_OF(X509) * stack) { sk_X509_free(stack); }

using Bio = std::unique_ptr<BIO, Freer<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Freer<X509_EXTENSION_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using Stack = std::unique_ptr<STACK_OF(X509), Freer<FreeStack>>;
using Store = std::unique_ptr<X509_STORE, Freer<X509_STORE_free>>;
using StoreContext = std::unique_ptr<X509_STORE_CTX, Freer<X509_STORE_CTX_free>>;

// A file to read. Null: it cannot be opened.
inline Bio OpenFile(const std::string& path) { return Bio(BIO_new_file(path.c_str(), "r")); }

// Reads certificates until the end, or until something that is not a certificate. `bio` may be
// null; then the result is empty.
inline std::vector<Certificate> ReadCertificates(BIO* bio) {
  std::vector<Certificate> certificates;
  while (bio != nullptr) {
    Certificate next(PEM_read_bio_X509(bio, nullptr, nullptr, nullptr));
    if (next == nullptr) break;
    certificates.push_back(std::move(next));
  }
  return certificates;
}

// Reads a private key. Null: there is no key, or the key needs a password. It never asks for one.
inline Key ReadKey(BIO* bio) {
  const auto no_password = [](char*, int, int, void*) { return -1; };
  return Key(bio == nullptr ? nullptr
                            : PEM_read_bio_PrivateKey(bio, nullptr, no_password, nullptr));
}

}  // namespace divvy::openssl

#endif  // DIVVY_RPC_OPENSSL_H_
