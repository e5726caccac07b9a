#include "rpc/status_history.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace divvy {
namespace {

using Finding = v1::TaskStatus::Finding;
using Findings = google::protobuf::RepeatedPtrField<Finding>;

// The span over which rates are taken.
constexpr size_t kRateSamples = 7;
// Bytes a second. A ps with less to do slows no step, however little the others have.
constexpr double kBusyServer = 10e6;
// Steps of a worker behind a median that is compared.
constexpr double kLeastSteps = 20;

// Whether the job has its state, so that its steps are new ones.
bool HasState(const std::string& coordinator_state) {
  return coordinator_state == "running" || coordinator_state == "ending" ||
         coordinator_state == "over";
}

void AddFinding(Finding::Kind kind, const v1::TaskStatus& of, std::string text, double value,
                Findings& findings) {
  Finding& finding = *findings.Add();
  finding.set_kind(kind);
  finding.set_job(of.job());
  finding.set_index(of.index());
  finding.set_text(std::move(text));
  finding.set_value(value);
}

}  // namespace

StatusHistory::Sample StatusHistory::SampleOf(absl::Duration now, const v1::TaskStatus& status) {
  Sample sample;
  sample.at = now;
  if (status.has_coordinator()) {
    const v1::CoordinatorStatus& job = status.coordinator();
    sample.total_steps = static_cast<double>(job.finished_steps() + job.finished_reads());
    sample.ready = HasState(status.state());
    sample.examples = static_cast<double>(job.examples());
    if (job.has_loss()) sample.loss = job.loss();
  } else if (status.has_ps()) {
    const v1::PsStatus& ps = status.ps();
    sample.rows = static_cast<double>(ps.pull_rows() + ps.push_rows());
    sample.bytes = static_cast<double>(ps.pull_bytes() + ps.push_bytes());
    sample.memory = static_cast<double>(ps.memory_bytes());
    sample.ready = status.state() == "ready";
  } else if (status.has_worker()) {
    const v1::WorkerStatus& worker = status.worker();
    sample.steps = static_cast<double>(worker.reported());
    sample.busy = static_cast<double>(worker.busy_ns()) * 1e-9;
    sample.waited = static_cast<double>(worker.input_wait_ns()) * 1e-9;
    sample.median = static_cast<double>(worker.step_p50_ns()) * 1e-9;
  }
  return sample;
}

// A restore makes the total leap, and a rewind makes it fall. Only what is added to a job that has
// its state counts.
void StatusHistory::Accumulate(const Sample& before, double rows_of_others, Sample& sample) {
  const bool counts = before.ready && sample.ready;
  sample.steps =
      before.steps + (counts ? std::max(0.0, sample.total_steps - before.total_steps) : 0);
  sample.rows = before.rows + rows_of_others;
}

double StatusHistory::AddOne(absl::Duration now, const v1::TaskStatus& status,
                             double rows_of_others) {
  Course& course = courses_[KeyOf(status)];
  const bool answers = status.role_case() != v1::TaskStatus::ROLE_NOT_SET;
  if (answers && course.incarnation != status.incarnation()) {
    course = Course();
    course.incarnation = status.incarnation();
  }
  if (course.state != status.state()) {
    course.state = status.state();
    course.state_since = now;
  }
  if (!answers) return 0;
  Sample sample = SampleOf(now, status);
  double moved = 0;
  if (!course.samples.empty()) {
    const Sample& before = course.samples.back();
    if (status.has_coordinator()) Accumulate(before, rows_of_others, sample);
    moved = std::max(0.0, sample.rows - before.rows);
  }
  course.samples.push_back(std::move(sample));
  if (course.samples.size() > kMost) course.samples.pop_front();
  return moved;
}

void StatusHistory::Add(absl::Duration now, const v1::TaskStatus& status) {
  MutexLock lock(mu_);
  own_ = KeyOf(status);
  std::set<Key> present = {own_};
  // Task by task, because a sum over those that answer would leap when one misses an answer.
  double rows = 0;
  for (const v1::TaskStatus& task : status.coordinator().tasks()) {
    if (present.insert(KeyOf(task)).second) rows += AddOne(now, task, 0);
  }
  AddOne(now, status, rows);
  for (auto course = courses_.begin(); course != courses_.end();)
    course = present.count(course->first) > 0 ? std::next(course) : courses_.erase(course);
}

const StatusHistory::Course* StatusHistory::Find(const v1::TaskStatus& status) const {
  const auto found = courses_.find(KeyOf(status));
  if (found == courses_.end()) return nullptr;
  const bool answers = status.role_case() != v1::TaskStatus::ROLE_NOT_SET;
  if (answers && found->second.incarnation != status.incarnation()) return nullptr;
  return &found->second;
}

void StatusHistory::CompleteOne(absl::Duration now, v1::TaskStatus& status) const {
  const Course* const course = Find(status);
  if (course == nullptr) return;
  // A state that began after the last sample is new.
  if (course->state == status.state())
    status.set_state_ns(absl::ToInt64Nanoseconds(now - course->state_since));
  if (course->samples.size() < 2) return;
  const Sample& last = course->samples.back();
  const size_t back = std::min(course->samples.size(), kRateSamples);
  const Sample& first = course->samples[course->samples.size() - back];
  const double seconds = absl::ToDoubleSeconds(last.at - first.at);
  if (seconds <= 0) return;
  const auto rate = [&](double Sample::*count) {
    return std::max(0.0, last.*count - first.*count) / seconds;
  };
  if (status.has_coordinator()) {
    status.mutable_coordinator()->set_steps_per_second(rate(&Sample::steps));
    status.mutable_coordinator()->set_examples_per_second(rate(&Sample::examples));
  } else if (status.has_ps()) {
    status.mutable_ps()->set_rows_per_second(rate(&Sample::rows));
    status.mutable_ps()->set_bytes_per_second(rate(&Sample::bytes));
  } else if (status.has_worker()) {
    const double busy = rate(&Sample::busy);
    status.mutable_worker()->set_steps_per_second(rate(&Sample::steps));
    status.mutable_worker()->set_input_wait_share(
        busy > 0 ? std::min(1.0, rate(&Sample::waited) / busy) : 0);
  }
}

void StatusHistory::FindIn(const v1::TaskStatus& status, Findings& findings) const {
  const Course* const course = Find(status);
  if (course == nullptr) return;
  if (status.has_ps() && status.state() == "ready" && status.ps().memory_limit_bytes() > 0) {
    // What a load adds is no growth.
    std::vector<TimedValue> memory;
    for (const Sample& sample : course->samples) {
      if (sample.ready)
        memory.push_back({sample.at, sample.memory});
      else
        memory.clear();
    }
    const auto full = TimeUntil(memory, static_cast<double>(status.ps().memory_limit_bytes()));
    if (full)
      AddFinding(Finding::MEMORY_FORECAST, status,
                 absl::StrCat("memory is full in ", SpanText(*full), " at this rate"),
                 absl::ToDoubleSeconds(*full), findings);
  }
  if (status.has_worker() && course->samples.size() >= kRateSamples) {
    const Sample& last = course->samples.back();
    const Sample& first = course->samples.front();
    const double waited = last.waited - first.waited, busy = last.busy - first.busy;
    if (IsInputBound(waited, busy, absl::ToDoubleSeconds(last.at - first.at))) {
      const double share = std::min(1.0, waited / busy);
      AddFinding(Finding::INPUT_BOUND, status,
                 absl::StrFormat("steps wait for their data %.0f %% of the time", 100 * share),
                 share, findings);
    }
  }
}

bool StatusHistory::HasMedian(const v1::TaskStatus& status) const {
  const Course* const course = Find(status);
  return course != nullptr && !course->samples.empty() &&
         course->samples.back().steps - course->samples.front().steps >= kLeastSteps;
}

void StatusHistory::Compare(const v1::CoordinatorStatus& job, Findings& findings) const {
  std::map<int, double> loads, medians;
  std::map<int, const v1::TaskStatus*> servers, workers;
  for (const v1::TaskStatus& task : job.tasks()) {
    if (task.has_ps()) {
      loads[task.index()] = task.ps().rows_per_second();
      servers[task.index()] = &task;
    } else if (task.has_worker() && HasMedian(task)) {
      medians[task.index()] = static_cast<double>(task.worker().step_p50_ns());
      workers[task.index()] = &task;
    }
  }
  for (const Outlier& hot : HotServers(loads)) {
    if (servers[hot.index]->ps().bytes_per_second() < kBusyServer) continue;
    const v1::PsStatus& ps = servers[hot.index]->ps();
    std::string text = absl::StrFormat("hot: %.1f x the mean of rows", hot.multiple);
    if (!ps.busiest_variable().empty())
      absl::StrAppendFormat(&text, ", %.0f %% of its load in variable %s", 100 * ps.busiest_share(),
                            ps.busiest_variable());
    AddFinding(Finding::HOT_PS, *servers[hot.index], std::move(text), hot.multiple, findings);
  }
  for (const Outlier& slow : Stragglers(medians))
    AddFinding(
        Finding::STRAGGLER, *workers[slow.index],
        absl::StrFormat("straggler: a step takes %.1f x the median of all workers", slow.multiple),
        slow.multiple, findings);
}

void StatusHistory::Complete(absl::Duration now, v1::TaskStatus& status) const {
  MutexLock lock(mu_);
  CompleteOne(now, status);
  Findings findings;
  FindIn(status, findings);
  if (status.has_coordinator()) {
    for (v1::TaskStatus& task : *status.mutable_coordinator()->mutable_tasks()) {
      CompleteOne(now, task);
      FindIn(task, findings);
    }
    Compare(status.coordinator(), findings);
  }
  *status.mutable_findings() = std::move(findings);
}

std::vector<StatusHistory::Picture> StatusHistory::Pictures() const {
  MutexLock lock(mu_);
  const auto found = courses_.find(own_);
  std::vector<Picture> pictures;
  if (found == courses_.end()) return pictures;
  const std::deque<Sample>& samples = found->second.samples;
  const auto rate = [&](const char* title, double Sample::*count,
                        double most = std::numeric_limits<double>::infinity()) {
    Picture picture{title, {}};
    for (size_t i = 1; i < samples.size(); ++i) {
      const double seconds = absl::ToDoubleSeconds(samples[i].at - samples[i - 1].at);
      if (seconds > 0)
        picture.points.push_back(
            {samples[i].at,
             std::min(most, std::max(0.0, samples[i].*count - samples[i - 1].*count) / seconds)});
    }
    pictures.push_back(std::move(picture));
  };
  const auto value = [&](const char* title,
                         const std::function<std::optional<double>(const Sample&)>& of) {
    Picture picture{title, {}};
    for (const Sample& sample : samples) {
      if (const std::optional<double> now = of(sample)) picture.points.push_back({sample.at, *now});
    }
    pictures.push_back(std::move(picture));
  };
  switch (static_cast<v1::Job>(own_.first)) {
    case v1::CHIEF:
      rate("steps/s", &Sample::steps);
      rate("examples/s", &Sample::examples);
      value("loss", [](const Sample& sample) { return sample.loss; });
      rate("rows/s of all ps", &Sample::rows);
      break;
    case v1::PS:
      rate("rows/s", &Sample::rows);
      rate("bytes/s", &Sample::bytes);
      value("memory, bytes", [](const Sample& sample) { return sample.memory; });
      break;
    case v1::WORKER:
      rate("steps/s", &Sample::steps);
      value("median step, s", [](const Sample& sample) { return sample.median; });
      rate("waits for data, share", &Sample::waited, /*most=*/1);
      break;
    default: break;
  }
  return pictures;
}

}  // namespace divvy
