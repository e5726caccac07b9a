// What `divvyctl config` prints.
#ifndef DIVVY_TOOLS_CONFIG_DESCRIBE_CLUSTER_H_
#define DIVVY_TOOLS_CONFIG_DESCRIBE_CLUSTER_H_

#include <string>

#include "cluster/cluster_config.h"

namespace divvy {

struct ClusterDescription {
  std::string text;  // lines, each ended
  bool can_run = false;
};

// The cluster as each of its tasks would understand it: a line for each with its address, whom it
// waits for and who dials it; the hash; which one this task is; what is noticed; and everything
// that is wrong. What could be read is shown although something is wrong. Pure.
ClusterDescription DescribeCluster(const ClusterConfigSources& sources);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CONFIG_DESCRIBE_CLUSTER_H_
