// A ClusterResolver of a configuration that was read already.
#ifndef DIVVY_CLUSTER_CLUSTER_CONFIG_RESOLVER_H_
#define DIVVY_CLUSTER_CLUSTER_CONFIG_RESOLVER_H_

#include <memory>

#include "cluster/cluster_config.h"
#include "cluster/cluster_resolver.h"

namespace divvy {

// Answers as TfConfigClusterResolver does for a TF_CONFIG that says the same as `config`, of which
// it keeps a copy. It has a header of its own because programs see cluster_resolver.h, and a
// program may have a ClusterConfig of its own.
std::unique_ptr<ClusterResolver> ClusterConfigResolver(const ClusterConfig& config);

}  // namespace divvy

#endif  // DIVVY_CLUSTER_CLUSTER_CONFIG_RESOLVER_H_
