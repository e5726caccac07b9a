#include "tools/ctl/certs.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "rpc/certificates.h"

namespace divvy {
namespace {

struct Task {
  std::string role;
  int index;
  std::string name() const { return absl::StrCat(role, "-", index); }
};

std::vector<Task> TasksOf(const CertsOptions& options) {
  std::vector<Task> tasks = {{"chief", 0}, {"admin", 0}};
  for (int i = 0; i < options.ps; ++i) tasks.push_back({"ps", i});
  for (int i = 0; i < options.workers; ++i) tasks.push_back({"worker", i});
  return tasks;
}

absl::Status Check(const CertsOptions& options) {
  if (options.out.empty()) return absl::InvalidArgumentError("certs: give the directory to write to by --out=DIR");
  if (options.ps < 0 || options.workers < 0 || options.ps + options.workers > 10'000)
    return absl::InvalidArgumentError("certs: --ps and --workers count tasks, up to 10,000");
  if (options.lifetime <= absl::ZeroDuration()) return absl::InvalidArgumentError("certs: --days is at least 1");
  return absl::OkStatus();
}

absl::Status Write(const CertsOptions& options, FileSystem& files, const std::string& name, const CertifiedKey& pair) {
  RETURN_IF_ERROR(files.ReplaceFile(absl::StrCat(options.out, "/", name, ".pem"), pair.certificate));
  return files.ReplaceFile(absl::StrCat(options.out, "/", name, ".key"), pair.key);
}

}  // namespace

absl::Status WriteCertificates(const CertsOptions& options, FileSystem& files) {
  RETURN_IF_ERROR(Check(options));
  RETURN_IF_ERROR(files.CreateDirectory(options.out));
  if (!options.force && files.ReadFile(absl::StrCat(options.out, "/ca.pem")).ok()) {
    return absl::AlreadyExistsError(absl::StrCat("certs: ", options.out, " has certificates already; --force replaces them all"));
  }
  ASSIGN_OR_RETURN(const CertifiedKey authority, MakeAuthority(absl::StrCat(options.job, " development CA"), options.lifetime));
  RETURN_IF_ERROR(Write(options, files, "ca", authority));
  for (const Task& task : TasksOf(options)) {
    CertificateRequest request;
    request.uri = absl::StrCat("spiffe://", options.job, "/", task.role, "/", task.index);
    request.hosts = {task.name(), "localhost", "127.0.0.1"};
    request.lifetime = options.lifetime;
    ASSIGN_OR_RETURN(const CertifiedKey pair, IssueCertificate(authority, request));
    RETURN_IF_ERROR(Write(options, files, task.name(), pair));
  }
  return absl::OkStatus();
}

}  // namespace divvy
