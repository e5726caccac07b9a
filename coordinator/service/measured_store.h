// A store that notes how long its writes take.
#ifndef DIVVY_COORDINATOR_SERVICE_MEASURED_STORE_H_
#define DIVVY_COORDINATOR_SERVICE_MEASURED_STORE_H_

#include <functional>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/metrics.h"
#include "coordinator/core/store.h"

namespace divvy {

// Passes every call to another store. Thread-safe. There is no metric of writes that fail, because
// the first one ends the coordinator (74) before anybody could read it.
class MeasuredStore : public Store {
 public:
  // REQUIRES: `registry` and `clock` outlive this and every `done`.
  MeasuredStore(std::unique_ptr<Store> store, MetricsRegistry& registry, Clock& clock)
      : store_(std::move(store)),
        clock_(clock),
        commit_seconds_(registry.GetHistogram(
            "divvy_store_commit_seconds",
            "From a change of the coordinator's state until it is durable.")) {}

  absl::StatusOr<StoredJob> Load() override { return store_->Load(); }
  void Put(StoreChange change, std::function<void(absl::Status)> done) override {
    store_->Put(std::move(change),
                [this, began = clock_.Elapsed(), done = std::move(done)](absl::Status status) {
                  commit_seconds_.Observe(absl::ToDoubleSeconds(clock_.Elapsed() - began));
                  done(std::move(status));
                });
  }
  void Close() override { store_->Close(); }
  absl::Status Scrub() override { return store_->Scrub(); }

 private:
  const std::unique_ptr<Store> store_;
  Clock& clock_;
  Histogram& commit_seconds_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_SERVICE_MEASURED_STORE_H_
