// The coordinator, as a program sees it: TensorFlow's ClusterCoordinator.
#ifndef DIVVY_STRATEGY_COORDINATOR_H_
#define DIVVY_STRATEGY_COORDINATOR_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "data/dataset.h"
#include "strategy/export_options.h"
#include "strategy/metrics.h"
#include "strategy/step.h"
#include "strategy/strategy.h"
#include "tensor/argument.h"
#include "tensor/nest.h"

namespace divvy {

// Looks at a loop of steps while it runs: called on the thread that waits in RunEpoch or RunUntil,
// each report interval (--report_every, 5 s), with what was merged since the last call (empty: no
// step finished). False: the loop makes no more steps and returns what was merged when those in
// flight have ended; it is asked again until then. The steps go on while it is called.
using LoopObserver = std::function<bool(const Metrics& recent)>;

// What has become of a scheduled step.
//   kNotReady   it waits, runs, or is run again
//   kReady      it has finished, and its effects are applied on every parameter server it touched
//   kFailed     its function returned an error, or it was given up; nothing of it is applied
//   kCancelled  another step's error ended the batch of work before it had finished; nothing of it
//   is applied
// The last three are final.
enum class RemoteState : uint8_t { kNotReady, kReady, kFailed, kCancelled };

class Coordinator;

namespace internal {

class TrainerSupport;
TrainerSupport& SupportOf(Coordinator& coordinator);

// A scheduled step's result, before its type is known. Implemented by coordinator/core;
// thread-safe.
class RemoteResult {
 public:
  virtual ~RemoteResult() = default;
  virtual RemoteState state() const = 0;
  virtual absl::StatusOr<Nest> Fetch(absl::Duration timeout) const = 0;  // as RemoteValue::Fetch
};

// A loop of steps over a dataset, as RunEpoch and RunUntil ask for it.
struct StepLoop {
  std::string step;
  StepKind kind = StepKind::kTraining;
  BoundDataSource data;
  // Those after the iterator.
  Nest::List args;
  // RunUntil: passes begin anew until so many training steps are committed. None: one pass
  std::optional<int64_t> last_step;
  // None: nobody looks.
  LoopObserver observer = {};
};

}  // namespace internal

// The result of a scheduled step: TensorFlow's RemoteValue. The coordinator holds it as soon as it
// exists, so it is there whatever becomes of the worker. A handle: copies are the same result;
// dropping them cancels nothing. Thread-safe. Not an argument of Schedule (it does not compile):
// fetch first.
template <typename T>
class RemoteValue {
 public:
  using State = RemoteState;
  explicit RemoteValue(std::shared_ptr<const internal::RemoteResult> result)
      : result_(std::move(result)) {}
  State state() const { return result_->state(); }  // does not block
  // Blocks until the step has ended, for at most `timeout`, and gives what it returned; as often as
  // it is called. Another step's error is not this one's, and is not raised here (Schedule, Join,
  // Done and Run* do that). DeadlineExceeded: not ready within `timeout`; call again. Cancelled:
  // another step's error ended the batch of work; schedule the step again if it is still wanted.
  // OutOfRange with IsEndOfData: the step has met the end of its data. Unavailable with a reason:
  // the job has ended. Else the error that the step's function returned, whatever its code, with
  // the step, its number and its worker in front.
  absl::StatusOr<T> Fetch(absl::Duration timeout = absl::InfiniteDuration()) const {
    DIVVY_ASSIGN_OR_RETURN(Nest value, result_->Fetch(timeout));
    return NestCodec<T>::Decode(value);
  }

 private:
  std::shared_ptr<const internal::RemoteResult> result_;
};

// Of a step that returns a Status: there is nothing to fetch but whether it has succeeded.
template <>
class RemoteValue<void> {
 public:
  using State = RemoteState;
  explicit RemoteValue(std::shared_ptr<const internal::RemoteResult> result)
      : result_(std::move(result)) {}
  State state() const { return result_->state(); }
  absl::Status Fetch(absl::Duration timeout = absl::InfiniteDuration()) const {
    return result_->Fetch(timeout).status();
  }

 private:
  std::shared_ptr<const internal::RemoteResult> result_;
};

// A data source bound to the workers: each opens it for itself. TensorFlow's per-worker dataset. A
// value; thread-safe.
//
//   ASSIGN_OR_RETURN(PerWorkerDataset dataset,
//   coordinator.CreatePerWorkerDataset(kClicks("day-7/part-*"))); const Iterator clicks =
//   dataset.MakeIterator(); for (int i = 0; i < 1000; ++i)
//   RETURN_IF_ERROR(coordinator.Schedule(kTrain, clicks).status());
class PerWorkerDataset {
 public:
  // For implementers of Coordinator. REQUIRES: `make` is thread-safe and does not block.
  explicit PerWorkerDataset(std::function<Iterator()> make) : make_(std::move(make)) {}
  // A pass of its own, from the beginning: two iterators do not share a position. Does not block:
  // the workers open it when they are told to, and again when they come back. It keeps its place
  // when a step fails and the queue is cancelled. Errors of the source (a missing file) appear in
  // the steps that use it; one that no step uses does no harm. Under kLease a worker that comes
  // back goes on where the pass is, else from the beginning of its data.
  Iterator MakeIterator() const { return make_(); }

 private:
  std::function<Iterator()> make_;
};

// The one coordinator of a job, with the strategy of its variables. Implemented by
// coordinator/core: the templates here only encode and decode. Thread-safe; blocking calls say so;
// none of those may be made from a task of the cluster's Executor.
//
// Steps start in the order scheduled, each on a worker that has room, and finish in any order. A
// step whose worker is lost is run again by another, first of all that wait; its effects count
// once. With no worker at all they wait: the live line says for whom.
//
// Errors. The first error of a step is kept; later ones are told by their own RemoteValue alone.
// The workers go on until the program asks: the next Schedule, Join, Done or Run* (or one that
// waits already) cancels what is queued, waits for what runs (which may still succeed) and returns
// that error. Then nothing runs, the coordinator is usable again, and the error is not raised
// twice. The end of a step's data is no error here. Unavailable that names a parameter server is
// the end of the job: every later call returns it; end the program, which may be started again.
// Cancelled: the process was asked to end (--drain_timeout); return from the program. Once it is
// gone, variables and RemoteValues that were not ready answer FailedPrecondition.
//
//   absl::Status Train(Coordinator& coordinator) {
//     RETURN_IF_ERROR(coordinator.strategy().CreateVariable(kWeights).status());
//     RETURN_IF_ERROR(coordinator.RestoreLatest().status());
//     while (coordinator.epoch() < 10) RETURN_IF_ERROR(coordinator.RunEpoch(kTrain,
//     kClicks("day-7/part-*")).status()); return coordinator.RunEpoch(kEvaluate,
//     kClicks("day-8/part-*")).status();
//   }
class Coordinator {
 public:
  virtual ~Coordinator() = default;
  virtual Strategy& strategy() = 0;

  // Queues a step and returns a handle on its result. The arguments are encoded now (NestCodec) and
  // travel with it: give what is small, and keep values in variables. They convert to the step's
  // types where every value is kept (int to int64_t, text to std::string); one that might be cut
  // does not compile (1.9, true or a size_t for an int64_t). An Iterator is the executing
  // worker's own. Blocks only while the queue is full (262,144 steps wait; those that run do not
  // count), never for a Join of another thread.
  // NotFound: a step that is not registered in this process. InvalidArgument: arguments larger than
  // a message may be. Else the error of an earlier step: then this one was not queued; schedule it
  // again if it is still wanted.
  template <typename R, typename... Args>
  absl::StatusOr<RemoteValue<R>> Schedule(const Step<R(Args...)>& step,
                                          const internal::Parameter<Args>&... args) {
    DIVVY_ASSIGN_OR_RETURN(
        std::shared_ptr<const internal::RemoteResult> result,
        ScheduleStep(step.name(), step.kind(),
                     Nest(Nest::List{NestCodec<std::decay_t<Args>>::Encode(args)...})));
    return RemoteValue<R>(std::move(result));
  }
  // Schedule for a loop of the program's own that goes on exactly where it was: step `number` of
  // `series` counts once in the life of the job, however often the program runs again from its
  // beginning. Which numbers have finished is in every checkpoint, and in what RestoreLatest
  // adopts. Nullopt: it has finished before, and nothing is queued. One that failed or was
  // cancelled may be scheduled again.
  //
  //   for (int64_t i = 0; i < 1000; ++i) RETURN_IF_ERROR(coordinator.ScheduleOnce("chunks", i,
  //   kTrain, ChunkOf(i)).status()); RETURN_IF_ERROR(coordinator.Join());
  //
  // As Schedule. FailedPrecondition: the number is queued or runs. InvalidArgument: a read-only
  // step, no name, or a number that is not in [0, 2^53). A step that writes to no variable leaves
  // no trace where a coordinator is killed within a second after it, and is run again.
  template <typename R, typename... Args>
  absl::StatusOr<std::optional<RemoteValue<R>>> ScheduleOnce(
      absl::string_view series, int64_t number, const Step<R(Args...)>& step,
      const internal::Parameter<Args>&... args) {
    DIVVY_ASSIGN_OR_RETURN(
        std::shared_ptr<const internal::RemoteResult> result,
        ScheduleStepOnce(series, number, step.name(), step.kind(),
                         Nest(Nest::List{NestCodec<std::decay_t<Args>>::Encode(args)...})));
    if (result == nullptr) return std::optional<RemoteValue<R>>();
    return std::optional<RemoteValue<R>>(RemoteValue<R>(std::move(result)));
  }
  // Blocks until nothing is queued and nothing runs, those scheduled meanwhile by other threads
  // included: then all are committed. At once where nothing was scheduled. DeadlineExceeded: not
  // within `timeout`; nothing is cancelled, call again. Else the first error of a step.
  virtual absl::Status Join(absl::Duration timeout = absl::InfiniteDuration()) = 0;
  // Whether nothing is queued and nothing runs. Blocks only where it returns an error, until what
  // runs has ended.
  virtual absl::StatusOr<bool> Done() = 0;

  // The loops most programs want: keep every worker busy, merge and report the metrics, draw
  // progress; return what was merged. Block. RunEpoch is one pass over the data, RunUntil goes on,
  // pass after pass, until `last_step` training steps are committed (at once, with no metrics,
  // where they are already); it begins where the last RunUntil over the same data stopped, if none
  // over other data came between (a RunEpoch may). The end of one worker's data is no error here.
  // NotFound: a step or a source that is not registered in this process. InvalidArgument: arguments
  // larger than a message may be, steps that give two kinds of metric one name, or (RunUntil) data
  // without an element. Else the first error of a step.
  template <typename... Args>
  absl::StatusOr<Metrics> RunEpoch(const Step<Metrics(Iterator, Args...)>& step,
                                   const BoundDataSource& data,
                                   const internal::Parameter<Args>&... args) {
    return RunEpoch(LoopObserver(), step, data, args...);
  }
  // InvalidArgument: a read-only step, which has no number to reach.
  template <typename... Args>
  absl::StatusOr<Metrics> RunUntil(int64_t last_step, const Step<Metrics(Iterator, Args...)>& step,
                                   const BoundDataSource& data,
                                   const internal::Parameter<Args>&... args) {
    return RunUntil(LoopObserver(), last_step, step, data, args...);
  }
  // The same with somebody who looks on. A RunEpoch that was ended early does not count as an
  // epoch.
  template <typename... Args>
  absl::StatusOr<Metrics> RunEpoch(LoopObserver observer,
                                   const Step<Metrics(Iterator, Args...)>& step,
                                   const BoundDataSource& data,
                                   const internal::Parameter<Args>&... args) {
    return RunSteps({std::string(step.name()),
                     step.kind(),
                     data,
                     {NestCodec<std::decay_t<Args>>::Encode(args)...},
                     std::nullopt,
                     std::move(observer)});
  }
  template <typename... Args>
  absl::StatusOr<Metrics> RunUntil(LoopObserver observer, int64_t last_step,
                                   const Step<Metrics(Iterator, Args...)>& step,
                                   const BoundDataSource& data,
                                   const internal::Parameter<Args>&... args) {
    if (step.kind() == StepKind::kReadOnly)
      return absl::InvalidArgumentError(
          "RunUntil counts training steps; use RunEpoch for a read-only step");
    return RunSteps({std::string(step.name()),
                     step.kind(),
                     data,
                     {NestCodec<std::decay_t<Args>>::Encode(args)...},
                     last_step,
                     std::move(observer)});
  }
  // RunEpochs of training steps completed. Count from this, never from 0: a program may run more
  // than once in its job's life.
  virtual int64_t epoch() const = 0;
  // Training steps committed. Those that still run are not among them.
  virtual int64_t step() const = 0;

  // To be called after the variables are created, and before they are read, written or used by a
  // step. (One that is created later begins with its value in what was restored, too, where that
  // has it: a program may create what program_state() names.) Goes on with what the parameter
  // servers hold, where a coordinator that was killed left a whole state there and --state_dir was
  // kept; else with the newest checkpoint of --checkpoint_dir that is whole, whatever its number of
  // parameter servers and their cuts. Returns the training steps in it: epoch() and step() count
  // from there. 0: there was neither. Variables that it does not have begin with their initial
  // values; nothing is restored unasked. Blocks.
  // FailedPrecondition: a variable is of another dtype or shape there (named; nothing has been
  // restored), or none of those created is there at all, which is another model's checkpoint; or
  // one has been used. What is there and was not created, and the other way round, stands in the
  // log. DataLoss: there are checkpoints, and all are damaged.
  virtual absl::StatusOr<int64_t> RestoreLatest() = 0;
  // Bytes of the program's own that every checkpoint from now on holds, and --state_dir before
  // another step begins: that takes some 0.2 ms, so give them once for each round or epoch. After
  // RestoreLatest: those that were given last, before the state that it went on with.
  virtual void SetProgramState(std::string bytes) = 0;
  virtual std::string program_state() const = 0;
  // Training steps that a checkpoint covers: what survives the loss of every process.
  virtual int64_t durable_steps() const = 0;
  // Makes a checkpoint: one cut over all servers, at some moment between call and return; training
  // goes on. Returns its name, under which it stands in --checkpoint_dir. Blocks. (One is also made
  // every --checkpoint_every, and at the end of the program.) FailedPrecondition: no
  // --checkpoint_dir. ResourceExhausted: a disk is full or broken; older checkpoints stand.
  virtual absl::StatusOr<std::string> SaveCheckpoint() = 0;
  // Makes a checkpoint, and of it, for other programs, the variables and the slots of their
  // optimizers, without what Divvy keeps for itself. In a job without --checkpoint_dir it reads the
  // variables instead: without slots, which a word in the log says, and while steps run each block
  // of rows is of another moment (Join first). `path` is on this
  // process' machine; directories are made. "NAME.safetensors": for PyTorch, NumPy, JAX; where it
  // were larger than 5 GiB, NAME-00001-of-0000N.safetensors and the rest, with
  // NAME.safetensors.index.json. Else a directory: a bundle for TensorFlow
  // (tf.train.load_checkpoint(path) finds it). A program that runs again may export again: a file
  // is replaced as a whole, and a directory's newest bundle is the one that is found. Blocks;
  // training goes on.
  //   FailedPrecondition  an evaluator's coordinator, which makes no checkpoint
  //   InvalidArgument     no path, or a variable whose name the format cannot have
  //   AlreadyExists       `path` is the --checkpoint_dir itself
  //   ResourceExhausted   a disk is full or broken
  //   DataLoss            the checkpoint was damaged as soon as it was written
  //   others              the file system's, with the file's name. What stood under the name
  //                       stands, and export again when the cause is mended
  // A tensor that the format lacks the type of (safetensors: complex128) is left out, with a word
  // in the log.
  virtual absl::Status Export(absl::string_view path, const ExportOptions& options) = 0;
  absl::Status Export(absl::string_view path) { return Export(path, ExportOptions()); }

  // Does not block: nothing is opened yet. NotFound: a source that is not registered in this
  // process. InvalidArgument: arguments larger than a message may be. Errors of the source appear
  // in the steps that use it.
  virtual absl::StatusOr<PerWorkerDataset> CreatePerWorkerDataset(
      const BoundDataSource& source) = 0;
  // A factor of every optimizer's learning rate, for the steps that start from now on; 1 at the
  // beginning of each life of the program. A step that is run again keeps the one it had. Does not
  // block. Not finite: the one before stays, and the next call raises InvalidArgument, as for a
  // step that failed.
  virtual void SetLearningRateScale(double scale) = 0;
  // A line for the sub-run `run`, at this step: figures that no step returned (a test by hand).
  // Does not block. InvalidArgument: no name, or one that no run of TensorBoard can have.
  virtual absl::Status Report(absl::string_view run, int64_t step, const Metrics& metrics) = 0;

 protected:
  // `args` is a list. As Schedule. Handles of iterators among `args` must stay open until the step
  // has ended.
  virtual absl::StatusOr<std::shared_ptr<const internal::RemoteResult>> ScheduleStep(
      absl::string_view name, StepKind kind, Nest args) = 0;
  // Null: the number has finished before.
  virtual absl::StatusOr<std::shared_ptr<const internal::RemoteResult>> ScheduleStepOnce(
      absl::string_view series, int64_t number, absl::string_view name, StepKind kind,
      Nest args) = 0;
  // The step is given the iterator, then the loop's args, and returns Metrics (NestCodec). As
  // RunEpoch and RunUntil.
  virtual absl::StatusOr<Metrics> RunSteps(const internal::StepLoop& loop) = 0;
  // For Trainer and its callbacks: strategy/trainer_support.h.
  virtual internal::TrainerSupport& trainer_support() = 0;
  friend internal::TrainerSupport& internal::SupportOf(Coordinator& coordinator);
};

namespace internal {
// What is left of a call's time.
inline absl::Duration Left(absl::Duration end) {
  return std::max(absl::ZeroDuration(), end - Clock::Real().Elapsed());
}
}  // namespace internal

// What FetchAll gives: the values, or for steps that return nothing a Status.
template <typename T>
using AllFetched =
    std::conditional_t<std::is_void_v<T>, absl::Status, absl::StatusOr<std::vector<T>>>;

// The values, in order; the first error ends it. Blocks for at most `timeout`, all of them
// together. Errors: RemoteValue::Fetch.
template <typename T>
AllFetched<T> FetchAll(absl::Span<const RemoteValue<T>> values,
                       absl::Duration timeout = absl::InfiniteDuration()) {
  const absl::Duration end = Clock::Real().Elapsed() + timeout;
  if constexpr (std::is_void_v<T>) {
    for (const RemoteValue<T>& value : values)
      DIVVY_RETURN_IF_ERROR(value.Fetch(internal::Left(end)));
    return absl::OkStatus();
  } else {
    std::vector<T> fetched;
    for (const RemoteValue<T>& value : values) {
      DIVVY_ASSIGN_OR_RETURN(T one, value.Fetch(internal::Left(end)));
      fetched.push_back(std::move(one));
    }
    return fetched;
  }
}

}  // namespace divvy

#endif  // DIVVY_STRATEGY_COORDINATOR_H_
