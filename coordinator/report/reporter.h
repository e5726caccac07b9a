// Progress for a person: a live line on a terminal, else one line every few seconds; and event
// files for TensorBoard.
#ifndef DIVVY_COORDINATOR_REPORT_REPORTER_H_
#define DIVVY_COORDINATOR_REPORT_REPORTER_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/terminal.h"
#include "coordinator/core/coordinator_core.h"
#include "coordinator/core/progress_sink.h"
#include "coordinator/report/event_recorder.h"
#include "coordinator/report/format.h"
#include "coordinator/report/time_left.h"

namespace divvy {

struct ReportOptions {
  Terminal terminal;
  absl::Duration report_every = absl::Seconds(5);         // a line, where there is no terminal
  absl::Duration redraw_every = absl::Milliseconds(200);  // the live line
  std::function<void(absl::string_view)> write;           // where the text goes; not empty
  std::string tensorboard_dir = {};                       // of event files; empty: none
  std::map<std::string, std::string> configuration =
      {};  // of the job, a text for each name: stands in the event files
};

// Thread-safe. What is waited for longer than 5 s is on the line, whether steps finish or not.
// Where there is a goal (OnGoal), the end of each loop of training steps has a line with the loop's
// means, as what the program reports has. The first mean that is not finite is told of in the log,
// once.
//
// Event files: in the run "train" the means of each report interval of loops of training steps, and
// the texts "configuration" and "variables"; what the program reports stands in the run that it
// names. Steps are training steps.
class Reporter : public ProgressSink, public std::enable_shared_from_this<Reporter> {
 public:
  // REQUIRES: `executor` and `clock` outlive this and its timers.
  Reporter(ReportOptions options, Executor& executor, Clock& clock);

  // Begins to draw what `core` does. Once.
  void Watch(std::shared_ptr<CoordinatorCore> core);

  void OnLoopBegin(const Layout& layout, StepKind kind) override;
  void OnStep(const Metrics& metrics) override;
  void OnLoopEnd() override;
  void OnReport(const std::string& run, int64_t step, const Metrics& metrics) override;
  void OnGoal(int64_t epochs) override;
  std::string event_directory() const override { return options_.tensorboard_dir; }

  // The last line: steps, examples, time, peak memory. Nothing is drawn after it, and the event
  // files are on the disk. Blocks.
  void Summarize(int64_t peak_memory_bytes);

 private:
  void Tick();
  void Draw() DIVVY_REQUIRES(mu_);
  ProgressLine NextLine() DIVVY_REQUIRES(mu_);
  void RecordConfiguration(const Layout& layout) DIVVY_REQUIRES(mu_);
  void RecordInterval() DIVVY_REQUIRES(mu_);
  void WriteMeans(absl::string_view run, int64_t step, const Metrics& metrics) DIVVY_REQUIRES(mu_);
  void TellNotFinite(absl::string_view run, const std::map<std::string, double>& means)
      DIVVY_REQUIRES(mu_);
  // Over the live line, if there is one.
  void WriteLine(absl::string_view text) DIVVY_REQUIRES(mu_);
  const char* loop_run() const DIVVY_REQUIRES(mu_) { return trains_ ? "train" : "evaluation"; }
  absl::Duration interval() const {
    return options_.terminal.interactive ? options_.redraw_every : options_.report_every;
  }

  const ReportOptions options_;
  Executor& executor_;
  Clock& clock_;
  Mutex mu_;
  std::shared_ptr<CoordinatorCore> core_ DIVVY_GUARDED_BY(mu_);
  bool table_drawn_ DIVVY_GUARDED_BY(mu_) = false, in_loop_ DIVVY_GUARDED_BY(mu_) = false,
                    line_open_ DIVVY_GUARDED_BY(mu_) = false;
  bool over_ DIVVY_GUARDED_BY(mu_) = false;
  std::optional<int64_t> epochs_ DIVVY_GUARDED_BY(mu_);
  Metrics recent_ DIVVY_GUARDED_BY(mu_);  // since the last line
  absl::Duration recent_since_ DIVVY_GUARDED_BY(mu_);
  Metrics loop_ DIVVY_GUARDED_BY(mu_);  // of training steps, since the loop began
  bool not_finite_told_ DIVVY_GUARDED_BY(mu_) = false;
  absl::Duration began_ DIVVY_GUARDED_BY(mu_);
  TimeLeft time_left_ DIVVY_GUARDED_BY(mu_);
  std::map<std::string, double> last_means_ DIVVY_GUARDED_BY(mu_);
  double last_rate_ DIVVY_GUARDED_BY(mu_) = 0, examples_ DIVVY_GUARDED_BY(mu_) = 0;

  const std::shared_ptr<EventRecorder> events_;  // null: none
  Metrics unrecorded_ DIVVY_GUARDED_BY(mu_);     // of training steps since the last points
  absl::Duration recorded_at_ DIVVY_GUARDED_BY(mu_);
  bool trains_ DIVVY_GUARDED_BY(mu_) = false;  // the loop is of training steps
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_REPORT_REPORTER_H_
