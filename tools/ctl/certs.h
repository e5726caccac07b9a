// `divvyctl certs`: a development CA and a certificate for each task.
#ifndef DIVVY_TOOLS_CTL_CERTS_H_
#define DIVVY_TOOLS_CTL_CERTS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/file_system.h"

namespace divvy {

struct CertsOptions {
  std::string out;            // the directory
  std::string job = "divvy";  // the trust domain of the role URIs
  int ps = 2, workers = 2;
  absl::Duration lifetime = absl::Hours(24 * 365);
  bool force = false;  // overwrite what is there
};

// Writes ca.pem, ca.key, and TASK.pem and TASK.key for chief-0, ps-i, worker-i and admin-0. A certificate says its role, and is good for the host TASK, for
// localhost and for 127.0.0.1. AlreadyExists: the directory has one of the files, nothing was written. InvalidArgument: the options. Blocks on the disk.
// REQUIRES: what `files` makes is readable by its owner alone (umask).
absl::Status WriteCertificates(const CertsOptions& options, FileSystem& files);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_CERTS_H_
