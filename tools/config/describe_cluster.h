// Makes the text that `divvyctl config` prints.
#ifndef DIVVY_TOOLS_CONFIG_DESCRIBE_CLUSTER_H_
#define DIVVY_TOOLS_CONFIG_DESCRIBE_CLUSTER_H_

#include <string>

#include "cluster/cluster_config.h"

namespace divvy {

struct ClusterDescription {
  std::string text;  // whole lines
  bool can_run = false;
};

// Describes the cluster as each of its tasks understands it. The text has a line for each task,
// with its address, what it waits for and where it registers; the hash; a star at this task; notes;
// and every problem. Shows all that could be read even if there are problems. Pure.
ClusterDescription DescribeCluster(const ClusterConfigSources& sources);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CONFIG_DESCRIBE_CLUSTER_H_
