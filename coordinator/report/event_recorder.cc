#include "coordinator/report/event_recorder.h"

#include <utility>

#include "base/log.h"

namespace divvy {

EventRecorder::EventRecorder(std::unique_ptr<SummaryWriter> summaries, Executor& executor)
    : executor_(executor), summaries_(std::move(summaries)) {}

void EventRecorder::Scalars(std::string run, int64_t step, std::map<std::string, double> scalars) {
  Add([run = std::move(run), step, scalars = std::move(scalars)](SummaryWriter& summaries) {
    return summaries.Scalars(run, step, scalars);
  });
}

void EventRecorder::Text(std::string run, int64_t step, std::string tag, std::string markdown) {
  Add([run = std::move(run), step, tag = std::move(tag), markdown = std::move(markdown)](
          SummaryWriter& summaries) { return summaries.Text(run, step, tag, markdown); });
}

void EventRecorder::Histograms(std::string run, int64_t step,
                               std::map<std::string, ValueHistogram> histograms) {
  if (histograms.empty()) return;
  Add([run = std::move(run), step, histograms = std::move(histograms)](SummaryWriter& summaries) {
    return summaries.Histograms(run, step, histograms);
  });
}

void EventRecorder::HParams(std::string run, int64_t step, std::map<std::string, HParam> hparams) {
  Add([run = std::move(run), step, hparams = std::move(hparams)](SummaryWriter& summaries) {
    return summaries.HParams(run, step, hparams);
  });
}

void EventRecorder::Finish() {
  Add([](SummaryWriter& summaries) { return summaries.Sync(); });
  MutexLock lock(mu_);
  idle_.Wait(mu_, [this]() DIVVY_REQUIRES(mu_) { return !writing_; });
}

void EventRecorder::Add(Job job) {
  {
    MutexLock lock(mu_);
    jobs_.push_back(std::move(job));
    if (std::exchange(writing_, true)) return;
  }
  executor_.PostBlocking("event files", [self = shared_from_this()] { self->WriteAll(); });
}

void EventRecorder::WriteAll() {
  while (true) {
    Job job;
    {
      MutexLock lock(mu_);
      if (jobs_.empty()) {
        writing_ = false;
        idle_.NotifyAll();
        return;
      }
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    const absl::Status status = job(*summaries_);
    MutexLock lock(mu_);
    if (!std::exchange(failing_, !status.ok()) && failing_)
      DIVVY_LOG(WARNING) << "event files for TensorBoard: points are lost: " << status;
  }
}

}  // namespace divvy
