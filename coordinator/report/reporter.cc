#include "coordinator/report/reporter.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/completion.h"
#include "base/log.h"
#include "base/number_text.h"

namespace divvy {
namespace {

constexpr char kTrainRun[] = "train";
constexpr absl::string_view kEraseLine = "\r\x1b[2K";
// How long the end of a job waits for the trained weights.
constexpr absl::Duration kLongestLastRead = absl::Seconds(5);

// The number of examples behind the metrics: the greatest count of any metric.
double Examples(const Metrics& metrics) {
  double count = 0;
  for (const auto& [name, metric] : metrics) count = std::max(count, metric.count());
  return count;
}

std::map<std::string, double> Means(const Metrics& metrics) {
  std::map<std::string, double> means;
  for (const auto& [name, metric] : metrics) means[name] = metric.value();
  return means;
}

}  // namespace

Reporter::Reporter(ReportOptions options, Executor& executor, Clock& clock, FileSystem& files)
    : options_(std::move(options)),
      executor_(executor),
      clock_(clock),
      recent_since_(clock.Elapsed()),
      began_(clock.Elapsed()),
      events_(options_.tensorboard_dir.empty()
                  ? nullptr
                  : std::make_shared<EventRecorder>(
                        std::make_unique<SummaryWriter>(options_.tensorboard_dir, files, clock),
                        executor)),
      worker_runs_(clock.Elapsed()),
      recorded_at_(clock.Elapsed()) {}

void Reporter::Watch(std::shared_ptr<CoordinatorCore> core) { Watch(JobOf(std::move(core))); }

void Reporter::Watch(std::shared_ptr<ReportedJob> job) {
  {
    MutexLock lock(mu_);
    job_ = std::move(job);
    if (events_ != nullptr) BeginEvents();
  }
  executor_.PostAfter(interval(), [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Tick();
  });
}

void Reporter::BeginEvents() {
  job_->SampleSteps();
  if (options_.histograms_every <= absl::ZeroDuration()) return;
  histograms_ = std::make_shared<HistogramRecorder>(options_.histograms_every, job_, events_,
                                                    executor_, clock_);
  histograms_->Begin();
}

void Reporter::Tick() {
  {
    MutexLock lock(mu_);
    if (over_) return;
    Draw();
    if (clock_.Elapsed() - recorded_at_ >= options_.report_every) RecordInterval();
  }
  executor_.PostAfter(interval(), [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Tick();
  });
}

ProgressLine Reporter::NextLine() {
  ProgressLine line;
  line.snapshot = job_->Snapshot();
  line.max_staleness = job_->TakeMaxStaleness();
  line.epochs = epochs_;
  const absl::Duration now = clock_.Elapsed();
  if (!recent_.empty() && now > recent_since_) {
    shown_.means = Means(recent_);
    TellNotFinite(loop_run(), shown_.means);
    NoteLoss(recent_);
    shown_.rate = Examples(recent_) / absl::ToDoubleSeconds(now - recent_since_);
    recent_.clear();
    recent_since_ = now;
  }
  line.metrics = shown_.means;
  line.examples_per_second = shown_.rate;
  const auto& progress = line.snapshot.progress;
  if (progress && progress->total) {
    int64_t steps_left = *progress->total - progress->done;
    if (epochs_ && !progress->read_only)
      steps_left += *progress->total * std::max<int64_t>(0, *epochs_ - progress->pass - 1);
    line.left = time_left_.At(now, progress->done, std::max<int64_t>(0, steps_left));
  }
  return line;
}

void Reporter::Draw() {
  const ProgressLine line = NextLine();
  const bool waiting =
      !line.snapshot.waits.empty() && line.snapshot.waits.front().since >= absl::Seconds(5);
  const bool working = line.snapshot.work && IsWorthSaying(*line.snapshot.work);
  if (!in_loop_ && line.snapshot.in_flight == 0 && !waiting && !working) {
    // The line would tell of work that is over.
    if (std::exchange(line_open_, false)) options_.write(kEraseLine);
    return;
  }
  std::string text = FormatProgress(line, options_.terminal.interactive);
  if (!options_.terminal.interactive) return WriteLine(text);
  if (static_cast<int>(text.size()) > options_.terminal.width - 1)
    text.resize(std::max(0, options_.terminal.width - 1));
  options_.write(absl::StrCat(kEraseLine, text));
  line_open_ = true;
}

void Reporter::WriteLine(absl::string_view text) {
  options_.write(absl::StrCat(line_open_ ? kEraseLine : "", text, "\n"));
  line_open_ = false;
}

void Reporter::RecordConfiguration(const Layout& layout) {
  const CoordinatorSnapshot now = job_->Snapshot();
  std::map<std::string, std::string> texts = options_.configuration;
  texts["parameter servers"] = absl::StrCat(now.num_ps);
  texts["workers"] = absl::StrCat(now.num_workers);
  events_->Text(kTrainRun, now.finished_steps, "configuration", SummaryWriter::Table(texts));
  events_->Text(kTrainRun, now.finished_steps, "variables",
                absl::StrCat("```\n", FormatVariables(layout), "```\n"));
}

// A point at an earlier step than those of the job's last life would hide them. So the first one
// waits until the program has chosen its state.
void Reporter::RecordHParams() {
  if (events_ == nullptr || options_.hparams.empty() || hparams_written_ || !job_->IsRunning())
    return;
  hparams_written_ = true;
  events_->HParams(kTrainRun, job_->Step(), options_.hparams);
}

// Records the points of the interval that ends now.
void Reporter::RecordInterval() {
  const absl::Duration now = clock_.Elapsed();
  if (events_ != nullptr && !unrecorded_.empty()) {
    std::map<std::string, double> points = Means(unrecorded_);
    if (now > recorded_at_)
      points["examples_per_second"] =
          Examples(unrecorded_) / absl::ToDoubleSeconds(now - recorded_at_);
    const CoordinatorSnapshot snapshot = job_->Snapshot();
    points.merge(TablePoints(snapshot));
    events_->Scalars(kTrainRun, snapshot.finished_steps, std::move(points));
  }
  RecordWorkers(options_.report_every / 2);
  // A program may have no loop, and only schedule steps.
  if (job_->Step() > 0) RecordHParams();
  unrecorded_.clear();
  recorded_at_ = now;
}

void Reporter::RecordWorkers(absl::Duration shortest) {
  if (events_ == nullptr) return;
  worker_runs_.Add(job_->TakeWorkerSteps());
  const int64_t step = job_->Step();
  for (auto& [run, points] : worker_runs_.Take(clock_.Elapsed(), shortest, in_loop_ && trains_))
    events_->Scalars(run, step, std::move(points));
}

void Reporter::OnLoopBegin(const Layout& layout, StepKind kind) {
  MutexLock lock(mu_);
  if (events_ != nullptr && !table_drawn_) RecordConfiguration(layout);
  RecordHParams();
  // Steps that the program has scheduled are no part of the loop.
  RecordWorkers(options_.report_every / 2);
  trains_ = kind == StepKind::kTraining;
  if (histograms_ != nullptr && trains_) histograms_->OnTraining();
  if (!std::exchange(table_drawn_, true)) {
    std::string table = FormatVariables(layout);
    if (!table.empty()) {
      // WriteLine adds the newline again.
      table.pop_back();
      WriteLine(table);
    }
  }
  in_loop_ = true;
  recent_since_ = recorded_at_ = clock_.Elapsed();
  recent_.clear();
  loop_.clear();
  shown_.means.clear();
  shown_.rate = 0;
  const CoordinatorSnapshot now = job_->Snapshot();
  time_left_.Begin(now.progress ? now.progress->done : 0);
}

void Reporter::OnStep(const Metrics& metrics) {
  MutexLock lock(mu_);
  // If a metric changes its kind, BlockingCoordinator::RunSteps reports the error.
  Merge(metrics, recent_).IgnoreError();
  if (!trains_) return;
  {
    MutexLock reached_lock(reached_mu_);
    reached_examples_ += Examples(metrics);
  }
  Merge(metrics, loop_).IgnoreError();
  if (events_ != nullptr) Merge(metrics, unrecorded_).IgnoreError();
}

// A parameter that is NaN stays NaN, so one warning is enough.
void Reporter::TellNotFinite(absl::string_view run, const std::map<std::string, double>& means) {
  for (const auto& [name, mean] : means) {
    if (not_finite_told_ || std::isfinite(mean)) continue;
    not_finite_told_ = true;
    DIVVY_LOG(WARNING) << run << ": the metric \"" << name << "\" is " << mean << " at step "
                       << job_->Snapshot().finished_steps
                       << ". A parameter that is not finite stays so, and training goes on with "
                          "it. --check_numerics ends the job at the first gradient that is "
                          "not finite and names it. Look for a learning rate that is too high, and "
                          "for a division by 0 or a logarithm of 0";
  }
}

void Reporter::OnLoopEnd() {
  MutexLock lock(mu_);
  in_loop_ = false;
  TellNotFinite(loop_run(), Means(recent_));
  RecordInterval();
  if (epochs_ && !loop_.empty()) WriteMeans(kTrainRun, job_->Snapshot().finished_steps, loop_);
  NoteLoss(recent_);
  loop_.clear();
}

void Reporter::NoteLoss(const Metrics& metrics) {
  const auto loss = metrics.find("loss");
  if (!trains_ || loss == metrics.end()) return;
  MutexLock lock(reached_mu_);
  reached_loss_ = loss->second.value();
}

Reporter::Reached Reporter::reached() const {
  MutexLock lock(reached_mu_);
  return {static_cast<int64_t>(reached_examples_), reached_loss_};
}

void Reporter::WriteMeans(absl::string_view run, int64_t step, const Metrics& metrics) {
  std::string where = absl::StrCat("step ", CountText(static_cast<double>(step)));
  if (epochs_) where = absl::StrCat("epoch ", job_->epoch(), "/", *epochs_, "  ", where);
  WriteLine(absl::StrCat(where, "  ", FormatLength(clock_.Elapsed() - began_), "  ", run, ": ",
                         FormatMetrics(Means(metrics))));
}

void Reporter::OnReport(const std::string& run, int64_t step, const Metrics& metrics) {
  MutexLock lock(mu_);
  TellNotFinite(run, Means(metrics));
  WriteMeans(run, step, metrics);
  if (events_ != nullptr) events_->Scalars(run, step, Means(metrics));
}

void Reporter::OnGoal(int64_t epochs) {
  MutexLock lock(mu_);
  epochs_ = job_->epoch() + epochs;
}

void Reporter::OnEnd() {
  std::shared_ptr<HistogramRecorder> histograms;
  {
    MutexLock lock(mu_);
    RecordWorkers(absl::ZeroDuration());
    if (job_->Step() > 0) RecordHParams();
    histograms = histograms_;
  }
  if (histograms == nullptr) return;
  const auto over = std::make_shared<Completion<bool>>();
  histograms->SampleLast([over] { over->Set(true); });
  over->Wait(kLongestLastRead);
}

void Reporter::Summarize(int64_t peak_memory_bytes) {
  {
    MutexLock lock(mu_);
    RecordWorkers(absl::ZeroDuration());
    if (histograms_ != nullptr) histograms_->Finish();
  }
  if (events_ != nullptr) events_->Finish();
  MutexLock lock(mu_);
  over_ = true;
  const CoordinatorSnapshot now = job_->Snapshot();
  // An error has ended the job before any step, and its message needs no summary.
  if (now.finished_steps == 0) return;
  WriteLine(absl::StrCat(CountText(static_cast<double>(now.finished_steps)), " training steps, ",
                         CountText(static_cast<double>(reached().examples)), " examples seen in ",
                         FormatLength(clock_.Elapsed() - began_), "; peak memory ",
                         BytesText(peak_memory_bytes)));
}

}  // namespace divvy
