#include "worker/core/thread_step_runner.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/completion.h"
#include "base/crash_report.h"
#include "base/status_macros.h"
#include "base/trace_range.h"
#include "protocol/error.h"
#include "strategy/step.h"
#include "strategy/strategy.h"
#include "tensor/copies_ahead.h"
#include "tensor/device_memory.h"

namespace divvy {
namespace {

// ---- variables ----------------------------------------------------------------------------------

// The variables that a step's replicas read whole, with their GPUs. Thread-safe.
class ReadsOnGpus {
 public:
  using Devices = std::map<std::string, std::vector<Device>>;

  void Note(const std::string& variable, Device device) {
    MutexLock lock(mu_);
    std::vector<Device>& devices = devices_[variable];
    if (std::find(devices.begin(), devices.end(), device) == devices.end())
      devices.push_back(device);
  }
  Devices devices() const {
    MutexLock lock(mu_);
    return devices_;
  }

 private:
  mutable Mutex mu_;
  Devices devices_ DIVVY_GUARDED_BY(mu_);
};

class TransactionStore : public VariableStore {
 public:
  TransactionStore(std::shared_ptr<StepTransaction> transaction, std::shared_ptr<ReadsOnGpus> reads)
      : transaction_(std::move(transaction)),
        layout_(transaction_->layout()),
        reads_(std::move(reads)) {}

  JobId job() const override { return transaction_->job(); }

  absl::StatusOr<VariableInfo> Find(absl::string_view name) const override {
    const VariableLayout* const variable = layout_->Find(name);
    if (variable == nullptr) return layout_->UnknownVariable(name);
    return VariableInfo{variable->spec, variable->offsets, variable->ps};
  }

  absl::StatusOr<VariableInfo> Create(const VariableSpec& spec,
                                      const std::optional<Colocation>&) override {
    return absl::FailedPreconditionError(
        absl::StrCat("variable \"", spec.name,
                     "\" cannot be created in a step: create it on the coordinator, before steps "
                     "are scheduled"));
  }

  absl::StatusOr<std::vector<Tensor>> ReadTable(std::vector<VariableRead> reads) override {
    RETURN_IF_ERROR(CopyToCpu(reads));
    const auto answer = std::make_shared<Completion<absl::StatusOr<std::vector<Tensor>>>>();
    transaction_->Pull(std::move(reads), [answer](absl::StatusOr<std::vector<Tensor>> values) {
      answer->Set(std::move(values));
    });
    return answer->Take();
  }

  absl::Status Read(absl::Span<ReadRequest> requests) override {
    std::vector<VariableRead> reads;
    for (const ReadRequest& request : requests) reads.push_back({request.name, request.ids});
    ASSIGN_OR_RETURN(std::vector<Tensor> values, ReadTable(std::move(reads)));
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].value = std::move(values[i]);
      requests[i].num_rows = layout_->Find(requests[i].name)->num_rows();
    }
    return absl::OkStatus();
  }

  // A value that the step has changed is another tensor, of which there is no copy.
  absl::Status ReadOn(Device device, absl::Span<ReadRequest> requests) override {
    RETURN_IF_ERROR(Read(requests));
    if (device.kind != Device::Kind::kGpu) return absl::OkStatus();
    for (ReadRequest& request : requests) {
      if (request.ids) continue;
      reads_->Note(request.name, device);
      if (std::optional<Tensor> copy = FindCopyAhead(request.value, device))
        request.value = *std::move(copy);
    }
    return BringTo(device, requests);
  }

  absl::Status Write(std::vector<StagedWrite> writes) override {
    RETURN_IF_ERROR(CopyToCpu(writes));
    return transaction_->Stage(std::move(writes));
  }

 private:
  const std::shared_ptr<StepTransaction> transaction_;
  const std::shared_ptr<const Layout> layout_;
  const std::shared_ptr<ReadsOnGpus> reads_;
};

// ---- time ---------------------------------------------------------------------------------------

// Adds the seconds of its life to a counter. Null: to none.
class SecondsIn {
 public:
  explicit SecondsIn(Gauge* counter)
      : counter_(counter),
        began_(counter == nullptr ? absl::Duration() : Clock::Real().Elapsed()) {}
  ~SecondsIn() {
    if (counter_ != nullptr) counter_->Add(absl::ToDoubleSeconds(Clock::Real().Elapsed() - began_));
  }
  SecondsIn(const SecondsIn&) = delete;

 private:
  Gauge* const counter_;
  const absl::Duration began_;
};

// ---- data ---------------------------------------------------------------------------------------

// Gives one step its elements. Thread-safe.
class StepInput {
 public:
  StepInput(DataInputOpener& inputs, const std::vector<InputLease>& leases,
            const ThreadStepRunnerOptions& options)
      : inputs_(inputs),
        devices_(options.replica_devices),
        waited_(options.metrics == nullptr ? nullptr : &options.metrics->input_wait_seconds),
        replicas_(static_cast<int>(options.replica_devices.size())) {
    for (const InputLease& lease : leases) leases_[lease.iterator] = lease;
  }

  absl::StatusOr<std::optional<PerReplica<Nest>>> Next(ResourceId iterator) {
    absl::StatusOr<std::vector<Nest>> elements = [&] {
      const SecondsIn waited(waited_);
      return Read(iterator);
    }();
    if (!elements.ok()) {
      MutexLock lock(mu_);
      if (ReasonOf(elements.status()) == Reason::kInputAborted) lost_ = elements.status();
      return elements.status();
    }
    NoteEnd(iterator, static_cast<int64_t>(elements->size()));
    if (elements->empty()) return std::optional<PerReplica<Nest>>();
    while (static_cast<int>(elements->size()) < replicas_) {
      ASSIGN_OR_RETURN(Nest empty, EmptyBatchLike(elements->front()));
      elements->push_back(std::move(empty));
    }
    if (inputs_.FetchesToDevice(iterator)) RETURN_IF_ERROR(Fetch(*elements));
    return std::optional<PerReplica<Nest>>(PerReplica<Nest>(*std::move(elements)));
  }

  // The iterators that had too few elements for the step.
  std::vector<EndedInput> ended() const {
    MutexLock lock(mu_);
    return ended_;
  }

  // The error of an input that is gone, or OK. After such an error the step has not run with its
  // data, even if its function returned OK.
  absl::Status lost() const {
    MutexLock lock(mu_);
    return lost_;
  }

 private:
  // Data that is not leased has ended when no element is left. A last batch for only some of the
  // replicas is an element like others.
  void NoteEnd(ResourceId iterator, int64_t elements) {
    MutexLock lock(mu_);
    const auto lease = leases_.find(iterator);
    if (lease == leases_.end()) {
      if (elements == 0) ended_.push_back({iterator, std::nullopt});
    } else if (elements < std::min<int64_t>(lease->second.count, replicas_) ||
               lease->second.count == 0) {
      ended_.push_back({iterator, lease->second.first + elements});
    }
  }

  // Copies each element to the device of its replica.
  absl::Status Fetch(std::vector<Nest>& elements) const {
    for (int id = 0; id < replicas_; ++id) {
      ASSIGN_OR_RETURN(elements[id], BatchOn(elements[id], devices_[id]));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Nest>> Read(ResourceId iterator) {
    std::optional<InputLease> lease;
    {
      MutexLock lock(mu_);
      const auto found = leases_.find(iterator);
      if (found != leases_.end()) {
        if (!taken_.insert(iterator).second) {
          return absl::FailedPreconditionError(
              "the step has taken its elements of this data already: with AutoShardPolicy::kLease "
              "a step calls Next once");
        }
        lease = found->second;
      }
    }
    if (!lease) return inputs_.Read(iterator, std::nullopt, replicas_);
    if (lease->count == 0) return std::vector<Nest>();
    return inputs_.Read(iterator, lease->first, std::min<int64_t>(lease->count, replicas_));
  }

  DataInputOpener& inputs_;
  const std::vector<Device>& devices_;
  Gauge* const waited_;  // null: nobody wants to know
  const int replicas_;
  mutable Mutex mu_;
  std::map<ResourceId, InputLease> leases_ DIVVY_GUARDED_BY(mu_);
  std::set<ResourceId> taken_ DIVVY_GUARDED_BY(mu_);
  absl::Status lost_ DIVVY_GUARDED_BY(mu_);
  std::vector<EndedInput> ended_ DIVVY_GUARDED_BY(mu_);
};

// ---- the environment ----------------------------------------------------------------------------

// For each GPU, the number of failures that this worker's steps have reported. Thread-safe.
class ReportedFailures {
 public:
  // A step of an older session may end meanwhile, with a smaller count.
  void Set(int gpu, int64_t count) {
    MutexLock lock(mu_);
    int64_t& told = counts_[gpu];
    told = std::max(told, count);
  }
  std::map<int, int64_t> counts() const {
    MutexLock lock(mu_);
    return counts_;
  }

 private:
  mutable Mutex mu_;
  std::map<int, int64_t> counts_ DIVVY_GUARDED_BY(mu_);
};

struct RunningStep {
  const ThreadStepRunnerOptions& options;
  Executor& executor;
  DataInputOpener& inputs;
  StepCall call;
  std::shared_ptr<StepTransaction> transaction;
  ReportedFailures& failures;
  int64_t number = 0;  // the value of step()
  std::shared_ptr<ReadsOnGpus> reads = std::make_shared<ReadsOnGpus>();
};

class ThreadStepEnvironment : public StepEnvironment {
 public:
  ThreadStepEnvironment(const RunningStep& step, const std::shared_ptr<LocalObjects>& locals)
      : step_(step),
        input_(step.inputs, step.call.inputs, step.options),
        strategy_(Parts(locals)) {}

  Strategy& strategy() override { return strategy_; }
  int worker_index() const override { return step_.options.worker_index; }
  absl::StatusOr<std::optional<PerReplica<Nest>>> Next(PerWorkerHandle handle) override {
    return input_.Next(ResourceId(handle.id));
  }
  bool cancelled() const override { return step_.transaction->cancelled(); }
  absl::Status lost_input() const { return input_.lost(); }
  std::vector<EndedInput> ended_inputs() const { return input_.ended(); }

 private:
  StrategyParts Parts(const std::shared_ptr<LocalObjects>& locals) const {
    StrategyParts parts;
    parts.store = std::make_shared<TransactionStore>(step_.transaction, step_.reads);
    parts.executor = &step_.executor;
    parts.resolver = step_.options.resolver;
    parts.replica_devices = step_.options.replica_devices;
    parts.step = step_.number;
    parts.seed = step_.call.seed;
    parts.locals = locals;
    parts.communication = step_.options.communication;
    return parts;
  }

  const RunningStep& step_;
  StepInput input_;
  Strategy strategy_;
};

// Finds the failures of a step's GPUs. The success of the step's function is not enough: a GPU
// reports its failures later, and may report them to another step that computes on it. A failure of
// one replica's GPU may also have spoilt a sum on another replica's GPU. All failures since the end
// of the previous step count as this step's, because the GPU may have been copying this step's
// batch since then.
class GpuWatch {
 public:
  GpuWatch(const std::vector<Device>& devices, ReportedFailures& told) : told_(told) {
    const std::map<int, int64_t> known = told_.counts();
    for (const Device device : devices) {
      if (device.kind != Device::Kind::kGpu) continue;
      const auto before = known.find(device.index);
      // No step has used this GPU before.
      before_[device.index] = before != known.end() ? before->second : Find(device).count;
    }
  }
  // Called when the step has ended, successfully or not. Waits for its GPUs.
  absl::Status Look() {
    absl::Status found;
    for (const auto& [index, before] : before_) {
      DeviceFailures now = Find({Device::Kind::kGpu, index});
      now_[index] = now.count;
      if (now.count != before) found.Update(now.last);
      lost_.Update(now.lost);
    }
    return found;
  }
  // After Look: why one of the GPUs will never compute again; OK if there is none.
  const absl::Status& lost() const { return lost_; }
  // Marks the failures that Look has found as reported, so that the next step does not report them
  // again.
  void Tell() {
    for (const auto& [index, count] : now_) told_.Set(index, count);
  }

 private:
  static DeviceFailures Find(Device device) { return GpuMemoryIfAny()->FindFailures(device); }
  ReportedFailures& told_;
  std::map<int, int64_t> before_, now_;
  absl::Status lost_;
};

absl::StatusOr<Nest> RunFunction(const RunningStep& step,
                                 const std::shared_ptr<LocalObjects>& locals,
                                 std::vector<EndedInput>& ended) {
  ASSIGN_OR_RETURN(const RegisteredStep* registered, StepRegistry::Get(step.call.function));
  ThreadStepEnvironment environment(step, locals);
  const TraceRange range(registered->name.c_str());
  const CrashNote note("step", registered->name.c_str());
  absl::StatusOr<Nest> result = RunStep(*registered, environment, step.call.args);
  ended = environment.ended_inputs();
  RETURN_IF_ERROR(environment.lost_input());
  RETURN_IF_ERROR(result);
  return internal::MoveTo(*result, Device{});
}

// A prefetched value may be wrong if a GPU failed while it was copied, and may occupy the memory
// that was missing. So prefetched values are dropped before the failure is marked as reported.
absl::StatusOr<Nest> CallFunction(const RunningStep& step,
                                  const std::shared_ptr<LocalObjects>& locals,
                                  std::vector<EndedInput>& ended) {
  GpuWatch gpus(step.options.replica_devices, step.failures);
  absl::StatusOr<Nest> result = RunFunction(step, locals, ended);
  const absl::Status found = gpus.Look();
  if (!found.ok() || absl::IsResourceExhausted(result.status())) {
    step.inputs.ForgetAhead();
    for (const Device device : step.options.replica_devices) DropCopiesAhead(device);
  }
  gpus.Tell();
  // A lost GPU counts whatever the function returned.
  if (!gpus.lost().ok()) return MakeError(Reason::kDeviceLost, gpus.lost().message());
  RETURN_IF_ERROR(result);
  RETURN_IF_ERROR(found);
  return result;
}

// ---- threads ------------------------------------------------------------------------------------

// A thread that runs steps. The end of a step often starts the next one, and the same thread then
// runs it: to wake another one takes longer than many steps do (bench:steps).
class StepThread {
 public:
  struct Work {
    std::function<StepEnd()> run;
    std::function<void(StepEnd)> done;
  };

  // Runs `work` soon. Does not block.
  static void Run(Executor& executor, Work work) {
    if (next_ != nullptr && !*next_) {
      *next_ = std::move(work);
      return;
    }
    executor.PostBlocking("step", [work = std::move(work)] { RunAll(work); });
  }

 private:
  static void RunAll(std::optional<Work> work) {
    while (work) {
      StepEnd end = work->run();
      std::optional<Work> next;
      next_ = &next;
      work->done(std::move(end));
      next_ = nullptr;
      work = std::move(next);
    }
  }

  // While a step that ran on this thread is being ended: where the next one goes. Else null.
  static thread_local std::optional<Work>* next_;
};

thread_local std::optional<StepThread::Work>* StepThread::next_ = nullptr;

}  // namespace

std::shared_ptr<VariableStore> MakeTransactionStore(std::shared_ptr<StepTransaction> transaction) {
  return std::make_shared<TransactionStore>(std::move(transaction),
                                            std::make_shared<ReadsOnGpus>());
}

// State that outlives one step. Shared with the running steps.
struct ThreadStepRunner::Kept {
  Mutex mu;
  // Objects of steps that have ended; there are as many as steps have ever run at once.
  std::vector<std::shared_ptr<LocalObjects>> idle DIVVY_GUARDED_BY(mu);
  int64_t last_number DIVVY_GUARDED_BY(mu) = 0;
  // From the last successful run of each function.
  std::map<std::string, ReadsOnGpus::Devices> reads DIVVY_GUARDED_BY(mu);
  ReportedFailures failures;

  std::shared_ptr<LocalObjects> TakeLocals() {
    MutexLock lock(mu);
    if (idle.empty()) return std::make_shared<LocalObjects>();
    std::shared_ptr<LocalObjects> locals = std::move(idle.back());
    idle.pop_back();
    return locals;
  }
  void GiveBack(std::shared_ptr<LocalObjects> locals) {
    MutexLock lock(mu);
    idle.push_back(std::move(locals));
  }
  void Learn(const std::string& function, ReadsOnGpus::Devices devices) {
    MutexLock lock(mu);
    reads[function] = std::move(devices);
  }
  std::vector<CopyWanted> WantedOf(const std::string& function,
                                   const std::vector<WholeValue>& values) {
    std::vector<CopyWanted> wanted;
    MutexLock lock(mu);
    const ReadsOnGpus::Devices& devices = reads[function];
    for (const WholeValue& whole : values) {
      const auto on = devices.find(whole.variable);
      if (on != devices.end()) wanted.push_back({whole.value, on->second});
    }
    return wanted;
  }
  // The number of the step. A read-only step has no number, and gets that of the last training step
  // of this worker.
  int64_t Number(std::optional<int64_t> ordinal) {
    MutexLock lock(mu);
    if (ordinal) last_number = *ordinal;
    return last_number;
  }
};

ThreadStepRunner::ThreadStepRunner(ThreadStepRunnerOptions options, Executor& executor,
                                   DataInputOpener& inputs)
    : options_(std::make_shared<const ThreadStepRunnerOptions>(std::move(options))),
      executor_(executor),
      inputs_(inputs),
      kept_(std::make_shared<Kept>()) {}

ThreadStepRunner::~ThreadStepRunner() = default;

void ThreadStepRunner::Start(StepCall call, std::shared_ptr<StepTransaction> transaction,
                             std::function<void(StepEnd)> done) {
  const int64_t number = kept_->Number(call.ordinal);
  auto run = [kept = kept_, options = options_, &executor = executor_, &inputs = inputs_,
              call = std::move(call), transaction = std::move(transaction), number] {
    std::vector<EndedInput> ended;
    const RunningStep step{*options, executor, inputs, call, transaction, kept->failures, number};
    std::shared_ptr<LocalObjects> locals = kept->TakeLocals();
    absl::StatusOr<Nest> result = [&] {
      const SecondsIn busy(options->metrics == nullptr ? nullptr : &options->metrics->busy_seconds);
      return CallFunction(step, locals, ended);
    }();
    if (result.ok()) kept->Learn(call.function, step.reads->devices());
    kept->GiveBack(std::move(locals));
    return StepEnd{std::move(result), std::move(ended)};
  };
  StepThread::Run(executor_, {std::move(run), std::move(done)});
}

void ThreadStepRunner::CopyAhead(const std::string& function,
                                 const std::vector<WholeValue>& values) {
  const std::vector<CopyWanted> wanted = kept_->WantedOf(function, values);
  if (!wanted.empty()) executor_.PostBlocking("copy ahead", PromiseCopies(wanted));
}

}  // namespace divvy
