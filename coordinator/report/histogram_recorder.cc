#include "coordinator/report/histogram_recorder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "kernels/value_histogram.h"

namespace divvy {
namespace {

constexpr char kRun[] = "train";
// How often the recorder looks whether a worker has told its gradients.
constexpr absl::Duration kLook = absl::Seconds(1);

// What one sample reads. A parameter server copies these values, and the coordinator holds them for
// a moment.
constexpr int64_t kMostElements = int64_t{4} << 20, kMostOfOne = 1 << 16,
                  kLongestRow = int64_t{1} << 20;
// The coordinator checks the numbers of rows under its lock.
constexpr int64_t kMostRows = 1 << 18, kMostRowsOfOne = 1 << 12;
constexpr size_t kMostVariables = 1000;

Tensor RowsApart(int64_t rows, int64_t wanted) {
  std::vector<int64_t> ids(static_cast<size_t>(wanted));
  // rows / wanted * i and the rest apart, because rows * i may be too large for an int64.
  for (int64_t i = 0; i < wanted; ++i)
    ids[static_cast<size_t>(i)] = rows / wanted * i + rows % wanted * i / wanted;
  return Tensor::Vector<int64_t>(ids);
}

bool HasHistogram(const VariableSpec& spec) {
  return IsFloating(spec.dtype) && !spec.table && spec.shape.num_elements() > 0;
}

int64_t RowElements(const VariableSpec& spec) {
  return spec.shape.rank() < 2 ? 1 : spec.shape.row_elements();
}

// What is read of a variable.
struct Wanted {
  // 0: it is left out.
  int64_t elements = 0;
  // 0: the whole variable.
  int64_t rows = 0;
};

Wanted WantedOf(const VariableSpec& spec, int64_t most_elements, int64_t most_rows) {
  const int64_t all = spec.shape.num_elements(), row = RowElements(spec);
  if (all <= most_elements || spec.shape.rank() == 0) return {all, 0};
  const int64_t rows =
      std::clamp<int64_t>(std::min(most_elements / row, most_rows), 1, spec.shape.dim(0));
  return {rows * row, rows};
}

// Sets `elements` of those to 0 for which the smaller ones leave no room. Returns how many.
int LeaveOutLargest(std::vector<Wanted>& wanted) {
  std::vector<Wanted*> smallest_first;
  for (Wanted& each : wanted) smallest_first.push_back(&each);
  std::stable_sort(smallest_first.begin(), smallest_first.end(),
                   [](const Wanted* a, const Wanted* b) { return a->elements < b->elements; });
  int64_t elements = 0;
  int left_out = 0;
  for (Wanted* const each : smallest_first) {
    elements += each->elements;
    if (elements <= kMostElements) continue;
    each->elements = 0;
    ++left_out;
  }
  return left_out;
}

}  // namespace

WeightSample SampleOf(const Layout& layout) {
  std::vector<const VariableSpec*> specs;
  WeightSample sample;
  for (const auto& [id, variable] : layout.variables()) {
    if (!HasHistogram(variable.spec)) continue;
    const bool fits = specs.size() < kMostVariables && RowElements(variable.spec) <= kLongestRow;
    fits ? specs.push_back(&variable.spec) : static_cast<void>(++sample.left_out);
  }
  if (specs.empty()) return sample;
  const auto share = [&specs](int64_t all) { return all / static_cast<int64_t>(specs.size()); };
  const int64_t elements = std::min(kMostOfOne, share(kMostElements)),
                rows = std::min(kMostRowsOfOne, share(kMostRows));
  std::vector<Wanted> wanted;
  for (const VariableSpec* spec : specs) wanted.push_back(WantedOf(*spec, elements, rows));
  sample.left_out += LeaveOutLargest(wanted);
  for (size_t i = 0; i < specs.size(); ++i) {
    if (wanted[i].elements == 0) continue;
    VariableRead read;
    read.variable = specs[i]->name;
    if (wanted[i].rows > 0) read.ids = RowsApart(specs[i]->shape.dim(0), wanted[i].rows);
    sample.names.push_back(specs[i]->name);
    sample.reads.push_back(std::move(read));
  }
  return sample;
}

ValueHistogram HistogramOfStaleness(const std::map<uint64_t, int64_t>& staleness) {
  ValueHistogram histogram;
  if (staleness.empty()) return histogram;
  const uint64_t low = staleness.begin()->first, span = staleness.rbegin()->first - low;
  const uint64_t width = span / kHistogramBuckets + 1;
  histogram.counts.resize(static_cast<size_t>(span / width) + 1);
  histogram.low = static_cast<double>(low);
  histogram.high =
      histogram.low + static_cast<double>(width) * static_cast<double>(histogram.counts.size());
  for (const auto& [value, steps] : staleness)
    histogram.counts[static_cast<size_t>((value - low) / width)] += static_cast<uint64_t>(steps);
  return histogram;
}

HistogramRecorder::HistogramRecorder(absl::Duration every, std::shared_ptr<HistogramSource> source,
                                     std::shared_ptr<EventRecorder> events, Executor& executor,
                                     Clock& clock)
    : every_(every),
      source_(std::move(source)),
      events_(std::move(events)),
      executor_(executor),
      clock_(clock) {}

void HistogramRecorder::Begin() { LookLater(); }

void HistogramRecorder::LookLater() {
  executor_.PostAfter(std::min(every_, kLook), [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Look();
  });
}

void HistogramRecorder::Look() {
  {
    MutexLock lock(mu_);
    if (over_) return;
    WriteGradients();
    if (source_->Step() > 0 && clock_.Elapsed() >= next_) Sample();
  }
  LookLater();
}

void HistogramRecorder::OnTraining() {
  MutexLock lock(mu_);
  // The values with which the training begins. Later loops wait for their time.
  if (!over_ && !sampled_step_) Sample();
}

void HistogramRecorder::SampleLast(std::function<void()> done) {
  {
    MutexLock lock(mu_);
    if (over_) return;
    if (source_->Step() > 0) Sample();
    if (reading_) {
      last_done_ = std::move(done);
      return;
    }
  }
  done();
}

void HistogramRecorder::Finish() {
  MutexLock lock(mu_);
  if (std::exchange(over_, true)) return;
  last_done_ = nullptr;
  WriteGradients();
  WriteStaleness(source_->Step());
}

void HistogramRecorder::Sample() {
  const int64_t step = source_->Step();
  if (reading_ || step == sampled_step_ || !source_->IsRunning()) return;
  next_ = clock_.Elapsed() + every_;
  sampled_step_ = step;
  WriteStaleness(step);
  source_->WantGradients();
  ReadWeights(step);
}

void HistogramRecorder::ReadWeights(int64_t step) {
  WeightSample sample = SampleOf(*source_->Variables());
  if (sample.left_out > 0 && !std::exchange(left_out_told_, true)) {
    DIVVY_LOG(WARNING) << "--tensorboard_histograms: " << sample.left_out
                       << " variables get no histogram of their weights: a row has more than "
                       << kLongestRow << " elements, or one row of each would be more than "
                       << kMostElements << " elements, or there are more than " << kMostVariables
                       << " variables";
  }
  if (sample.reads.empty()) return;
  reading_ = true;
  // Without the lock, because the answer may come within the call.
  executor_.Post([weak = weak_from_this(), source = source_, step, sample = std::move(sample)] {
    source->Read(sample.reads, [weak, step, names = sample.names](
                                   const absl::StatusOr<std::vector<Tensor>>& values) {
      if (const auto self = weak.lock()) self->OnWeights(step, names, values);
    });
  });
}

// An error means that the job is ending, or that a variable was deleted meanwhile. The next sample
// is another try.
void HistogramRecorder::OnWeights(int64_t step, const std::vector<std::string>& names,
                                  const absl::StatusOr<std::vector<Tensor>>& values) {
  std::map<std::string, ValueHistogram> histograms;
  for (size_t i = 0; values.ok() && i < names.size() && i < values->size(); ++i)
    histograms[absl::StrCat("weights/", names[i])] = HistogramOf((*values)[i]);
  std::function<void()> last_done;
  {
    MutexLock lock(mu_);
    reading_ = false;
    if (over_) return;
    events_->Histograms(kRun, step, std::move(histograms));
    // That was a read from before the end, if steps have finished since.
    if (last_done_ != nullptr) Sample();
    if (!reading_) last_done = std::exchange(last_done_, nullptr);
  }
  if (last_done != nullptr) last_done();
}

void HistogramRecorder::WriteGradients() {
  GradientSample sample = source_->TakeGradients();
  if (sample.gradients.empty()) return;
  const std::shared_ptr<const Layout> layout = source_->Variables();
  std::map<std::string, ValueHistogram> histograms;
  for (GradientHistogram& gradient : sample.gradients) {
    // The names come from a worker.
    if (layout->Find(gradient.variable) != nullptr)
      histograms[absl::StrCat("gradients/", gradient.variable)] = std::move(gradient.values);
  }
  events_->Histograms(kRun, sample.step, std::move(histograms));
}

void HistogramRecorder::WriteStaleness(int64_t step) {
  const auto staleness = source_->TakeStaleness();
  if (!staleness.empty())
    events_->Histograms(kRun, step, {{"staleness", HistogramOfStaleness(staleness)}});
}

}  // namespace divvy
