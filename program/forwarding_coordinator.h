// A coordinator that forwards every call to another one.
#ifndef DIVVY_PROGRAM_FORWARDING_COORDINATOR_H_
#define DIVVY_PROGRAM_FORWARDING_COORDINATOR_H_

#include <memory>
#include <utility>

#include "coordinator/core/blocking_coordinator.h"
#include "strategy/coordinator.h"

namespace divvy {

// A `Base` (Coordinator or a class derived from it) that owns an `Owner` and forwards every call to
// Owner::coordinator(). Programs get the cluster this way: destroying the coordinator destroys the
// cluster. Thread-safe as that coordinator is.
template <typename Base, typename Owner>
class ForwardingCoordinator : public Base {
 public:
  explicit ForwardingCoordinator(std::unique_ptr<Owner> owner)
      : owner_(std::move(owner)), coordinator_(owner_->coordinator()) {}
  Strategy& strategy() override { return coordinator_.strategy(); }
  absl::Status Join(absl::Duration timeout) override { return coordinator_.Join(timeout); }
  absl::StatusOr<bool> Done() override { return coordinator_.Done(); }
  int64_t epoch() const override { return coordinator_.epoch(); }
  int64_t step() const override { return coordinator_.step(); }
  absl::StatusOr<int64_t> RestoreLatest(absl::Duration timeout) override {
    return coordinator_.RestoreLatest(timeout);
  }
  void SetProgramState(std::string bytes) override {
    coordinator_.SetProgramState(std::move(bytes));
  }
  std::string program_state() const override { return coordinator_.program_state(); }
  int64_t durable_steps() const override { return coordinator_.durable_steps(); }
  absl::StatusOr<std::string> SaveCheckpoint(absl::Duration timeout) override {
    return coordinator_.SaveCheckpoint(timeout);
  }
  using Base::Export;
  absl::Status Export(absl::string_view path, const ExportOptions& options) override {
    return coordinator_.Export(path, options);
  }
  absl::StatusOr<PerWorkerDataset> CreatePerWorkerDataset(const BoundDataSource& source) override {
    return coordinator_.CreatePerWorkerDataset(source);
  }
  void SetLearningRateScale(double scale) override { coordinator_.SetLearningRateScale(scale); }
  absl::Status Report(absl::string_view run, int64_t step, const Metrics& metrics) override {
    return coordinator_.Report(run, step, metrics);
  }

 protected:
  absl::StatusOr<std::shared_ptr<const internal::RemoteResult>> ScheduleStepOnce(
      absl::string_view series, int64_t number, absl::string_view name, StepKind kind,
      Nest args) override {
    return coordinator_.ScheduleStepOnce(series, number, name, kind, std::move(args));
  }
  absl::StatusOr<std::shared_ptr<const internal::RemoteResult>> ScheduleStep(absl::string_view name,
                                                                             StepKind kind,
                                                                             Nest args) override {
    return coordinator_.ScheduleStep(name, kind, std::move(args));
  }
  absl::StatusOr<Metrics> RunSteps(const internal::StepLoop& loop) override {
    return coordinator_.RunSteps(loop);
  }
  internal::TrainerSupport& trainer_support() override { return coordinator_; }
  Owner& owner() { return *owner_; }

 private:
  const std::unique_ptr<Owner> owner_;
  BlockingCoordinator& coordinator_;
};

}  // namespace divvy

#endif  // DIVVY_PROGRAM_FORWARDING_COORDINATOR_H_
