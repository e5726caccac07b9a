#include "tests/coordinator/steps.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "partitioners/partitioner.h"

namespace divvy::rules {
namespace {

absl::Status Add(WorkerContext& worker, int64_t n) {
  ASSIGN_OR_RETURN(const Variable counter, worker.strategy().FindVariable("counter"));
  const std::vector<int64_t> all(static_cast<size_t>(counter.spec().shape.dim(0)), n);
  return counter.AssignAdd(Tensor::Vector<int64_t>(all));
}
const Step add_step(kAdd, Add);

absl::Status Fail(WorkerContext& worker, std::string message) {
  RETURN_IF_ERROR(Add(worker, 1'000'000));
  return absl::InvalidArgumentError(message);
}
const Step fail_step(kFail, Fail);

absl::StatusOr<Nest> Echo(WorkerContext&, Nest value) { return value; }
const Step echo_step(kEcho, Echo);

absl::Status PassGate(WorkerContext& worker) {
  gate().Arrive();
  if (gate().Pass([&worker] { return worker.cancelled(); })) return absl::OkStatus();
  return absl::CancelledError("cancelled at the gate");
}

absl::Status AddAtGate(WorkerContext& worker, int64_t n) {
  RETURN_IF_ERROR(PassGate(worker));
  return Add(worker, n);
}
const Step add_at_gate_step(kAddAtGate, AddAtGate);

absl::Status FailAtGate(WorkerContext& worker, std::string message) {
  RETURN_IF_ERROR(PassGate(worker));
  return Fail(worker, std::move(message));
}
const Step fail_at_gate_step(kFailAtGate, FailAtGate);

absl::StatusOr<Nest> Next(WorkerContext& worker, Iterator numbers) {
  ASSIGN_OR_RETURN(const PerReplica<Nest> number, worker.Next(numbers));
  RETURN_IF_ERROR(Add(worker, 1));
  return Nest(Nest::List{Nest(static_cast<int64_t>(worker.worker_index())), number[0]});
}
const Step next_step(kNext, Next);

absl::StatusOr<Nest> NextAtGate(WorkerContext& worker, Iterator numbers) {
  RETURN_IF_ERROR(PassGate(worker));
  return Next(worker, std::move(numbers));
}
const Step next_at_gate_step(kNextAtGate, NextAtGate);

// ---- data ----

struct Opened {
  Mutex mu;
  std::map<std::string, int64_t> times DIVVY_GUARDED_BY(mu);
};
Opened& opened() {
  static Opened* const opened = new Opened;
  return *opened;
}
void CountOpened(const std::string& name) {
  MutexLock lock(opened().mu);
  ++opened().times[name];
}

// Without prefetch, because the simulation has no thread for it.
constexpr InputOptions kAllOnEachWorker{AutoShardPolicy::kOff, true, 0};

absl::StatusOr<Dataset> OpenNumbers(const InputContext&, int64_t n) {
  CountOpened("rules/numbers");
  return Dataset::Generator(
      [](int64_t i) -> absl::StatusOr<std::optional<Nest>> { return std::optional<Nest>(Nest(i)); },
      n);
}
const DataSource numbers_source("rules/numbers", OpenNumbers, kAllOnEachWorker);

absl::StatusOr<Dataset> OpenBroken(const InputContext&) {
  CountOpened("rules/broken");
  return absl::DataLossError("the file is broken");
}
const DataSource broken_source("rules/broken", OpenBroken, kAllOnEachWorker);

}  // namespace

VariableSpec CounterSpec(int num_ps) {
  VariableSpec spec{"counter", {num_ps}, Zeros(), {}, DType::kInt64};
  spec.partitioner = FixedShardsPartitioner{num_ps};
  return spec;
}

absl::StatusOr<int64_t> CommonElement(const Tensor& counter) {
  ASSIGN_OR_RETURN(const absl::Span<const int64_t> elements, counter.values<int64_t>());
  if (std::all_of(elements.begin(), elements.end(),
                  [&](int64_t element) { return element == elements[0]; }))
    return elements[0];
  return absl::InternalError(absl::StrCat("the counter is [", absl::StrJoin(elements, ", "), "]"));
}

BoundDataSource Numbers(int64_t n) { return numbers_source(n); }
BoundDataSource BrokenData() { return broken_source(); }

int64_t TimesOpened(const BoundDataSource& source) {
  MutexLock lock(opened().mu);
  return opened().times[std::string(source.name())];
}

// ---- the gate ----

void Gate::Close() {
  MutexLock lock(mu_);
  open_ = false;
  arrived_ = 0;
}

void Gate::Open() {
  MutexLock lock(mu_);
  open_ = true;
  changed_.NotifyAll();
}

bool Gate::open() const {
  MutexLock lock(mu_);
  return open_;
}

int Gate::arrived() const {
  MutexLock lock(mu_);
  return arrived_;
}

void Gate::Arrive() {
  MutexLock lock(mu_);
  ++arrived_;
}

bool Gate::Pass(const std::function<bool()>& given_up) {
  MutexLock lock(mu_);
  while (!given_up()) {
    if (changed_.WaitFor(mu_, absl::Milliseconds(2),
                         [this]() DIVVY_REQUIRES(mu_) { return open_; }))
      return true;
  }
  return false;
}

Gate& gate() {
  static Gate* const gate = new Gate;
  return *gate;
}

}  // namespace divvy::rules
