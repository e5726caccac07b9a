// Reads any bytes as TF_CONFIG, a cluster file, CLUSTER_SPEC or a list of jobs. They are accepted,
// or refused as InvalidArgument with one line that a terminal may show. The first byte chooses the
// sources.
#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "base/testing/fuzz.h"
#include "cluster/cluster_config.h"
#include "cluster/config_json.h"

namespace divvy {
namespace {

void RequireInvalid(const absl::Status& status) {
  fuzz::Require(status.ok() || absl::IsInvalidArgument(status),
                "refused otherwise than as InvalidArgument");
  for (const char c : status.message())
    fuzz::Require(!absl::ascii_iscntrl(static_cast<unsigned char>(c)),
                  "a message with a control character");
}

void Try(absl::string_view bytes) {
  if (bytes.empty()) return;
  const std::string text(bytes.substr(1));
  RequireInvalid(ReadJson(text).status());
  RequireInvalid(ParseClusterSpec(text).status());
  const auto config = ParseTfConfig(text);
  RequireInvalid(config.status());
  if (config.ok()) {
    (void)ClusterHash(*config);
    (void)OwnAddress(*config);
    fuzz::Require(
        config->task_index.value_or(0) >= 0 && config->task_index.value_or(0) <= kMaxTaskIndex,
        "an index that no task has");
  }
  ClusterConfigSources sources;
  if ((bytes[0] & 1) != 0) sources.tf_config = text;
  if ((bytes[0] & 2) != 0) sources.cluster_spec = text;
  if ((bytes[0] & 4) != 0) sources.cluster_file = text;
  if ((bytes[0] & 8) != 0) sources.flags.num_ps = bytes[0] >> 4;
  const auto resolved = ResolveParameterServerCluster(sources);
  if (resolved.ok()) fuzz::Require(NumParameterServers(*resolved) >= 0, "fewer than no servers");
}

}  // namespace
}  // namespace divvy

DIVVY_FUZZ(divvy::Try)
