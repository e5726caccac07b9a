// The common part of clusters with real threads: each call of the program runs on its own thread.
#ifndef DIVVY_TESTS_COORDINATOR_LIVE_CLUSTER_H_
#define DIVVY_TESTS_COORDINATOR_LIVE_CLUSTER_H_

#include <functional>
#include <string>

#include "base/executor.h"
#include "tests/coordinator/cluster_under_test.h"

namespace divvy::rules {

inline constexpr absl::Duration kPatience = absl::Seconds(60);

class LiveCluster : public ClusterUnderTest {
 public:
  Scheduled Schedule(const std::string& step, Nest::List args) override;
  Pending<absl::Status> Join() override;
  Pending<absl::StatusOr<bool>> Done() override;
  Pending<absl::StatusOr<int64_t>> Counter() override;
  bool WaitUntil(const std::function<bool()>& condition) override;
  void LetThingsHappen() override;

 protected:
  // Waits until the cluster accepts steps, and creates "counter".
  absl::Status Prepare(int num_ps);
  // Ends the program's threads. An implementation's destructor must call it first.
  void StopProgram();

 private:
  template <typename T>
  Pending<T> Begin(std::function<T()> call);

  ThreadPoolExecutor program_{1};
};

}  // namespace divvy::rules

#endif  // DIVVY_TESTS_COORDINATOR_LIVE_CLUSTER_H_
