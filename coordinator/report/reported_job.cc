#include "coordinator/report/reported_job.h"

#include <functional>
#include <utility>
#include <vector>

namespace divvy {
namespace {

class CoreJob : public ReportedJob {
 public:
  explicit CoreJob(std::shared_ptr<CoordinatorCore> core) : core_(std::move(core)) {}
  bool IsRunning() const override {
    return core_->Snapshot().phase == CoordinatorSnapshot::Phase::kRunning;
  }
  int64_t Step() const override { return core_->step(); }
  std::shared_ptr<const Layout> Variables() const override { return core_->layout(); }
  void Read(std::vector<VariableRead> reads,
            std::function<void(absl::StatusOr<std::vector<Tensor>>)> done) override {
    core_->Read(std::move(reads), std::move(done));
  }
  void WantGradients() override { core_->WantGradients(); }
  GradientSample TakeGradients() override { return core_->TakeGradients(); }
  std::map<uint64_t, int64_t> TakeStaleness() override { return core_->TakeStaleness(); }
  CoordinatorSnapshot Snapshot() const override { return core_->Snapshot(); }
  int64_t epoch() const override { return core_->epoch(); }
  uint64_t TakeMaxStaleness() override { return core_->TakeMaxStaleness(); }
  void SampleSteps() override { core_->SampleSteps(); }
  std::map<int, WorkerSteps> TakeWorkerSteps() override { return core_->TakeWorkerSteps(); }

 private:
  const std::shared_ptr<CoordinatorCore> core_;
};

}  // namespace

std::shared_ptr<ReportedJob> JobOf(std::shared_ptr<CoordinatorCore> core) {
  return std::make_shared<CoreJob>(std::move(core));
}

}  // namespace divvy
