// A job's event files, written beside what it does.
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

// Takes points at once and writes them in their order on a thread of the executor: a slow disk
// holds up nobody. What cannot be written is logged, the first of a row, and training goes on.
// Thread-safe.
class EventRecorder : public std::enable_shared_from_this<EventRecorder> {
 public:
  // REQUIRES: `executor` outlives this and its tasks.
  EventRecorder(std::unique_ptr<SummaryWriter> summaries, Executor& executor);

  // As SummaryWriter's.
  void Scalars(std::string run, int64_t step, std::map<std::string, double> scalars);
  void Text(std::string run, int64_t step, std::string tag, std::string markdown);

  // Returns when what was given before is on the disk, or could not be written. Blocks.
  void Finish();

 private:
  using Job = std::function<absl::Status(SummaryWriter&)>;
  void Add(Job job);
  void WriteAll();

  Executor& executor_;
  const std::unique_ptr<SummaryWriter> summaries_;  // used by one WriteAll at a time
  Mutex mu_;
  CondVar idle_;
  std::deque<Job> jobs_ DIVVY_GUARDED_BY(mu_);
  bool writing_ DIVVY_GUARDED_BY(mu_) = false;
  bool failing_ DIVVY_GUARDED_BY(mu_) = false;  // the last job did
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_REPORT_EVENT_RECORDER_H_
