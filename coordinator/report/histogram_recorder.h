// Writes histograms of weights, gradients and staleness to a job's event files.
#ifndef DIVVY_COORDINATOR_REPORT_HISTOGRAM_RECORDER_H_
#define DIVVY_COORDINATOR_REPORT_HISTOGRAM_RECORDER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "coordinator/core/step_samples.h"
#include "coordinator/report/event_recorder.h"
#include "tensor/tensor.h"
#include "variables/layout.h"
#include "variables/transfer_plan.h"

namespace divvy {

// The job that histograms are made of. Thread-safe. No method blocks. Only Read may call back.
class HistogramSource {
 public:
  virtual ~HistogramSource() = default;
  // Whether variables may be read. Until the program has chosen its state, a read would choose for
  // it.
  virtual bool IsRunning() const = 0;
  // Training steps finished.
  virtual int64_t Step() const = 0;
  virtual std::shared_ptr<const Layout> Variables() const = 0;
  // `done` may be called on any thread, and late: a read waits for a ps that is away.
  virtual void Read(std::vector<VariableRead> reads,
                    std::function<void(absl::StatusOr<std::vector<Tensor>>)> done) = 0;
  // As CoordinatorCore's.
  virtual void WantGradients() = 0;
  virtual GradientSample TakeGradients() = 0;
  virtual std::map<uint64_t, int64_t> TakeStaleness() = 0;
};

// The rows of each variable that a histogram of its values is made of, in the order of `names`.
struct WeightSample {
  std::vector<std::string> names;
  std::vector<VariableRead> reads;
  // Variables that get no histogram, because one of their rows is too large, or because there are
  // too many variables, or because the other variables leave no room for one of their rows.
  int left_out = 0;
};
// Of the floating variables that are no tables; whole variables if they are small, else rows at
// equal distances. At most 1,000 variables and 4 Mi elements of all of them together, in up to 256
// Ki numbered rows. Of a variable at most 65,536 elements in up to 4,096 numbered rows, or one row
// of up to 1 Mi elements. The variables with the largest rows are left out first. Pure.
WeightSample SampleOf(const Layout& layout);

// The number of steps for each staleness, in at most kHistogramBuckets buckets whose ends are whole
// numbers: bucket [3, 4) has the steps of staleness 3. Pure.
ValueHistogram HistogramOfStaleness(const std::map<uint64_t, int64_t>& staleness);

// Writes to the run "train", about every `every` and when the first loop of training begins:
// "weights/NAME", "gradients/NAME" of one training step, and "staleness" of all steps since the
// last time. Nothing is written while no step finishes. SampleLast writes the trained weights. The
// values of a variable are read as a step
// reads them, while steps go on: so they lie between the commits of concurrent steps. Thread-safe;
// nothing blocks.
class HistogramRecorder : public std::enable_shared_from_this<HistogramRecorder> {
 public:
  // REQUIRES: `executor` and `clock` outlive this and its timers; every > 0.
  HistogramRecorder(absl::Duration every, std::shared_ptr<HistogramSource> source,
                    std::shared_ptr<EventRecorder> events, Executor& executor, Clock& clock);

  // Begins to look for what is due. Call it once.
  void Begin();
  // A loop of training steps begins.
  void OnTraining();
  // Training is over: reads the weights a last time, if steps have finished since the last time.
  // Then calls `done`, on any thread, or within the call. That may be never: a read waits for a ps
  // that is away, and Finish forgets `done`. Call it once.
  void SampleLast(std::function<void()> done);
  // Writes what is known, and nothing after it.
  void Finish();

 private:
  void LookLater();
  void Look();
  // Reads weights and asks for gradients. The staleness since the last time is written.
  void Sample() DIVVY_REQUIRES(mu_);
  void ReadWeights(int64_t step) DIVVY_REQUIRES(mu_);
  void OnWeights(int64_t step, const std::vector<std::string>& names,
                 const absl::StatusOr<std::vector<Tensor>>& values);
  void WriteGradients() DIVVY_REQUIRES(mu_);
  void WriteStaleness(int64_t step) DIVVY_REQUIRES(mu_);

  const absl::Duration every_;
  const std::shared_ptr<HistogramSource> source_;
  const std::shared_ptr<EventRecorder> events_;
  Executor& executor_;
  Clock& clock_;
  Mutex mu_;
  bool over_ DIVVY_GUARDED_BY(mu_) = false;
  // A read has not been answered.
  bool reading_ DIVVY_GUARDED_BY(mu_) = false;
  bool left_out_told_ DIVVY_GUARDED_BY(mu_) = false;
  absl::Duration next_ DIVVY_GUARDED_BY(mu_);
  // Called when the last read has been answered. Null: SampleLast was not called.
  std::function<void()> last_done_ DIVVY_GUARDED_BY(mu_);
  // The step of the last sample.
  std::optional<int64_t> sampled_step_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_REPORT_HISTOGRAM_RECORDER_H_
