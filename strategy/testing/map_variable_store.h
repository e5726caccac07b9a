// A variable store in memory, for tests of step functions, strategies and models without a cluster.
#ifndef DIVVY_STRATEGY_TESTING_MAP_VARIABLE_STORE_H_
#define DIVVY_STRATEGY_TESTING_MAP_VARIABLE_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "optimizers/apply.h"
#include "strategy/variable_store.h"
#include "variables/layout.h"

namespace divvy {

// Applies writes at once, with plain arithmetic. Each variable has one shard. Refuses everything
// that a real store refuses. Stores with the same job_seed count as one job. Thread-safe; never
// blocks for long.
//
//   auto store = std::make_shared<MapVariableStore>();
//   StrategyParts parts;
//   parts.store = store;
//   Strategy strategy(std::move(parts));
class MapVariableStore : public VariableStore {
 public:
  explicit MapVariableStore(uint64_t job_seed = 1);

  JobId job() const override { return JobId(job_seed_); }
  // The colocation with which the variable was created.
  std::optional<Colocation> ColocationOf(absl::string_view name) const;
  absl::StatusOr<VariableInfo> Find(absl::string_view name) const override;
  absl::StatusOr<VariableInfo> Create(const VariableSpec& spec,
                                      const std::optional<Colocation>& with) override;
  absl::Status Read(absl::Span<ReadRequest> requests) override;
  absl::Status Write(std::vector<StagedWrite> writes) override;

  // Begins a step: its gradients are applied as those of step `ordinal`, and each variable may get
  // one gradient again.
  enum class Kind { kTraining, kReadOnly };
  void BeginStep(int64_t ordinal, Kind kind = Kind::kTraining);

  // The number of Read calls so far, each of which would be a round trip.
  int64_t num_reads() const;
  // The current value, which includes all writes so far. Unlike Read, it also works after a
  // gradient in the same step. NotFound: no such variable.
  absl::StatusOr<Tensor> Value(absl::string_view name) const;

 private:
  struct Slot {
    std::vector<float> values;
    std::vector<int32_t> counts;
  };
  absl::Status CheckWrites(const std::vector<StagedWrite>& writes) const DIVVY_REQUIRES(mu_);
  absl::Status ReadOne(ReadRequest& request) const DIVVY_REQUIRES(mu_);
  absl::Status ApplyGradient(const StagedWrite& write, Tensor& value) DIVVY_REQUIRES(mu_);
  std::vector<SlotView> SlotsFor(const std::string& variable, const Optimizer& optimizer)
      DIVVY_REQUIRES(mu_);

  const uint64_t job_seed_;
  mutable Mutex mu_;
  std::shared_ptr<const Layout> layout_ DIVVY_GUARDED_BY(mu_) = Layout::Empty();
  std::map<std::string, Colocation, std::less<>> colocations_ DIVVY_GUARDED_BY(mu_);
  std::map<std::string, Tensor, std::less<>> values_ DIVVY_GUARDED_BY(mu_);
  std::map<std::string, Slot> slots_ DIVVY_GUARDED_BY(mu_);  // by "<variable>/<optimizer>/<slot>"
  std::set<std::string> graded_ DIVVY_GUARDED_BY(mu_);       // have a gradient in this step
  int64_t ordinal_ DIVVY_GUARDED_BY(mu_) = 0;
  Kind kind_ DIVVY_GUARDED_BY(mu_) = Kind::kTraining;
  int64_t num_reads_ DIVVY_GUARDED_BY(mu_) = 0;
};

}  // namespace divvy

#endif  // DIVVY_STRATEGY_TESTING_MAP_VARIABLE_STORE_H_
