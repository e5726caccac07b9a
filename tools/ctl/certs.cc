#include "tools/ctl/certs.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "rpc/authorization.h"
#include "rpc/certificates.h"

namespace divvy {
namespace {

constexpr absl::string_view kDefaultJob = "divvy";

struct CertifiedTask {
  std::string role;
  int index;
  std::string name() const { return absl::StrCat(role, "-", index); }
};

std::vector<CertifiedTask> TasksOf(const CertsOptions& options) {
  std::vector<CertifiedTask> tasks = {{"chief", 0}, {"admin", 0}};
  for (int i = 0; i < options.ps; ++i) tasks.push_back({"ps", i});
  for (int i = 0; i < options.workers; ++i) tasks.push_back({"worker", i});
  return tasks;
}

absl::Status Check(const CertsOptions& options) {
  if (options.out.empty())
    return absl::InvalidArgumentError("certs: give the directory to write to by --out=DIR");
  if (options.ps < 0 || options.workers < 0 || options.ps + options.workers > 10'000)
    return absl::InvalidArgumentError("certs: --ps and --workers must be 0 to 10,000 together");
  if (options.add && options.force)
    return absl::InvalidArgumentError(
        "certs: --add keeps what is there, --force replaces it: give one of them");
  const std::string job = options.job.empty() ? std::string(kDefaultJob) : options.job;
  if (const auto id = ParseRoleUri(absl::StrCat("spiffe://", job, "/chief/0"));
      !id || id->domain != job)
    return absl::InvalidArgumentError(
        absl::StrCat("certs: --job=\"", job,
                     "\": wanted a name of 1 to 40 letters, digits, \".\", \"_\" and \"-\""));
  if (options.lifetime <= absl::ZeroDuration())
    return absl::InvalidArgumentError("certs: --days must be at least 1");
  return absl::OkStatus();
}

absl::Status Write(const CertsOptions& options, FileSystem& files, const std::string& name,
                   const CertifiedKey& pair) {
  RETURN_IF_ERROR(
      files.ReplaceFile(absl::StrCat(options.out, "/", name, ".pem"), pair.certificate));
  return files.ReplaceFile(absl::StrCat(options.out, "/", name, ".key"), pair.key);
}

constexpr absl::string_view kNameOfAuthority = " development CA";  // follows the job's name

std::string PathOf(const CertsOptions& options, absl::string_view file) {
  return absl::StrCat(options.out, "/", file);
}
bool Has(FileSystem& files, const std::string& path) { return files.Stat(path).ok(); }

// The CA that signs, and its job.
struct Authority {
  CertifiedKey pair;
  std::string job;
};

absl::StatusOr<Authority> MakeNew(const CertsOptions& options, FileSystem& files) {
  if (!options.force && Has(files, PathOf(options, "ca.pem"))) {
    return absl::AlreadyExistsError(absl::StrCat("certs: ", options.out,
                                                 " has certificates already: --add makes the "
                                                 "missing ones, --force replaces them all"));
  }
  Authority authority;
  authority.job = options.job.empty() ? std::string(kDefaultJob) : options.job;
  ASSIGN_OR_RETURN(authority.pair,
                   MakeAuthority(absl::StrCat(authority.job, kNameOfAuthority), options.lifetime));
  return authority;
}

absl::StatusOr<Authority> ReadExisting(const CertsOptions& options, FileSystem& files) {
  const std::string certificate = PathOf(options, "ca.pem"), key = PathOf(options, "ca.key");
  if (!Has(files, certificate)) {
    return absl::FailedPreconditionError(
        absl::StrCat("certs --add: there is no ", certificate,
                     " to add to: leave --add out to begin with a new CA"));
  }
  if (!Has(files, key)) {
    return absl::FailedPreconditionError(
        absl::StrCat("certs --add: ", key,
                     " is missing. It stays where `divvyctl certs` made the CA: run --add there, "
                     "or put the key ",
                     "back. --force makes a new CA, and then every task needs a new certificate"));
  }
  Authority authority;
  ASSIGN_OR_RETURN(authority.pair.certificate, files.ReadFile(certificate));
  ASSIGN_OR_RETURN(authority.pair.key, files.ReadFile(key));
  absl::StatusOr<std::string> name = NameOfAuthority(authority.pair);
  if (!name.ok())
    return absl::FailedPreconditionError(
        absl::StrCat("certs --add: ", certificate, " and ", key, ": ", name.status().message()));
  authority.job = std::string(absl::StripSuffix(*name, kNameOfAuthority));
  if (!options.job.empty() && options.job != authority.job) {
    return absl::FailedPreconditionError(absl::StrCat("certs --add: the CA is of job \"",
                                                      authority.job, "\", and --job is \"",
                                                      options.job, "\": leave --job out"));
  }
  return authority;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> WriteCertificates(const CertsOptions& options,
                                                           FileSystem& files) {
  RETURN_IF_ERROR(Check(options));
  RETURN_IF_ERROR(files.CreateDirectory(options.out));
  ASSIGN_OR_RETURN(const Authority authority,
                   options.add ? ReadExisting(options, files) : MakeNew(options, files));
  std::vector<std::string> written;
  if (!options.add) {
    RETURN_IF_ERROR(Write(options, files, "ca", authority.pair));
    written.push_back("ca");
  }
  for (const CertifiedTask& task : TasksOf(options)) {
    if (options.add && Has(files, PathOf(options, task.name() + ".pem")) &&
        Has(files, PathOf(options, task.name() + ".key")))
      continue;
    CertificateRequest request;
    request.uri = absl::StrCat("spiffe://", authority.job, "/", task.role, "/", task.index);
    request.hosts = {task.name(), "localhost", "127.0.0.1"};
    request.lifetime = options.lifetime;
    ASSIGN_OR_RETURN(const CertifiedKey pair, IssueCertificate(authority.pair, request));
    RETURN_IF_ERROR(Write(options, files, task.name(), pair));
    written.push_back(task.name());
  }
  return written;
}

}  // namespace divvy
