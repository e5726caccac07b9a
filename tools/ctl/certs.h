// `divvyctl certs`: a development CA and a certificate for each task.
#ifndef DIVVY_TOOLS_CTL_CERTS_H_
#define DIVVY_TOOLS_CTL_CERTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/file_system.h"

namespace divvy {

struct CertsOptions {
  // The directory.
  std::string out;
  // The trust domain of the role URIs; "": divvy, or with `add` that of the CA that is there.
  std::string job;
  int ps = 2, workers = 2;
  absl::Duration lifetime = absl::Hours(24 * 365);
  // overwrite what is there
  bool force = false;
  // keep what is there, and make what is missing by the same CA
  bool add = false;
};

// Writes ca.pem, ca.key, and TASK.pem and TASK.key for chief-0, ps-i, worker-i and admin-0; returns
// the names of what it has made ("ca", "chief-0", ...). A certificate says its role, and is good
// for the host TASK, for localhost and for 127.0.0.1. AlreadyExists: the directory has a CA,
// nothing was written. FailedPrecondition, with `add`: there is no CA to add to, its key is not
// there, or it is of another job; nothing was written. InvalidArgument: the options. Blocks on the
// disk. REQUIRES: what `files` makes is readable by its owner alone (umask).
absl::StatusOr<std::vector<std::string>> WriteCertificates(const CertsOptions& options,
                                                           FileSystem& files);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_CERTS_H_
