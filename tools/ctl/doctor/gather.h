// Gathers what the checks of `divvyctl doctor` look at. Every function blocks.
#ifndef DIVVY_TOOLS_CTL_DOCTOR_GATHER_H_
#define DIVVY_TOOLS_CTL_DOCTOR_GATHER_H_

#include <string>
#include <vector>

#include "cluster/cluster_config.h"
#include "rpc/credentials.h"
#include "tools/ctl/doctor/checks.h"
#include "tools/ctl/doctor/facts.h"
#include "tools/ctl/status.h"

namespace divvy::doctor {

// Pure. Nothing describes a cluster: absent.
std::optional<ConfigFacts> LookAtConfig(const ClusterConfigSources& sources);

// Asks all tasks. If the coordinator has steps that have not ended, watches until one ends, at most
// for `patience`, and says in `progress` whether one did. A coordinator that is started again in
// the meantime is watched anew, in all for at most three times as long.
std::vector<TaskFacts> LookAtTasks(const StatusOptions& options, absl::Duration patience,
                                   std::optional<ProgressFacts>& progress);

// Writes and removes a small file there.
DirectoryFacts LookAtDirectory(const std::string& path);

CertificateFacts LookAtCertificates(const TlsFiles& files);

// `workers`: those of TF_CONFIG on this task's host.
MachineFacts LookAtMachine(int workers);
// That number; 0 if `sources` do not say which task this is. Pure.
int WorkersOnThisHost(const ClusterConfigSources& sources);

// Does what Finding::fix says. Returns what was done, in words. A directory is made only in one
// that exists, and rights are taken only from a key of this process' own user, who is not root:
// root may be led to another file by a link.
absl::StatusOr<std::string> Mend(const Finding& finding);

}  // namespace divvy::doctor

#endif  // DIVVY_TOOLS_CTL_DOCTOR_GATHER_H_
