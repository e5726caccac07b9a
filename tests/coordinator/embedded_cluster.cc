// The cluster of StartEmbedded.
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "program/embedded.h"
#include "tests/coordinator/live_cluster.h"

namespace divvy::rules {
namespace {

class EmbeddedClusterUnderTest : public LiveCluster {
 public:
  ~EmbeddedClusterUnderTest() override { StopProgram(); }

  absl::Status Start(const ClusterOptions& options) {
    EmbeddedSetup setup;
    setup.options.num_ps = options.num_ps;
    setup.options.num_workers = options.num_workers;
    setup.coordinator.core = options.limits;
    ASSIGN_OR_RETURN(cluster_, EmbeddedCluster::Start(setup));
    return Prepare(options.num_ps);
  }

  BlockingCoordinator& coordinator() override { return cluster_->coordinator(); }
  void KillWorker(int index) override { cluster_->KillWorker(index); }
  void StartWorker(int index) override { DIVVY_CHECK(cluster_->RestartWorker(index).ok()); }
  void KillPs(int index) override { cluster_->KillPs(index); }
  void StartPs(int index) override { DIVVY_CHECK(cluster_->RestartPs(index).ok()); }
  void CutPs(int index) override { cluster_->CutPs(index); }
  void HealPs(int index) override { cluster_->HealPs(index); }

 private:
  std::unique_ptr<EmbeddedCluster> cluster_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ClusterUnderTest>> MakeCluster(const ClusterOptions& options) {
  auto cluster = std::make_unique<EmbeddedClusterUnderTest>();
  RETURN_IF_ERROR(cluster->Start(options));
  return std::unique_ptr<ClusterUnderTest>(std::move(cluster));
}

}  // namespace divvy::rules
