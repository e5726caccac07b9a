#include "worker/core/testing/scripted_step_runner.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "protocol/error.h"

namespace divvy {
namespace {

// One run of a script. It keeps itself alive through the tasks that it posts.
class Play : public std::enable_shared_from_this<Play> {
 public:
  Play(Executor& executor, std::vector<script::Move> moves,
       std::shared_ptr<StepTransaction> transaction, std::function<void(StepEnd)> done)
      : executor_(executor),
        moves_(std::move(moves)),
        transaction_(std::move(transaction)),
        done_(std::move(done)) {}

  void Continue(absl::Duration wait = absl::ZeroDuration()) {
    const auto step = [self = shared_from_this()] { self->PlayNext(); };
    if (wait > absl::ZeroDuration()) {
      executor_.PostAfter(wait, step);
    } else {
      executor_.Post(step);
    }
  }

 private:
  void PlayNext() {
    if (transaction_->cancelled() && !ignores_cancel_)
      return End(absl::CancelledError("the scripted step was cancelled"));
    if (next_ == moves_.size()) return End(Nest());
    std::visit([this](const auto& move) { Do(move); }, moves_[next_++]);
  }

  // Continues after a move that gave `status`. An error ends the step, except a cancel that the
  // script ignores.
  void After(const absl::Status& status) {
    if (status.ok() || (ignores_cancel_ && absl::IsCancelled(status))) return Continue();
    End(status);
  }

  void Do(const script::Read& move) {
    transaction_->Pull(move.reads,
                       [self = shared_from_this()](absl::StatusOr<std::vector<Tensor>> values) {
                         if (values.ok()) self->reads_.push_back(*std::move(values));
                         self->After(values.status());
                       });
  }
  void Do(const script::Stage& move) { After(transaction_->Stage({move.write})); }
  void Do(const script::Compute& move) {
    absl::StatusOr<std::vector<StagedWrite>> writes = move.writes(reads_);
    After(writes.ok() ? transaction_->Stage(*std::move(writes)) : writes.status());
  }
  void Do(const script::Take& move) { Continue(move.time); }
  void Do(const script::Until& move) {
    if (move.ready()) return Continue();
    --next_;  // repeat this move
    Continue(absl::Milliseconds(1));
  }
  void Do(const script::Fail& move) { End(move.error); }
  void Do(const script::LoseInput&) {
    End(MakeError(Reason::kInputAborted, "the scripted input is gone"));
  }
  void Do(const script::RunOut&) { End(EndOfData("the scripted data has ended")); }
  void Do(const script::Ended& move) {
    ended_.push_back(move.input);
    Continue();
  }
  void Do(const script::IgnoreCancel&) {
    ignores_cancel_ = true;
    Continue();
  }
  void Do(const script::Return& move) { End(move.value(reads_)); }

  void End(absl::StatusOr<Nest> result) {
    const auto done = std::exchange(done_, nullptr);
    done({std::move(result), std::move(ended_)});
  }

  Executor& executor_;
  const std::vector<script::Move> moves_;
  const std::shared_ptr<StepTransaction> transaction_;
  std::function<void(StepEnd)> done_;
  script::Reads reads_;
  std::vector<EndedInput> ended_;
  size_t next_ = 0;
  bool ignores_cancel_ = false;
};

}  // namespace

ScriptedStepRunner::ScriptedStepRunner(Executor& executor) : executor_(executor) {}

void ScriptedStepRunner::Define(std::string function, Script script) {
  MutexLock lock(mu_);
  scripts_[std::move(function)] = std::move(script);
}

void ScriptedStepRunner::Start(StepCall call, std::shared_ptr<StepTransaction> transaction,
                               std::function<void(StepEnd)> done) {
  Script script;
  {
    MutexLock lock(mu_);
    ++started_;
    const auto found = scripts_.find(call.function);
    if (found != scripts_.end()) script = found->second;
  }
  std::vector<script::Move> moves = {script::Fail{
      absl::NotFoundError(absl::StrCat("no step function \"", call.function, "\" is defined"))}};
  if (script) moves = script(call);
  std::make_shared<Play>(executor_, std::move(moves), std::move(transaction), std::move(done))
      ->Continue();
}

void ScriptedStepRunner::CopyAhead(const std::string& function,
                                   const std::vector<WholeValue>& values) {
  const auto name = [](std::string* out, const WholeValue& whole) { *out += whole.variable; };
  MutexLock lock(mu_);
  copied_ahead_.push_back(absl::StrCat(function, ": ", absl::StrJoin(values, ", ", name)));
}

std::vector<std::string> ScriptedStepRunner::copied_ahead() const {
  MutexLock lock(mu_);
  return copied_ahead_;
}

int64_t ScriptedStepRunner::started() const {
  MutexLock lock(mu_);
  return started_;
}

ScriptedInputOpener::ScriptedInputOpener(Executor& executor) : executor_(executor) {}

void ScriptedInputOpener::Define(std::string name, Source source) {
  MutexLock lock(mu_);
  sources_[std::move(name)] = std::move(source);
}

void ScriptedInputOpener::Open(const MakeResource& resource, int worker_index, int num_workers, int,
                               ResultCallback<OpenedInput> done) {
  Source source{
      std::nullopt,
      absl::NotFoundError(absl::StrCat("no data source \"", resource.source, "\" is defined")),
      absl::ZeroDuration()};
  {
    MutexLock lock(mu_);
    const auto found = sources_.find(resource.source);
    if (found != sources_.end()) source = found->second;
    open_[resource.iterator] = resource;
    if (source.is_cut)
      shares_[resource.iterator] = {worker_index, source.elements.value_or(0), num_workers};
    if (source.is_cut && worker_index >= num_workers) {
      source.error = absl::FailedPreconditionError(absl::StrCat(
          "the data was cut for ", num_workers, " workers, and this is worker ", worker_index));
    }
  }
  executor_.PostAfter(source.time, [source, done = std::move(done)] {
    if (source.error.ok()) return done(OpenedInput{source.elements, source.first});
    done(source.error);
  });
}

void ScriptedInputOpener::Close(ResourceId iterator) {
  MutexLock lock(mu_);
  open_.erase(iterator);
  shares_.erase(iterator);
}

void ScriptedInputOpener::ReadAhead(const InputLease& positions) {
  MutexLock lock(mu_);
  ahead_.insert(positions.first);
}

void ScriptedInputOpener::ForgetAhead(const InputLease& positions) {
  MutexLock lock(mu_);
  ahead_.erase(positions.first);
}

std::optional<int64_t> ScriptedInputOpener::Next(ResourceId iterator) {
  MutexLock lock(mu_);
  const auto share = shares_.find(iterator);
  if (share == shares_.end() || share->second.next >= share->second.end) return std::nullopt;
  return std::exchange(share->second.next, share->second.next + share->second.step);
}

std::vector<int64_t> ScriptedInputOpener::ahead() const {
  MutexLock lock(mu_);
  return {ahead_.begin(), ahead_.end()};
}

std::map<ResourceId, MakeResource> ScriptedInputOpener::open() const {
  MutexLock lock(mu_);
  return open_;
}

}  // namespace divvy
