// A ClusterResolver for a configuration that has been read.
#ifndef DIVVY_CLUSTER_CLUSTER_CONFIG_RESOLVER_H_
#define DIVVY_CLUSTER_CLUSTER_CONFIG_RESOLVER_H_

#include <memory>

#include "cluster/cluster_config.h"
#include "cluster/cluster_resolver.h"

namespace divvy {

// Behaves as TfConfigClusterResolver does for a TF_CONFIG with the content of `config`. Keeps a
// copy of `config`. It has a header of its own because programs include cluster_resolver.h, and a
// program may have a class ClusterConfig of its own.
std::unique_ptr<ClusterResolver> ClusterConfigResolver(const ClusterConfig& config);

}  // namespace divvy

#endif  // DIVVY_CLUSTER_CLUSTER_CONFIG_RESOLVER_H_
