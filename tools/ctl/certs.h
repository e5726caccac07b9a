// `divvyctl certs` makes a development CA and a certificate for each task.
#ifndef DIVVY_TOOLS_CTL_CERTS_H_
#define DIVVY_TOOLS_CTL_CERTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/file_system.h"

namespace divvy {

struct CertsOptions {
  // The directory to write to.
  std::string out;
  // The trust domain of the role URIs. Empty: "divvy", or with `add` that of the existing CA.
  std::string job;
  int ps = 2, workers = 2;
  absl::Duration lifetime = absl::Hours(24 * 365);
  // Overwrites existing files.
  bool force = false;
  // Keeps existing files, and makes the missing ones with the existing CA.
  bool add = false;
};

// Writes ca.pem, ca.key, and TASK.pem and TASK.key for chief-0, ps-i, worker-i and admin-0. Returns
// the names of the new pairs ("ca", "chief-0", ...). A certificate names its role, and is valid for
// the hosts TASK, localhost and 127.0.0.1. Blocks on the disk. With these errors nothing has been
// written:
//   - AlreadyExists: the directory has a CA, and neither `add` nor `force` is set;
//   - FailedPrecondition, with `add`: there is no CA, its key is missing, or it is of another job;
//   - InvalidArgument: the options.
// Other errors are those of `files`. REQUIRES: the umask makes new files readable by their owner
// alone.
absl::StatusOr<std::vector<std::string>> WriteCertificates(const CertsOptions& options,
                                                           FileSystem& files);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_CERTS_H_
