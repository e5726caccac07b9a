// Certificates for tests.
#ifndef DIVVY_RPC_TESTING_PKI_H_
#define DIVVY_RPC_TESTING_PKI_H_

#include <sys/stat.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "gtest/gtest.h"
#include "rpc/certificates.h"
#include "rpc/credentials.h"

namespace divvy {

// The value, or a failure of the test.
inline CertifiedKey Value(absl::StatusOr<CertifiedKey> made) {
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *std::move(made) : CertifiedKey();
}

// A CA and the certificate files of tasks, in a directory `name` below the test's temporary
// directory. Failures fail the test.
class Pki {
 public:
  explicit Pki(const std::string& name)
      : folder_(absl::StrCat(testing::TempDir(), "/", name)),
        authority_(Value(MakeAuthority(name, absl::Hours(1)))) {
    EXPECT_TRUE(FileSystem::Real().CreateDirectory(folder_).ok());
    Write("ca.pem", authority_.certificate);
  }

  // Writes a file into the directory and returns its path.
  std::string Write(const std::string& name, absl::string_view bytes) {
    const std::string path = absl::StrCat(folder_, "/", name);
    EXPECT_TRUE(FileSystem::Real().ReplaceFile(path, bytes).ok());
    return path;
  }
  // A certificate for localhost that this CA has signed. Negative lifetime: expired.
  CertifiedKey Issue(const std::string& uri, absl::Duration lifetime = absl::Hours(1)) {
    return Value(IssueCertificate(authority_, {uri, {"localhost", "127.0.0.1"}, lifetime}));
  }
  // Writes the files NAME.pem and NAME.key.
  TlsFiles Files(const std::string& name, const CertifiedKey& made) {
    const TlsFiles files{Write(absl::StrCat(name, ".pem"), made.certificate),
                         Write(absl::StrCat(name, ".key"), made.key),
                         absl::StrCat(folder_, "/ca.pem")};
    EXPECT_EQ(chmod(files.key.c_str(), 0600), 0);
    return files;
  }
  // The files of task 0 of this role, in the job "test".
  TlsFiles Role(const std::string& role) {
    return Files(role, Issue(absl::StrCat("spiffe://test/", role, "/0")));
  }
  const CertifiedKey& authority() const { return authority_; }

 private:
  const std::string folder_;
  const CertifiedKey authority_;
};

}  // namespace divvy

#endif  // DIVVY_RPC_TESTING_PKI_H_
