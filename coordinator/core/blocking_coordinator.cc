#include "coordinator/core/blocking_coordinator.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/completion.h"
#include "base/exit_codes.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "strategy/summary_writer.h"
#include "variables/first_rows.h"

namespace divvy {
namespace {

// Returns a completion for the core. An abandoned core destroys the completion without calling it.
// The waiting thread then gets an error, so no thread waits for ever.
template <typename Answered>
auto AnswerTo(std::shared_ptr<Answered> completion) {
  const std::shared_ptr<Answered> answered(completion.get(), [completion](Answered* dropped) {
    dropped->Set(absl::FailedPreconditionError(
        "the coordinator is gone: keep it alive until the last call of a variable, strategy or "
        "dataset"));
  });
  return [answered](auto value) { answered->Set(std::move(value)); };
}

// Calls `start` with a completion, and returns the value that the completion gets. Blocks.
// DeadlineExceeded: the completion gets no value within `timeout`.
template <typename T, typename Start>
T WaitFor(Start start, absl::Duration timeout = absl::InfiniteDuration()) {
  auto completion = std::make_shared<Completion<T>>();
  start(AnswerTo(completion));
  std::optional<T> value = completion->Wait(timeout);
  return value ? *std::move(value) : T(absl::DeadlineExceededError("no answer came in time"));
}

class ScheduledResult : public internal::RemoteResult {
 public:
  std::shared_ptr<Completion<absl::StatusOr<Nest>>> completion() const { return result_; }
  RemoteState state() const override {
    const auto result = result_->Peek();
    if (!result) return RemoteState::kNotReady;
    if (result->ok()) return RemoteState::kReady;
    return ReasonOf(result->status()) == Reason::kBatchCancelled ? RemoteState::kCancelled
                                                                 : RemoteState::kFailed;
  }
  absl::StatusOr<Nest> Fetch(absl::Duration timeout) const override {
    const auto result = result_->Wait(timeout);
    if (!result) return absl::DeadlineExceededError("the step has not finished yet: fetch again");
    return *result;
  }

 private:
  const std::shared_ptr<Completion<absl::StatusOr<Nest>>> result_ =
      std::make_shared<Completion<absl::StatusOr<Nest>>>();
};

// The merged metrics of a loop's steps. Thread-safe.
class LoopMetrics {
 public:
  void Add(const absl::StatusOr<Metrics>& metrics) {
    MutexLock lock(mu_);
    error_.Update(metrics.status());
    if (!error_.ok()) return;
    error_.Update(Merge(*metrics, all_));
    // Fails only if the Merge above fails.
    Merge(*metrics, recent_).IgnoreError();
  }
  Metrics TakeRecent() {
    MutexLock lock(mu_);
    return std::exchange(recent_, {});
  }
  absl::StatusOr<Metrics> All() {
    MutexLock lock(mu_);
    if (!error_.ok()) return error_;
    return all_;
  }

 private:
  Mutex mu_;
  Metrics all_ DIVVY_GUARDED_BY(mu_), recent_ DIVVY_GUARDED_BY(mu_);
  absl::Status error_ DIVVY_GUARDED_BY(mu_);
};

VariableInfo InfoOf(const VariableLayout& variable) {
  return {variable.spec, variable.offsets, variable.ps};
}

// Initial values are written in blocks of this size.
constexpr int64_t kBlockBytes = 16 << 20;

}  // namespace

// ---- variables ----

// The value of an initializer that a ps cannot evaluate. It is computed here and sent block by
// block. A value that cannot be computed by rows is computed once, as a whole. The first rows of a
// table are asked for when they are written.
class DirectVariableStore::InitialValue {
 public:
  // Computes the first block, or the whole value.
  static absl::StatusOr<InitialValue> Begin(const VariableSpec& spec, uint64_t job_seed) {
    InitialValue value(spec, job_seed);
    if (value.first_rows() != nullptr) return value;
    ASSIGN_OR_RETURN(value.made_, value.Make(0, value.by_rows_ ? value.block_ : value.rows_));
    return value;
  }

  const std::string& variable() const { return spec_.name; }
  // What a ps evaluates instead.
  Initializer evaluated() const { return first_rows() != nullptr ? first_rows()->others : Zeros(); }

  // Calls `write` for each block, in order; the first error ends it.
  absl::Status ForEachBlock(const std::function<absl::Status(std::vector<StagedWrite>)>& write) {
    for (int64_t first = 0; first < rows_; first += block_) {
      const int64_t count = std::min(block_, rows_ - first);
      if (first_rows() != nullptr) {
        ASSIGN_OR_RETURN(FirstRows::Block rows, first_rows()->rows(first, count));
        RETURN_IF_ERROR(write(WritesOf(std::move(rows))));
        continue;
      }
      ASSIGN_OR_RETURN(const Tensor rows, Block(first, count));
      RETURN_IF_ERROR(write({WriteOf(rows, first, count)}));
    }
    return absl::OkStatus();
  }

 private:
  InitialValue(const VariableSpec& spec, uint64_t job_seed)
      : spec_(spec),
        job_seed_(job_seed),
        rows_(first_rows() != nullptr ? first_rows()->num_rows : spec.shape.rows()),
        by_rows_(std::holds_alternative<FromRows>(spec.initializer) && spec.shape.rank() > 0) {
    const int64_t row_bytes = std::max<int64_t>(1, RowBytes());
    block_ = std::clamp<int64_t>(kBlockBytes / row_bytes, 1, std::max<int64_t>(1, rows_));
  }
  // A table's values are float32, whatever its dtype. The key of a row travels twice, because its
  // values and its count are two writes.
  int64_t RowBytes() const {
    constexpr int64_t kKeysAndCount = 3 * sizeof(int64_t);
    const int64_t elements = spec_.shape.row_elements();
    if (first_rows() == nullptr) return elements * DTypeSize(spec_.dtype);
    return elements * DTypeSize(DType::kFloat32) + kKeysAndCount;
  }
  const FirstRows* first_rows() const {
    return spec_.table ? FirstRowsOf(spec_.initializer) : nullptr;
  }
  std::vector<StagedWrite> WritesOf(FirstRows::Block rows) const {
    std::vector<StagedWrite> writes(1);
    writes[0].variable = spec_.name;
    writes[0].value = std::move(rows.values);
    writes[0].ids = std::move(rows.keys);
    if (rows.counts) {
      writes.push_back(writes[0]);
      writes[1].value = *std::move(rows.counts);
    }
    return writes;
  }
  absl::StatusOr<Tensor> Make(int64_t first, int64_t count) const {
    return InitialRows(spec_.initializer, {job_seed_, spec_.name, spec_.shape}, spec_.dtype, first,
                       count);
  }
  absl::StatusOr<Tensor> Block(int64_t first, int64_t count) const {
    if (by_rows_) return first == 0 ? made_ : Make(first, count);
    return count == rows_ ? made_ : made_.Rows(first, first + count);
  }
  StagedWrite WriteOf(const Tensor& rows, int64_t first, int64_t count) const {
    StagedWrite write;
    write.variable = spec_.name;
    write.value = rows;
    if (count == rows_) return write;
    std::vector<int64_t> ids(static_cast<size_t>(count));
    std::iota(ids.begin(), ids.end(), first);
    write.op = WriteOp::kScatterUpdate;
    write.ids = Tensor::Vector<int64_t>(absl::MakeConstSpan(ids));
    return write;
  }

  VariableSpec spec_;
  uint64_t job_seed_;
  int64_t rows_;
  bool by_rows_;
  int64_t block_ = 1;
  Tensor made_;
};

absl::StatusOr<VariableInfo> DirectVariableStore::Find(absl::string_view name) const {
  const std::shared_ptr<const Layout> layout = core_->layout();
  const VariableLayout* variable = layout->Find(name);
  if (variable == nullptr) return layout->UnknownVariable(name);
  return InfoOf(*variable);
}

absl::StatusOr<VariableInfo> DirectVariableStore::Create(const VariableSpec& spec,
                                                         const std::optional<Colocation>& with) {
  RETURN_IF_ERROR(Validate(spec));
  if (EvaluatedPerRow(spec.initializer)) {
    RETURN_IF_ERROR(WaitFor<absl::Status>(
        [&](StatusCallback done) { core_->CreateVariable(spec, with, std::move(done)); }));
    return Find(spec.name);
  }
  if (spec.table && FirstRowsOf(spec.initializer) == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "variable \"", spec.name,
        "\": FromRows gives rows by their numbers, and the rows of a dynamic table have keys. Begin "
        "with those of a checkpoint (WarmStart), or use Constant, RandomUniform, RandomNormal or "
        "TruncatedNormal"));
  }
  // If the value cannot be computed, the error comes before anything is created.
  ASSIGN_OR_RETURN(InitialValue value, InitialValue::Begin(spec, core_->job_seed()));
  VariableSpec created = spec;
  created.initializer = value.evaluated();
  core_->ExpectValues(+1);
  absl::Status status = WaitFor<absl::Status>(
      [&](StatusCallback done) { core_->CreateVariable(created, with, std::move(done)); });
  if (status.ok() && core_->Choosing()) {
    MutexLock lock(mu_);
    waiting_.push_back(std::make_shared<InitialValue>(std::move(value)));
    return Find(spec.name);
  }
  if (status.ok() && !core_->WasRestored(spec.name)) status = Fill(value);
  core_->ExpectValues(-1);
  RETURN_IF_ERROR(status);
  return Find(spec.name);
}

absl::Status DirectVariableStore::Fill(InitialValue& value) {
  return value.ForEachBlock([&](std::vector<StagedWrite> writes) {
    return WaitFor<absl::Status>(
        [&](StatusCallback done) { core_->Write(std::move(writes), std::move(done)); });
  });
}

absl::Status DirectVariableStore::WriteInitialValues() {
  // One thread writes the values. Other threads wait for it, because no thread may use a variable
  // before its values are written.
  for (;;) {
    std::shared_ptr<InitialValue> value;
    {
      MutexLock lock(mu_);
      written_.Wait(mu_, [this]() DIVVY_REQUIRES(mu_) { return !writing_; });
      if (waiting_.empty()) return absl::OkStatus();
      value = waiting_.front();
      writing_ = true;
    }
    const absl::Status status =
        core_->WasRestored(value->variable()) ? absl::OkStatus() : Fill(*value);
    if (status.ok()) core_->ExpectValues(-1);
    MutexLock lock(mu_);
    if (status.ok()) waiting_.erase(waiting_.begin());
    writing_ = false;
    written_.NotifyAll();
    RETURN_IF_ERROR(status);
  }
}

absl::StatusOr<std::vector<Tensor>> DirectVariableStore::ReadTable(
    std::vector<VariableRead> reads) {
  RETURN_IF_ERROR(WriteInitialValues());
  RETURN_IF_ERROR(CopyToCpu(reads));
  return WaitFor<absl::StatusOr<std::vector<Tensor>>>(
      [&](ResultCallback<std::vector<Tensor>> done) {
        core_->Read(std::move(reads), std::move(done));
      });
}

absl::Status DirectVariableStore::Read(absl::Span<ReadRequest> requests) {
  std::vector<VariableRead> reads;
  for (const ReadRequest& request : requests) reads.push_back({request.name, request.ids});
  absl::StatusOr<std::vector<Tensor>> values = ReadTable(std::move(reads));
  RETURN_IF_ERROR(values.status());
  const std::shared_ptr<const Layout> layout = core_->layout();
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].value = std::move((*values)[i]);
    requests[i].num_rows = layout->Find(requests[i].name)->num_rows();
  }
  return absl::OkStatus();
}

absl::Status DirectVariableStore::Write(std::vector<StagedWrite> writes) {
  RETURN_IF_ERROR(WriteInitialValues());
  RETURN_IF_ERROR(CopyToCpu(writes));
  return WaitFor<absl::Status>(
      [&](StatusCallback done) { core_->Write(std::move(writes), std::move(done)); });
}

// ---- the coordinator ----

BlockingCoordinator::BlockingCoordinator(std::shared_ptr<CoordinatorCore> core, Executor& executor,
                                         std::shared_ptr<const ClusterResolver> resolver,
                                         int replicas, ProgressSink* sink,
                                         absl::Duration report_every,
                                         ExportVariablesFunction export_variables,
                                         const CommunicationOptions& communication)
    : core_(std::move(core)),
      sink_(sink),
      report_every_(report_every),
      export_variables_(std::move(export_variables)) {
  StrategyParts parts;
  parts.store = store_ = std::make_shared<DirectVariableStore>(core_);
  parts.executor = &executor;
  parts.resolver = std::move(resolver);
  parts.replica_devices.assign(replicas, Device{});
  parts.communication = communication;
  strategy_ = std::make_shared<Strategy>(std::move(parts));
}

absl::Status BlockingCoordinator::WaitUntilReady() {
  return WaitFor<absl::Status>([&](StatusCallback done) { core_->WhenRunning(std::move(done)); });
}

absl::StatusOr<std::shared_ptr<const internal::RemoteResult>> BlockingCoordinator::ScheduleStep(
    absl::string_view name, StepKind kind, Nest args) {
  return Queue(name, kind, std::move(args), std::nullopt);
}

absl::StatusOr<std::shared_ptr<const internal::RemoteResult>> BlockingCoordinator::ScheduleStepOnce(
    absl::string_view series, int64_t number, absl::string_view name, StepKind kind, Nest args) {
  absl::StatusOr<std::shared_ptr<const internal::RemoteResult>> queued =
      Queue(name, kind, std::move(args), StepNumber{std::string(series), number});
  // Whether the error is that of a step which failed before this call.
  const bool is_of_a_step = DetailOf(queued.status()).user;
  if (absl::IsAlreadyExists(queued.status()) && !is_of_a_step)
    return std::shared_ptr<const internal::RemoteResult>();
  return queued;
}

absl::StatusOr<std::shared_ptr<const internal::RemoteResult>> BlockingCoordinator::Queue(
    absl::string_view name, StepKind kind, Nest args, std::optional<StepNumber> once) {
  RETURN_IF_ERROR(late_error_->Take());
  RETURN_IF_ERROR(StepRegistry::Get(name).status());
  RETURN_IF_ERROR(store_->WriteInitialValues());
  ASSIGN_OR_RETURN(args, internal::MoveTo(args, Device{}));
  StepRequest request{std::string(name), std::move(args), kind == StepKind::kReadOnly,
                      std::move(once)};
  auto result = std::make_shared<ScheduledResult>();
  RETURN_IF_ERROR(WaitFor<absl::Status>([&](StatusCallback accepted) {
    core_->Schedule(std::move(request), AnswerTo(result->completion()), std::move(accepted));
  }));
  return std::shared_ptr<const internal::RemoteResult>(std::move(result));
}

void BlockingCoordinator::StepsWait::Set(const absl::Status& status) {
  MutexLock lock(mu_);
  if (status_) return;
  // Another call has returned the error that cancelled a loop's steps.
  if (given_up_ && ReasonOf(status) != Reason::kBatchCancelled) late_error_->Set(status);
  status_ = given_up_ ? absl::OkStatus() : status;
  arrived_.NotifyAll();
}

std::optional<absl::Status> BlockingCoordinator::StepsWait::Wait(absl::Duration timeout) {
  MutexLock lock(mu_);
  arrived_.WaitFor(mu_, timeout, [this]() DIVVY_REQUIRES(mu_) { return status_.has_value(); });
  given_up_ |= !status_.has_value();
  return status_;
}

bool BlockingCoordinator::StepsWait::IsAnswered(absl::Duration within) {
  MutexLock lock(mu_);
  arrived_.WaitFor(mu_, within, [this]() DIVVY_REQUIRES(mu_) { return status_.has_value(); });
  return status_.has_value();
}

std::shared_ptr<BlockingCoordinator::StepsWait> BlockingCoordinator::TakeGivenUpJoin() {
  MutexLock lock(mu_);
  while (!given_up_joins_.empty()) {
    std::shared_ptr<StepsWait> join = std::move(given_up_joins_.back());
    given_up_joins_.pop_back();
    // An answered Join is of no use here: new steps may have been scheduled since. An error of it
    // is in late_error_.
    if (!join->IsAnswered()) return join;
  }
  return nullptr;
}

absl::Status BlockingCoordinator::Join(absl::Duration timeout) {
  RETURN_IF_ERROR(late_error_->Take());
  std::shared_ptr<StepsWait> join = TakeGivenUpJoin();
  if (join == nullptr) {
    join = std::make_shared<StepsWait>(late_error_);
    core_->Join(AnswerTo(join));
  }
  if (const std::optional<absl::Status> status = join->Wait(timeout))
    return status->ok() ? late_error_->Take() : *status;
  MutexLock lock(mu_);
  given_up_joins_.push_back(std::move(join));
  return absl::DeadlineExceededError("Join: steps are still queued or running; call it again");
}

absl::StatusOr<bool> BlockingCoordinator::Done() {
  RETURN_IF_ERROR(late_error_->Take());
  return WaitFor<absl::StatusOr<bool>>(
      [&](ResultCallback<bool> done) { core_->Done(std::move(done)); });
}

absl::StatusOr<PerWorkerDataset> BlockingCoordinator::CreatePerWorkerDataset(
    const BoundDataSource& source) {
  ASSIGN_OR_RETURN(const InputOptions options, DataSourceRegistry::Options(source.name()));
  RETURN_IF_ERROR(core_->CheckArgs(source.args(), absl::StrCat("data source ", source.name())));
  const bool leased = options.policy == AutoShardPolicy::kLease;
  return PerWorkerDataset(
      source, strategy_,
      [core = core_, name = std::string(source.name()), args = source.args(), leased] {
        const ResourceId id = core->MakeIterator(name, args, leased);
        return Iterator(std::shared_ptr<const PerWorkerHandle>(
            new PerWorkerHandle{id.value()}, [core, id](const PerWorkerHandle* handle) {
              delete handle;
              core->DropIterator(id);
            }));
      });
}

absl::Status BlockingCoordinator::WaitForGivenUpLoops(absl::Duration end) {
  std::vector<std::shared_ptr<StepsWait>> loops;
  {
    MutexLock lock(mu_);
    loops = given_up_loops_;
  }
  for (const std::shared_ptr<StepsWait>& loop : loops) {
    if (!loop->Wait(internal::Left(end)))
      return absl::DeadlineExceededError(
          "steps of an earlier loop, which was interrupted by its timeout, still run: call again");
  }
  {
    MutexLock lock(mu_);
    given_up_loops_.erase(std::remove_if(given_up_loops_.begin(), given_up_loops_.end(),
                                         [](const auto& loop) { return loop->IsAnswered(); }),
                          given_up_loops_.end());
  }
  return late_error_->Take();
}

std::optional<absl::Status> BlockingCoordinator::WaitForLoop(StepsWait& wait, uint64_t token,
                                                             const std::function<bool()>& goes_on,
                                                             absl::Duration end) {
  while (goes_on && internal::Left(end) > report_every_ && !wait.IsAnswered(report_every_)) {
    if (!goes_on()) core_->StopRun(token);
  }
  return wait.Wait(internal::Left(end));
}

absl::StatusOr<Metrics> BlockingCoordinator::RunSteps(const internal::StepLoop& loop) {
  const absl::Duration end = Clock::Real().Elapsed() + loop.options.timeout;
  RETURN_IF_ERROR(late_error_->Take());
  RETURN_IF_ERROR(StepRegistry::Get(loop.step).status());
  ASSIGN_OR_RETURN(const InputOptions options, DataSourceRegistry::Options(loop.data.name()));
  RETURN_IF_ERROR(store_->WriteInitialValues());
  // This loop cannot continue the pass of an earlier loop until that loop is over.
  RETURN_IF_ERROR(WaitForGivenUpLoops(end));
  RunRequest request;
  request.step = {loop.step, Nest(loop.args), loop.kind == StepKind::kReadOnly};
  request.source = std::string(loop.data.name());
  request.source_args = loop.data.args();
  request.leased = options.policy == AutoShardPolicy::kLease;
  request.last_step = loop.last_step;
  request.token = ++last_run_;
  if (sink_ != nullptr) sink_->OnLoopBegin(*core_->layout(), loop.kind);
  auto merged = std::make_shared<LoopMetrics>();
  const auto merge = [merged, sink = sink_](const Nest& value) {
    const absl::StatusOr<Metrics> metrics = NestCodec<Metrics>::Decode(value);
    if (metrics.ok() && sink != nullptr) sink->OnStep(*metrics);
    merged->Add(metrics);
  };
  auto wait = std::make_shared<StepsWait>(late_error_);
  core_->Run(request, merge, AnswerTo(wait));
  std::function<bool()> observer;
  if (loop.options.observer) observer = [&] { return loop.options.observer(merged->TakeRecent()); };
  const std::optional<absl::Status> status = WaitForLoop(*wait, request.token, observer, end);
  if (sink_ != nullptr) sink_->OnLoopEnd();
  if (!status) {
    core_->StopRun(request.token);
    MutexLock lock(mu_);
    given_up_loops_.push_back(std::move(wait));
    return absl::DeadlineExceededError(
        absl::StrCat("the loop of ", loop.step, " over ", loop.data.name(), " is not over after ",
                     absl::FormatDuration(loop.options.timeout), "; it makes no more steps"));
  }
  RETURN_IF_ERROR(*status);
  return merged->All();
}

absl::StatusOr<int64_t> BlockingCoordinator::Restore(absl::Duration timeout) {
  const auto steps = restore_.Wait(
      timeout, [this](auto done) { core_->RestoreLatest(AnswerTo(std::move(done))); });
  if (!steps) {
    return absl::DeadlineExceededError(
        absl::StrCat("the state is not restored after ", absl::FormatDuration(timeout),
                     "; it is still being loaded: call again to wait for it"));
  }
  RETURN_IF_ERROR(steps->status());
  RETURN_IF_ERROR(store_->WriteInitialValues());
  return *steps;
}

absl::StatusOr<int64_t> BlockingCoordinator::RestoreLatest(absl::Duration timeout) {
  absl::StatusOr<int64_t> steps = Restore(timeout);
  // The program has also asked for a restore that continues after its timeout.
  if (steps.ok() || absl::IsDeadlineExceeded(steps.status())) {
    MutexLock lock(mu_);
    asked_to_restore_ = true;
  }
  return steps;
}

absl::StatusOr<int64_t> BlockingCoordinator::RestoreUnlessBegun(absl::Duration timeout) {
  {
    MutexLock lock(mu_);
    if (asked_to_restore_) return 0;
  }
  if (core_->HasStartedFresh()) return 0;
  RETURN_IF_ERROR(Restore(timeout).status());
  const CoordinatorCore::Restored restored = core_->restored();
  MutexLock lock(mu_);
  asked_to_restore_ = true;
  restored_epochs_ = restored.epochs;
  restored_steps_ = restored.steps;
  return restored.steps;
}

namespace {

int64_t TakeFrom(int64_t& left, int64_t at_most) {
  const int64_t taken = std::min(left, at_most);
  left -= taken;
  return taken;
}

}  // namespace

int64_t BlockingCoordinator::TakeRestoredEpochs(int64_t at_most) {
  MutexLock lock(mu_);
  return TakeFrom(restored_epochs_, at_most);
}

int64_t BlockingCoordinator::TakeRestoredSteps(int64_t at_most) {
  MutexLock lock(mu_);
  return TakeFrom(restored_steps_, at_most);
}

absl::StatusOr<CheckpointId> BlockingCoordinator::Save(absl::Duration timeout) {
  RETURN_IF_ERROR(store_->WriteInitialValues());
  const auto saved =
      save_.Wait(timeout, [this](auto done) { core_->SaveCheckpoint(AnswerTo(std::move(done))); });
  if (saved) return *saved;
  return absl::DeadlineExceededError(
      absl::StrCat("the checkpoint is not complete after ", absl::FormatDuration(timeout),
                   "; it is still being made: call again to wait for it"));
}

absl::StatusOr<std::string> BlockingCoordinator::SaveCheckpoint(absl::Duration timeout) {
  ASSIGN_OR_RETURN(const CheckpointId saved, Save(timeout));
  return saved.name();
}

absl::Status BlockingCoordinator::Export(absl::string_view path, const ExportOptions& options) {
  if (path.empty())
    return absl::InvalidArgumentError(
        "Export: no path; give NAME.safetensors, or a directory for TensorFlow's format");
  if (core_->checkpoints() == nullptr && export_variables_ != nullptr)
    return ExportByReading(std::string(path), options);
  const absl::Duration end = Clock::Real().Elapsed() + options.timeout;
  ASSIGN_OR_RETURN(const CheckpointId saved, Save(options.timeout));
  ExportOptions rest = options;
  rest.timeout = internal::Left(end);
  return core_->checkpoints()->Export(saved, std::string(path), rest);
}

absl::Status BlockingCoordinator::ExportByReading(const std::string& path,
                                                  const ExportOptions& options) {
  RETURN_IF_ERROR(store_->WriteInitialValues());
  const absl::Duration until = Clock::Real().Elapsed() + options.timeout;
  const std::shared_ptr<const Layout> layout = core_->layout();
  LiveVariables live{core_->job(), core_->step(), {}, {}};
  bool has_slots = false;
  for (const auto& [id, variable] : layout->variables()) {
    if (variable.spec.table)
      return absl::FailedPreconditionError(
          absl::StrCat("Export: dynamic table \"", variable.spec.name,
                       "\" is exported from a checkpoint: give every task --checkpoint_dir"));
    live.variables.push_back(variable.spec);
    has_slots |= !variable.slots.empty();
  }
  live.read = [this, until](const VariableSpec& variable, int64_t begin,
                            int64_t end) -> absl::StatusOr<Tensor> {
    // A value that is there at once would end the wait in time.
    if (internal::Left(until) <= absl::ZeroDuration())
      return absl::DeadlineExceededError("Export: its timeout passed before all values were read");
    VariableRead read{variable.name, std::nullopt};
    if (end - begin < variable.shape.rows()) {
      std::vector<int64_t> ids(static_cast<size_t>(end - begin));
      std::iota(ids.begin(), ids.end(), begin);
      read.ids = Tensor::Vector<int64_t>(absl::MakeConstSpan(ids));
    }
    ASSIGN_OR_RETURN(std::vector<Tensor> values, WaitFor<absl::StatusOr<std::vector<Tensor>>>(
                                                     [&](ResultCallback<std::vector<Tensor>> done) {
                                                       core_->Read({read}, std::move(done));
                                                     },
                                                     internal::Left(until)));
    return std::move(values[0]);
  };
  RETURN_IF_ERROR(export_variables_(live, path));
  if (options.slots && has_slots)
    DIVVY_LOG(INFO)
        << path << " has no slots of optimizers: this job keeps no checkpoints (--checkpoint_dir)";
  return absl::OkStatus();
}

absl::Status BlockingCoordinator::Report(absl::string_view run, int64_t step,
                                         const Metrics& metrics) {
  if (run.empty()) return absl::InvalidArgumentError("Report: the run has no name");
  RETURN_IF_ERROR(CheckSummaryRun(run));
  if (sink_ != nullptr) sink_->OnReport(std::string(run), step, metrics);
  return absl::OkStatus();
}

void BlockingCoordinator::SetGoal(int64_t epochs) {
  if (sink_ != nullptr) sink_->OnGoal(epochs);
}

absl::Status BlockingCoordinator::Finish(absl::Status result) {
  if (result.ok()) result = Join(absl::InfiniteDuration());
  const int exit_code = ExitCodeOf(result);
  // Workers and ps get no message; they wait for the next coordinator.
  if (exit_code >= exit_codes::kTryAgain) return result;
  if (result.ok() && sink_ != nullptr) sink_->OnEnd();
  const absl::Status ended = WaitFor<absl::Status>(
      [&](StatusCallback done) { core_->EndJob(exit_code, std::move(done)); });
  return result.ok() ? ended : result;
}

}  // namespace divvy
