// Shows progress to a person: a live line on a terminal, or else one line every few seconds. Also
// writes event files for TensorBoard.
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
#include "base/file_system.h"
#include "base/mutex.h"
#include "base/terminal.h"
#include "coordinator/core/coordinator_core.h"
#include "coordinator/core/progress_sink.h"
#include "coordinator/report/event_recorder.h"
#include "coordinator/report/format.h"
#include "coordinator/report/histogram_recorder.h"
#include "coordinator/report/reported_job.h"
#include "coordinator/report/time_left.h"
#include "coordinator/report/worker_runs.h"

namespace divvy {

// How and where progress is shown.
struct ReportOptions {
  Terminal terminal;
  // The interval of lines if there is no terminal.
  absl::Duration report_every = absl::Seconds(5);
  // The interval at which the live line is redrawn.
  absl::Duration redraw_every = absl::Milliseconds(200);
  // Writes the text. Must not be empty.
  std::function<void(absl::string_view)> write;
  // The directory for event files. Empty: none are written.
  std::string tensorboard_dir = {};
  // The job's configuration, name -> text. It is written to the event files.
  std::map<std::string, std::string> configuration = {};
  // The hyperparameters of the job. They are written to the event files.
  std::map<std::string, HParam> hparams = {};
  // The interval of histograms in the event files. 0: there are none.
  absl::Duration histograms_every = absl::ZeroDuration();
};

// Draws the progress of one job. Thread-safe.
//
// The line shows every wait of at least 5 s, even while steps finish. If there is a goal (OnGoal),
// each loop of training steps ends with a line of the loop's means, in the form of a program's
// report. Only the first mean that is not finite is logged.
//
// The line also shows a restore, a checkpoint or a replay that lasts longer than a second, with the
// percentage that is done and the time left.
//
// Event files: the run "train" has the means of each report interval of training loops, the numbers
// of the dynamic tables (TablePoints), the texts "configuration" and "variables", the
// hyperparameters, and histograms (HistogramRecorder). A report of the program is in the run that
// the program names. The run "worker/0" has "steps_per_second" and "step_seconds", the mean time of
// a step, of worker 0 in each interval, and so on up to worker 127; an interval that is shorter
// than half of report_every counts in the next one. The x axis is training steps.
class Reporter : public ProgressSink, public std::enable_shared_from_this<Reporter> {
 public:
  // REQUIRES: `executor`, `clock` and `files` outlive this and its timers. `files` takes the event
  // files.
  Reporter(ReportOptions options, Executor& executor, Clock& clock,
           FileSystem& files = FileSystem::Real());

  // Begins to draw the progress of the job. Call Watch once. Does not block.
  void Watch(std::shared_ptr<CoordinatorCore> core);
  void Watch(std::shared_ptr<ReportedJob> job);

  // ProgressSink. These calls only record and draw; event files are written in the background.
  void OnLoopBegin(const Layout& layout, StepKind kind) override;
  void OnStep(const Metrics& metrics) override;
  void OnLoopEnd() override;
  void OnReport(const std::string& run, int64_t step, const Metrics& metrics) override;
  void OnGoal(int64_t epochs) override;
  // Writes the last rates of workers, and reads the trained weights for the last histograms. Waits
  // at most 5 s for these.
  void OnEnd() override;
  std::string event_directory() const override { return options_.tensorboard_dir; }

  // What the job has reached, as far as the program's metrics tell.
  struct Reached {
    // Examples in the training steps that have finished.
    int64_t examples = 0;
    // The last mean of the metric "loss" of training steps. Nullopt: there was none.
    std::optional<double> loss;
  };
  // Does not wait for text that is being written.
  Reached reached() const;

  // Writes the last line: steps, examples, time, peak memory. Draws nothing after it. Returns when
  // the event files are on the disk. Blocks.
  void Summarize(int64_t peak_memory_bytes);

 private:
  // Draws, and calls itself again after interval().
  void Tick();
  // Writes the line if there is something to show.
  void Draw() DIVVY_REQUIRES(mu_);
  // Makes the next line, and begins the means of the next interval.
  ProgressLine NextLine() DIVVY_REQUIRES(mu_);
  // Writes the texts "configuration" and "variables" to the event files.
  void RecordConfiguration(const Layout& layout) DIVVY_REQUIRES(mu_);
  // Writes the hyperparameters to the event files, once.
  void RecordHParams() DIVVY_REQUIRES(mu_);
  // Writes the means of the interval to the event files.
  void RecordInterval() DIVVY_REQUIRES(mu_);
  // Begins what the event files are made of. REQUIRES: there are event files.
  void BeginEvents() DIVVY_REQUIRES(mu_);
  // Writes what each worker has done since the last time, unless that was less than `shortest` ago.
  void RecordWorkers(absl::Duration shortest) DIVVY_REQUIRES(mu_);
  void WriteMeans(absl::string_view run, int64_t step, const Metrics& metrics) DIVVY_REQUIRES(mu_);
  // Keeps the mean of "loss", if the loop trains and has it.
  void NoteLoss(const Metrics& metrics) DIVVY_REQUIRES(mu_);
  // Logs the first mean that is not finite.
  void TellNotFinite(absl::string_view run, const std::map<std::string, double>& means)
      DIVVY_REQUIRES(mu_);
  // Writes a line of its own, in place of the live line if there is one.
  void WriteLine(absl::string_view text) DIVVY_REQUIRES(mu_);
  const char* loop_run() const DIVVY_REQUIRES(mu_) { return trains_ ? "train" : "evaluation"; }
  absl::Duration interval() const {
    return options_.terminal.interactive ? options_.redraw_every : options_.report_every;
  }

  const ReportOptions options_;
  Executor& executor_;
  Clock& clock_;
  mutable Mutex mu_;
  std::shared_ptr<ReportedJob> job_ DIVVY_GUARDED_BY(mu_);
  bool table_drawn_ DIVVY_GUARDED_BY(mu_) = false, in_loop_ DIVVY_GUARDED_BY(mu_) = false,
                    line_open_ DIVVY_GUARDED_BY(mu_) = false;
  bool over_ DIVVY_GUARDED_BY(mu_) = false;
  std::optional<int64_t> epochs_ DIVVY_GUARDED_BY(mu_);
  // The metrics since the last line.
  Metrics recent_ DIVVY_GUARDED_BY(mu_);
  absl::Duration recent_since_ DIVVY_GUARDED_BY(mu_);
  // The metrics of training steps since the loop began.
  Metrics loop_ DIVVY_GUARDED_BY(mu_);
  bool not_finite_told_ DIVVY_GUARDED_BY(mu_) = false;
  const absl::Duration began_;
  TimeLeft time_left_ DIVVY_GUARDED_BY(mu_);
  // What the last line has shown.
  struct Shown {
    std::map<std::string, double> means;
    double rate = 0;
  };
  Shown shown_ DIVVY_GUARDED_BY(mu_);

  // Taken after mu_, and never held while text is written: mu_ is held as long as a terminal that
  // is stopped does not take the line, and status pages answer meanwhile.
  mutable Mutex reached_mu_;
  double reached_examples_ DIVVY_GUARDED_BY(reached_mu_) = 0;
  std::optional<double> reached_loss_ DIVVY_GUARDED_BY(reached_mu_);

  // Null: no event files are written.
  const std::shared_ptr<EventRecorder> events_;
  // Null: there are no histograms.
  std::shared_ptr<HistogramRecorder> histograms_ DIVVY_GUARDED_BY(mu_);
  WorkerRuns worker_runs_ DIVVY_GUARDED_BY(mu_);
  // The metrics of training steps since the last points in the event files.
  Metrics unrecorded_ DIVVY_GUARDED_BY(mu_);
  absl::Duration recorded_at_ DIVVY_GUARDED_BY(mu_);
  bool hparams_written_ DIVVY_GUARDED_BY(mu_) = false;
  // Whether the current loop runs training steps.
  bool trains_ DIVVY_GUARDED_BY(mu_) = false;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_REPORT_REPORTER_H_
