// The coordinator as a program sees it: TensorFlow's ClusterCoordinator.
#ifndef DIVVY_STRATEGY_COORDINATOR_H_
#define DIVVY_STRATEGY_COORDINATOR_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
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

// Watches a loop of steps. RunEpoch and RunUntil call it on the thread that waits in them, once per
// report interval (--report_every, 5 s). `recent` holds the metrics merged since the last call; it
// is empty if no step finished in between. The steps keep running during the call.
//
// Return true to continue. Return false to end the loop early: the loop then schedules no more
// steps, waits for the steps in flight, and returns the merged metrics. It may call the observer
// until then.
using LoopObserver = std::function<bool(const Metrics& recent)>;

// How RunEpoch and RunUntil wait.
struct LoopOptions {
  // Empty: no observer.
  LoopObserver observer = {};
  // The longest wait, after the initial values of new variables have been written. Writing them has
  // no limit.
  absl::Duration timeout = absl::InfiniteDuration();
};

// The state of a scheduled step. The last three states are final.
//   kNotReady   the step waits, runs, or is run again
//   kReady      the step has finished, and its effects are applied on every parameter server that
//               it touched
//   kFailed     the step's function returned an error, or the coordinator gave the step up; none of
//               its effects are applied
//   kCancelled  another step's error cancelled the step before it had finished; none of its effects
//               are applied
enum class RemoteState : uint8_t { kNotReady, kReady, kFailed, kCancelled };

class Coordinator;

namespace internal {

class TrainerSupport;
TrainerSupport& SupportOf(Coordinator& coordinator);

// The result of a scheduled step, untyped. RemoteValue adds the type. coordinator/core implements
// it. Thread-safe.
class RemoteResult {
 public:
  virtual ~RemoteResult() = default;
  virtual RemoteState state() const = 0;
  // Blocks for at most `timeout`. Errors: RemoteValue::Fetch's.
  virtual absl::StatusOr<Nest> Fetch(absl::Duration timeout) const = 0;
};

// The arguments of RunEpoch and RunUntil, encoded.
struct StepLoop {
  std::string step;
  StepKind kind = StepKind::kTraining;
  BoundDataSource data;
  // The step's arguments after the iterator.
  Nest::List args;
  // RunUntil: repeat passes over the data until this many training steps are committed. None: one
  // pass.
  std::optional<int64_t> last_step;
  LoopOptions options = {};
};

}  // namespace internal

// The result of a scheduled step: TensorFlow's RemoteValue. The coordinator stores the result when
// the step finishes, so it stays available if the worker is lost later. A handle: copies refer to
// the same result, and dropping them cancels nothing. Thread-safe. It cannot be an argument of
// Schedule (that does not compile): fetch the value first.
template <typename T>
class RemoteValue {
 public:
  using State = RemoteState;
  explicit RemoteValue(std::shared_ptr<const internal::RemoteResult> result)
      : result_(std::move(result)) {}
  State state() const { return result_->state(); }  // does not block
  // Blocks until the step has ended, but at most for `timeout`, and returns the step's result. May
  // be called repeatedly. An error of another step is not raised here; Schedule, Join, Done and
  // Run* raise it.
  //   DeadlineExceeded  if state() is kNotReady: `timeout` has passed; call again. Otherwise the
  //   step
  //                     was given up, because it ran longer than --step_deadline
  //   Cancelled         another step's error cancelled this one; schedule it again if it is still
  //                     wanted
  //   OutOfRange        with IsEndOfData: the step reached the end of its data
  //   Unavailable       the job has ended, or the step lost too many workers (--max_step_attempts)
  //   others            the error that the step's function returned, with its own code; the message
  //                     begins with the step's name, its number and its worker
  absl::StatusOr<T> Fetch(absl::Duration timeout = absl::InfiniteDuration()) const {
    DIVVY_ASSIGN_OR_RETURN(Nest value, result_->Fetch(timeout));
    return NestCodec<T>::Decode(value);
  }

 private:
  std::shared_ptr<const internal::RemoteResult> result_;
};

// The result of a step that returns a Status: it has no value, and Fetch only says whether the step
// succeeded. Otherwise as above.
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

// A data source that each worker opens for itself: TensorFlow's per-worker dataset. A value type;
// thread-safe.
//
//   ASSIGN_OR_RETURN(PerWorkerDataset dataset,
//                    coordinator.CreatePerWorkerDataset(kClicks("day-7/part-*")));
//   const Iterator clicks = dataset.MakeIterator();
//   for (int i = 0; i < 1000; ++i)
//     RETURN_IF_ERROR(coordinator.Schedule(kTrain, clicks).status());
class PerWorkerDataset {
 public:
  // For implementers of Coordinator. REQUIRES: `make` is thread-safe and does not block.
  PerWorkerDataset(BoundDataSource source, std::shared_ptr<Strategy> strategy,
                   std::function<Iterator()> make)
      : source_(std::move(source)), strategy_(std::move(strategy)), make_(std::move(make)) {}
  // The dtype and shape of each leaf of an element, by path, as Dataset::ElementSpec: TensorFlow's
  // element_spec. An element is what one replica gets. Calls the source's function in this process,
  // as worker 0 of one; no pass begins and no worker reads. If only the data can tell, the first
  // element is read here, so the files must be readable here, too. Blocks. Errors: those of the
  // source and of Dataset::ElementSpec.
  absl::StatusOr<std::map<std::string, TensorSpec>> ElementSpec() const;
  // Begins a new pass over the data; two iterators do not share a position. Does not block: each
  // worker opens the source when the coordinator asks for it, and again when it reconnects. The
  // iterator keeps its position when a step fails and the queue is cancelled. Errors of the source,
  // such as a missing file, are returned by the steps that read it; a broken source that no step
  // reads does no harm. Under kLease a worker that reconnects resumes at the position of the pass.
  // Under the other policies it starts again at the beginning of its data.
  Iterator MakeIterator() const { return make_(); }

 private:
  BoundDataSource source_;
  std::shared_ptr<Strategy> strategy_;
  std::function<Iterator()> make_;
};

// The coordinator of a job; there is exactly one. It owns the strategy through which variables are
// created. coordinator/core implements it; the templates here only encode arguments and decode
// results. Thread-safe. Calls that block say so. Never make a blocking call from a task of the
// cluster's Executor.
//
// Order. Steps start in the order in which they were scheduled, each on a worker that has room, and
// finish in any order. If a worker is lost, its steps return to the head of the queue and other
// workers run them again; their effects count once. If there are no workers, steps wait, and the
// live line names the workers that are missing.
//
// Errors. The coordinator keeps the first error of a step; an error of a later step is reported by
// its own RemoteValue only. The workers continue until a call of Schedule, Join, Done or Run* finds
// the error; a call that is already blocked finds it at once. That call cancels the queued steps,
// waits for the running ones (which may still succeed) and returns the error. After this nothing
// runs, the coordinator can be used again, and the error is not raised a second time. The end of a
// step's data is an error only in Fetch.
//
//   Unavailable  the job has ended, and every later call returns this error; or a step was given up
//                after --max_step_attempts. Return from the program, which may be started again
//   Cancelled    the process was asked to end (--drain_timeout); return from the program
//
// After the coordinator is destroyed, calls on variables return FailedPrecondition. So does Fetch
// of a RemoteValue that was not ready.
//
//   absl::Status Train(Coordinator& coordinator) {
//     RETURN_IF_ERROR(coordinator.strategy().CreateVariable(kWeights).status());
//     RETURN_IF_ERROR(coordinator.RestoreLatest().status());
//     while (coordinator.epoch() < 10)
//       RETURN_IF_ERROR(coordinator.RunEpoch(kTrain, kClicks("day-7/part-*")).status());
//     return coordinator.RunEpoch(kEvaluate, kClicks("day-8/part-*")).status();
//   }
class Coordinator {
 public:
  virtual ~Coordinator() = default;
  // The strategy of the job's variables. It lives as long as the coordinator. Does not block.
  virtual Strategy& strategy() = 0;

  // Queues a step and returns a handle to its result. The arguments are encoded now (NestCodec) and
  // sent with the step, so pass small values and keep large ones in variables. An argument may be
  // converted to the step's type only where every value survives the conversion (int to int64_t,
  // text to std::string). A conversion that could lose a value does not compile (1.9, true or a
  // size_t for an int64_t). An Iterator argument refers to the iterator of the worker that executes
  // the step.
  //
  // Blocks while the queue is full: 262,144 steps wait, not counting those that run. If an earlier
  // step has failed, it blocks until the running steps have ended, and returns that step's error.
  // Another thread may wait in Join meanwhile.
  //
  // NotFound: the step is not registered in this process. InvalidArgument: the arguments exceed the
  // size limit of a message. Any other error is that of an earlier step, and this step was not
  // queued; schedule it again if it is still wanted.
  template <typename R, typename... Args>
  absl::StatusOr<RemoteValue<R>> Schedule(const Step<R(Args...)>& step,
                                          const internal::Parameter<Args>&... args) {
    DIVVY_ASSIGN_OR_RETURN(
        std::shared_ptr<const internal::RemoteResult> result,
        ScheduleStep(step.name(), step.kind(),
                     Nest(Nest::List{NestCodec<std::decay_t<Args>>::Encode(args)...})));
    return RemoteValue<R>(std::move(result));
  }
  // Schedule, for a program that has its own loop and must resume it exactly. Step `number` of
  // `series` counts once in the life of the job, even if the program is started again and repeats
  // its loop from the beginning. Every checkpoint contains the numbers that have finished; so does
  // the state that RestoreLatest adopts from the parameter servers. Returns nullopt if that step
  // has already finished; nothing is queued then. A step that failed or was cancelled may be
  // scheduled again.
  //
  //   for (int64_t i = 0; i < 1000; ++i)
  //     RETURN_IF_ERROR(coordinator.ScheduleOnce("chunks", i, kTrain, ChunkOf(i)).status());
  //   RETURN_IF_ERROR(coordinator.Join());
  //
  // Blocks and fails as Schedule does. Also: FailedPrecondition if that number is queued or
  // running; InvalidArgument for a read-only step, an empty series name, or a number outside [0,
  // 2^53). A step that writes to no variable leaves no trace if the coordinator is killed within a
  // second after it; that step is run again.
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
  // Blocks until no step is queued or running, including steps that other threads schedule
  // meanwhile. When it returns OK, all steps are committed. Returns at once if nothing was
  // scheduled. DeadlineExceeded: steps remain after `timeout`; nothing is cancelled, so call again.
  // Any other error is the first error of a step. A step that ran longer than --step_deadline also
  // returns DeadlineExceeded; after that error Done() is true.
  virtual absl::Status Join(absl::Duration timeout = absl::InfiniteDuration()) = 0;
  // Whether no step is queued or running. Returns without blocking, unless a step has failed: then
  // it blocks until the running steps have ended, and returns that error.
  virtual absl::StatusOr<bool> Done() = 0;

  // The loops that most programs need. They keep every worker busy, merge and report the metrics,
  // draw progress, and return the merged metrics. Both block.
  //
  // RunEpoch makes one pass over the data. RunUntil makes pass after pass until `last_step`
  // training steps are committed; it returns at once, with no metrics, if they already are.
  // RunUntil resumes where the last RunUntil over the same data stopped, unless a RunUntil over
  // other data ran in between (a RunEpoch may). The end of one worker's data is not an error here.
  //
  // NotFound: a step or a source that is not registered in this process. InvalidArgument: arguments
  // that exceed the size limit of a message; steps that use one name for two kinds of metric; or,
  // from RunUntil, data without an element. Any other error is the first error of a step.
  template <typename... Args>
  absl::StatusOr<Metrics> RunEpoch(const Step<Metrics(Iterator, Args...)>& step,
                                   const BoundDataSource& data,
                                   const internal::Parameter<Args>&... args) {
    return RunEpoch(LoopOptions(), step, data, args...);
  }
  // As described above. Also InvalidArgument: a read-only step, because RunUntil counts training
  // steps.
  template <typename... Args>
  absl::StatusOr<Metrics> RunUntil(int64_t last_step, const Step<Metrics(Iterator, Args...)>& step,
                                   const BoundDataSource& data,
                                   const internal::Parameter<Args>&... args) {
    return RunUntil(LoopOptions(), last_step, step, data, args...);
  }
  // The same loops with an observer and a timeout. A RunEpoch that its observer ended early does
  // not count as an epoch.
  //
  //   coordinator.RunEpoch({/*observer=*/{}, /*timeout=*/absl::Minutes(5)}, kTrain, kClicks(day));
  //
  // The call first writes the initial values of variables that were just created, and then blocks
  // for at most `options.timeout`. DeadlineExceeded: the loop is not over. It starts no more steps,
  // its metrics are lost, and it does not count as an epoch. Its running steps continue. Those that
  // succeed are committed and count in step(). Join waits for them. The next loop also waits for
  // them before it begins, within its own timeout. The next call of Schedule, Join, Done or Run*
  // returns an error of such a step.
  // After a timeout, RunEpoch begins its pass again from the beginning, and RunUntil continues
  // where the loop was interrupted.
  template <typename... Args>
  absl::StatusOr<Metrics> RunEpoch(LoopOptions options,
                                   const Step<Metrics(Iterator, Args...)>& step,
                                   const BoundDataSource& data,
                                   const internal::Parameter<Args>&... args) {
    return RunSteps({std::string(step.name()),
                     step.kind(),
                     data,
                     {NestCodec<std::decay_t<Args>>::Encode(args)...},
                     std::nullopt,
                     std::move(options)});
  }
  template <typename... Args>
  absl::StatusOr<Metrics> RunUntil(LoopOptions options, int64_t last_step,
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
                     std::move(options)});
  }
  // Completed RunEpoch calls of training steps. Start a loop at this number, not at 0: a program
  // may run more than once in the life of its job. Does not block.
  virtual int64_t epoch() const = 0;
  // Training steps committed; running steps do not count. Does not block.
  virtual int64_t step() const = 0;

  // Resumes the job from the newest saved state. Call it after creating the variables and before
  // any of them is used. Nothing is restored unless the program calls this. Blocks for at most
  // `timeout`, and then writes the initial values of variables that the state lacks.
  //
  // The state comes from the parameter servers if an earlier coordinator was killed, left a
  // complete state there, and --state_dir was kept. Otherwise it comes from the newest intact
  // checkpoint in --checkpoint_dir, whatever number of parameter servers and shards that checkpoint
  // was made with. Returns the number of training steps in the state, or 0 if there is none;
  // epoch() and step() count from there.
  //
  // Variables that the state lacks begin with their initial values. A variable that is created
  // after this call also takes its value from the restored state, if it is there; so a program may
  // create variables that program_state() names.
  //
  // FailedPrecondition: the state has a variable with another dtype or shape (the message names it,
  // and nothing is restored); or it has none of the created variables, so it belongs to another
  // model; or a variable has already been used. The log lists variables that are only in the state
  // and variables that are only in the program. DataLoss: there are checkpoints, but all of them
  // are damaged. DeadlineExceeded: the state is not loaded yet. It is still being loaded, and every
  // use of a variable waits for it. Call again to wait for it and to learn whether it fits.
  // Unavailable, Cancelled: as for Schedule; return from the program.
  virtual absl::StatusOr<int64_t> RestoreLatest(
      absl::Duration timeout = absl::InfiniteDuration()) = 0;
  // Sets bytes of the program's own, which every later checkpoint contains. They are also written
  // to --state_dir before another step begins. That write takes about 0.2 ms, so call this once per
  // round or epoch, not per step. program_state() returns the bytes that were set last. After
  // RestoreLatest these are the bytes that belong to the restored state.
  virtual void SetProgramState(std::string bytes) = 0;
  virtual std::string program_state() const = 0;
  // The training steps that the newest checkpoint covers; 0 if there is none. They survive the loss
  // of every process. Does not block.
  virtual int64_t durable_steps() const = 0;
  // Makes a checkpoint: one consistent cut over all parameter servers, at some moment between call
  // and return. Training continues meanwhile. Returns the checkpoint's name in --checkpoint_dir.
  // The coordinator also makes checkpoints by itself, every --checkpoint_every and at the end of
  // the program. First writes the initial values of variables that were just created, for as long
  // as that takes; then blocks for at most `timeout`. DeadlineExceeded: the checkpoint is not
  // complete yet. It is still being made, and a call before it is complete waits for it instead of
  // making another.
  // FailedPrecondition: no --checkpoint_dir. ResourceExhausted: a disk is full or broken; older
  // checkpoints remain.
  virtual absl::StatusOr<std::string> SaveCheckpoint(
      absl::Duration timeout = absl::InfiniteDuration()) = 0;
  // Writes the variables and their optimizer slots for use by other programs, without Divvy's own
  // bookkeeping. Blocks for at most `options.timeout`, as SaveCheckpoint does; training continues.
  //
  // The values come from a checkpoint that this call makes. A job without --checkpoint_dir reads
  // the variables directly instead. Then slots are left out, which the log says, and if steps are
  // running, each block of rows is from a different moment (Join first).
  //
  // `path` is on this process' machine; missing directories are created. Its form selects the
  // format:
  //   NAME.safetensors   for PyTorch, NumPy and JAX. Above 5 GiB the data is split into
  //                      NAME-00001-of-0000N.safetensors and so on, with an index in
  //                      NAME.safetensors.index.json
  //   otherwise          a directory with a TensorFlow bundle, which
  //                      tf.train.load_checkpoint(path) finds
  //
  // A program that runs again may export to the same path again: a file is replaced as a whole, and
  // readers of a directory find its newest bundle. A tensor whose dtype the format lacks
  // (safetensors: complex128) is left out, which the log says.
  //
  //   FailedPrecondition  an evaluator's coordinator, which makes no checkpoint
  //   InvalidArgument     no path, or a variable's name is not allowed in the format
  //   AlreadyExists       `path` is the --checkpoint_dir itself
  //   ResourceExhausted   a disk is full or broken
  //   DataLoss            the checkpoint was damaged right after it was written
  //   DeadlineExceeded    not complete within `options.timeout`. What existed under the name
  //                       remains. The checkpoint is still being made. If the program calls again
  //                       before it is complete, the call waits for it
  //   others              the file system's, with the file's name. What existed under the name
  //                       remains; export again when the cause is fixed
  virtual absl::Status Export(absl::string_view path, const ExportOptions& options) = 0;
  absl::Status Export(absl::string_view path) { return Export(path, ExportOptions()); }

  // Binds a data source to the workers. Does not block, since nothing is opened yet. NotFound: the
  // source is not registered in this process. InvalidArgument: the arguments exceed the size limit
  // of a message. Errors of the source itself are returned by the steps that read it.
  virtual absl::StatusOr<PerWorkerDataset> CreatePerWorkerDataset(
      const BoundDataSource& source) = 0;
  // Multiplies every optimizer's learning rate by `scale`, for steps that start after this call.
  // The factor is 1 whenever the program starts. A step that is run again keeps its earlier factor.
  // Does not block. A value that is not finite is ignored: the old factor remains, and the next
  // call of Schedule, Join, Done or Run* returns InvalidArgument, as it would for a failed step.
  virtual void SetLearningRateScale(double scale) = 0;
  // Adds figures that no step returned, such as the program's own evaluation, to the log and to
  // TensorBoard's sub-run `run` at `step`. Does not block. InvalidArgument: `run` is empty or not
  // allowed as a TensorBoard run name.
  virtual absl::Status Report(absl::string_view run, int64_t step, const Metrics& metrics) = 0;

 protected:
  // The untyped Schedule. `args` is a list. Handles of iterators in `args` must stay open until the
  // step has ended.
  virtual absl::StatusOr<std::shared_ptr<const internal::RemoteResult>> ScheduleStep(
      absl::string_view name, StepKind kind, Nest args) = 0;
  // The untyped ScheduleOnce. Null: that step has already finished.
  virtual absl::StatusOr<std::shared_ptr<const internal::RemoteResult>> ScheduleStepOnce(
      absl::string_view series, int64_t number, absl::string_view name, StepKind kind,
      Nest args) = 0;
  // The untyped RunEpoch and RunUntil. The step receives the iterator, then the loop's args, and
  // returns Metrics (NestCodec).
  virtual absl::StatusOr<Metrics> RunSteps(const internal::StepLoop& loop) = 0;
  // For Trainer and its callbacks: strategy/trainer_support.h.
  virtual internal::TrainerSupport& trainer_support() = 0;
  friend internal::TrainerSupport& internal::SupportOf(Coordinator& coordinator);
};

namespace internal {
// The time until `end` on the real clock's Elapsed(); never negative.
inline absl::Duration Left(absl::Duration end) {
  return std::max(absl::ZeroDuration(), end - Clock::Real().Elapsed());
}
}  // namespace internal

// The result of FetchAll: the values, or a Status for steps that return no value.
template <typename T>
using AllFetched =
    std::conditional_t<std::is_void_v<T>, absl::Status, absl::StatusOr<std::vector<T>>>;

// Fetches all values, in order, and stops at the first error. Blocks for at most `timeout` in
// total. Errors: RemoteValue::Fetch's.
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
