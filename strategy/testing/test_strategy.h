// A strategy for tests, with real threads and a MapVariableStore.
#ifndef DIVVY_STRATEGY_TESTING_TEST_STRATEGY_H_
#define DIVVY_STRATEGY_TESTING_TEST_STRATEGY_H_

#include <memory>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "strategy/replica_context.h"
#include "strategy/strategy.h"
#include "strategy/testing/map_variable_store.h"

namespace divvy {

// `replicas` replicas on worker 1 of a cluster of 2 ps and 3 workers, in step 7 with seed 11.
// Strategies with another `job` belong to another job. With kGpu each replica has a GPU of its own,
// which must be set up (SetGpuMemory, SetGpuBackend).
class TestStrategy {
 public:
  explicit TestStrategy(int replicas, uint64_t job = 1, Device::Kind kind = Device::Kind::kCpu)
      : store_(std::make_shared<MapVariableStore>(job)), strategy_(Parts(replicas, kind)) {}
  Strategy& operator*() { return strategy_; }
  Strategy* operator->() { return &strategy_; }
  MapVariableStore& store() { return *store_; }

 private:
  StrategyParts Parts(int replicas, Device::Kind kind) {
    StrategyParts parts;
    parts.store = store_;
    parts.executor = &executor_;
    parts.resolver = EmbeddedClusterResolver(2, 3, "worker", 1);
    parts.replica_devices.clear();
    for (int i = 0; i < replicas; ++i)
      parts.replica_devices.push_back(kind == Device::Kind::kCpu ? Device{} : Device{kind, i});
    parts.step = 7;
    parts.seed = 11;
    return parts;
  }

  ThreadPoolExecutor executor_{1};
  std::shared_ptr<MapVariableStore> store_;
  Strategy strategy_;
};

}  // namespace divvy

#endif  // DIVVY_STRATEGY_TESTING_TEST_STRATEGY_H_
