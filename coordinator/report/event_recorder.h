// Writes a job's event files while the job runs.
#ifndef DIVVY_COORDINATOR_REPORT_EVENT_RECORDER_H_
#define DIVVY_COORDINATOR_REPORT_EVENT_RECORDER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/executor.h"
#include "base/mutex.h"
#include "strategy/summary_writer.h"

namespace divvy {

// Accepts points at once and writes them in order on a thread of the executor, so a slow disk
// delays no caller. If points cannot be written, the first failure of a row is logged, and training
// goes on. Thread-safe.
class EventRecorder : public std::enable_shared_from_this<EventRecorder> {
 public:
  // REQUIRES: `executor` outlives this and its tasks.
  EventRecorder(std::unique_ptr<SummaryWriter> summaries, Executor& executor);

  // Like the functions of SummaryWriter with the same names, but these return before the point is
  // written. They do not block.
  void Scalars(std::string run, int64_t step, std::map<std::string, double> scalars);
  void Text(std::string run, int64_t step, std::string tag, std::string markdown);
  void Histograms(std::string run, int64_t step, std::map<std::string, ValueHistogram> histograms);
  void HParams(std::string run, int64_t step, std::map<std::string, HParam> hparams);

  // Returns when all earlier points are on the disk or could not be written. Blocks.
  void Finish();

 private:
  using Job = std::function<absl::Status(SummaryWriter&)>;
  // Queues a job, and starts WriteAll if it is not running.
  void Add(Job job);
  // Runs jobs until none is left. Blocks on the disk.
  void WriteAll();

  Executor& executor_;
  // Used by one WriteAll at a time.
  const std::unique_ptr<SummaryWriter> summaries_;
  Mutex mu_;
  CondVar idle_;
  std::deque<Job> jobs_ DIVVY_GUARDED_BY(mu_);
  bool writing_ DIVVY_GUARDED_BY(mu_) = false;
  // The last job has failed.
  bool failing_ DIVVY_GUARDED_BY(mu_) = false;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_REPORT_EVENT_RECORDER_H_
