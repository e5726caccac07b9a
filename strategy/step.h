// Step functions: the code that workers run. Every process knows a step function by its name.
#ifndef DIVVY_STRATEGY_STEP_H_
#define DIVVY_STRATEGY_STEP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "protocol/end_of_data.h"
#include "strategy/per_replica.h"
#include "strategy/strategy.h"
#include "tensor/nest.h"

namespace divvy {

// An iterator over a dataset, on every worker. Pass it to Schedule and to step functions.
// PerWorkerDataset makes it; WorkerContext::Next reads from it. A handle: copies refer to the same
// iterator. Thread-safe. The workers close the iterator when the coordinator drops its last handle,
// but only after the steps that use it have ended, including steps that still wait.
class Iterator {
 public:
  explicit Iterator(PerWorkerHandle handle)
      : handle_(std::make_shared<const PerWorkerHandle>(handle)) {}
  // For the coordinator. The pointer's deleter closes the iterator.
  explicit Iterator(std::shared_ptr<const PerWorkerHandle> handle) : handle_(std::move(handle)) {}
  uint64_t id() const { return handle_->id; }
  PerWorkerHandle handle() const { return *handle_; }

 private:
  std::shared_ptr<const PerWorkerHandle> handle_;
};

template <>
struct NestCodec<Iterator> {
  static Nest Encode(const Iterator& iterator) { return Nest(iterator.handle()); }
  static absl::StatusOr<Iterator> Decode(const Nest& nest) {
    DIVVY_ASSIGN_OR_RETURN(PerWorkerHandle handle, nest.handle());
    return Iterator(handle);
  }
};

// What a worker provides to one attempt of a step. worker/core implements it, and tests use a fake.
// It outlives the attempt. Thread-safe.
class StepEnvironment {
 public:
  virtual ~StepEnvironment() = default;
  // The strategy made for this attempt. Its parts hold the step's transaction, number and seed, and
  // the worker's LocalObjects.
  virtual Strategy& strategy() = 0;
  virtual int worker_index() const = 0;
  // Returns the next elements of the iterator `handle` on this worker, one for each replica;
  // nullopt at the end. Each element is on its replica's device (BatchOn), or on the CPU if
  // InputOptions::fetch_to_device is false. Replicas for which no element is left get
  // EmptyBatchLike. May block while data is read. Aborted with Reason::kInputAborted: the iterator
  // is gone, and the step is run again.
  virtual absl::StatusOr<std::optional<PerReplica<Nest>>> Next(PerWorkerHandle handle) = 0;
  // As WorkerContext::cancelled.
  virtual bool cancelled() const = 0;
};

// The API of a step function, on its worker. The function runs in cross-replica context: it handles
// the values of all replicas of the worker, and calls Run for the work of each replica. Use it on
// the step's thread only, while the step runs.
class WorkerContext {
 public:
  explicit WorkerContext(StepEnvironment& environment) : environment_(environment) {}
  WorkerContext(const WorkerContext&) = delete;
  WorkerContext& operator=(const WorkerContext&) = delete;

  Strategy& strategy() { return environment_.strategy(); }
  int worker_index() const { return environment_.worker_index(); }
  // The step's number; the same on every attempt.
  int64_t step() const { return environment_.strategy().parts().step; }
  // A seed that is derived from the job and the step; the same on every attempt.
  uint64_t seed() const { return environment_.strategy().parts().seed; }

  // Returns one element for each replica, in replica order. If too few are left, the last replicas
  // get batches with 0 rows (EmptyBatchLike). Blocks while data is read. A step may call it only
  // once for leased data: the elements then belong to the step and are the same on every attempt.
  //
  //   OutOfRange          IsEndOfData holds: no element is left. Return the error; RunEpoch expects
  //                       it
  //   FailedPrecondition  called in a replica function, where each replica would take a whole
  //                       step's elements; or called twice in a step on leased data
  //   Aborted             the iterator was lost with its worker's session. Return the error; the
  //                       step is run again
  //   others              the data source's, such as DataLoss or NotFound, with file and line
  absl::StatusOr<PerReplica<Nest>> Next(const Iterator& iterator);
  // The same, but returns nullopt at the end, for a step that has work to do there.
  absl::StatusOr<std::optional<PerReplica<Nest>>> NextOrEnd(const Iterator& iterator);

  // What most steps do, in one call:
  // 1. takes the next elements of `batches` (Next);
  // 2. runs `fn(ReplicaContext&, const Nest& batch, args...)` on each replica (Strategy::Run);
  // 3. returns the sum of the replicas' results (Strategy::Reduce; Metrics are merged).
  // A step then needs no separate replica function:
  //
  //     absl::StatusOr<Metrics> TrainStep(WorkerContext& worker, Iterator batches) {
  //       return worker.RunAndMerge(batches, [](ReplicaContext& replica, const Nest& batch)
  //                                      -> absl::StatusOr<Metrics> {
  //         GradientTape tape(replica);
  //         ...
  //         return Collect({{"loss", MeanOf(losses)}});
  //       });
  //     }
  //
  // `fn` returns a StatusOr of a type that has a NestCodec. Blocks. Errors: those of Next
  // (including IsEndOfData), Run and Reduce.
  template <typename F, typename... Args>
  absl::StatusOr<ReplicaResult<F, PerReplica<Nest>, Args...>> RunAndMerge(const Iterator& batches,
                                                                          F&& fn,
                                                                          const Args&... args) {
    using Result = ReplicaResult<F, PerReplica<Nest>, Args...>;
    static_assert(!std::is_same_v<Result, std::monostate>,
                  "RunAndMerge merges what the replicas return: return a StatusOr<Metrics>, say, "
                  "or call Next and strategy().Run for a function that returns a Status");
    DIVVY_ASSIGN_OR_RETURN(const PerReplica<Nest> batch, Next(batches));
    DIVVY_ASSIGN_OR_RETURN(const PerReplica<Result> results, strategy().Run(fn, batch, args...));
    return strategy().Reduce(ReduceOp::kSum, results, kNoAxis);
  }

  // An object that this worker keeps between steps. `make` creates it at first use. It is lost with
  // the worker, so never keep the model's state in it. The same key with another T is another
  // object. Two steps never use an object at the same time.
  template <typename T>
  T& Local(absl::string_view key, std::function<std::unique_ptr<T>()> make) {
    return environment_.strategy().parts().locals->Get<T>(absl::StrCat("worker/", key), make);
  }

  // For long steps: true when the step's result is no longer needed, because of another step's
  // error, a deadline or the end of the session. Once true, it stays true. Return Cancelled soon:
  // no other step of the session runs until the function has returned. Does not block.
  bool cancelled() const { return environment_.cancelled(); }

 private:
  StepEnvironment& environment_;
};

// kTraining: the step takes the next step number and counts in Coordinator::step(). kReadOnly: for
// evaluation; the step takes no step number, and its writes are FailedPrecondition. A read-only
// step sees the variables as they are, while training steps may run beside it.
enum class StepKind : uint8_t { kTraining, kReadOnly };

// A step function that is registered in this process. Step's constructor makes it.
struct RegisteredStep {
  std::string name;
  StepKind kind = StepKind::kTraining;
  // Not counting the WorkerContext.
  int num_args = 0;
  // Identifies the function's types. It is equal in processes that the same compiler built from the
  // same source. Compare it only; its text has no meaning.
  std::string signature;
  // Decodes `args`, a list, calls the function and encodes its result.
  std::function<absl::StatusOr<Nest>(WorkerContext&, const Nest& args)> body;
};

// The steps of this process. Thread-safe. The constructors of Step fill it before `main`. It is
// never destroyed.
class StepRegistry {
 public:
  // Never fails: Validate reports a duplicate name.
  static void Add(RegisteredStep step);
  // Null: no such step. The pointer is valid forever.
  static const RegisteredStep* Find(absl::string_view name);
  // NotFound: no such step; the message lists the known ones. FailedPrecondition: the step was
  // added after Seal.
  static absl::StatusOr<const RegisteredStep*> Get(absl::string_view name);
  // In name order. For a duplicate name, the first.
  static std::vector<const RegisteredStep*> All();
  // `main` calls this when registration is over. A step that is added later is known in this
  // process only, so Get refuses it (FailedPrecondition).
  static void Seal();
  // Call it at start. InvalidArgument: lists every name that is empty or registered twice.
  static absl::Status Validate();
};

// Runs one attempt on the calling thread, in the scope of environment.strategy(). Blocks as long as
// the function does. Errors: the function's own; Unknown with what() if it throws.
absl::StatusOr<Nest> RunStep(const RegisteredStep& step, StepEnvironment& environment,
                             const Nest& args);

// Returns `batch` with no examples: every tensor has 0 rows, and row_splits of sparse ids are {0}.
// Replicas get it when too few elements are left. InvalidArgument: a tensor of rank 0, which has no
// rows; batch the dataset first.
absl::StatusOr<Nest> EmptyBatchLike(const Nest& batch);

// Returns `batch` as a replica on `device` needs it: its tensors on `device`, its sparse ids on the
// CPU, where lookups read them. Errors: those of Tensor::To.
absl::StatusOr<Nest> BatchOn(const Nest& batch, Device device);

namespace internal {

template <typename R, typename... Args>
RegisteredStep MakeRegisteredStep(
    absl::string_view name, StepKind kind,
    std::function<absl::StatusOr<Nest>(WorkerContext&, const Nest&)> body) {
  return {std::string(name), kind, static_cast<int>(sizeof...(Args)),
          typeid(R(std::decay_t<Args>...)).name(), std::move(body)};
}

// Decodes `args` and returns call(decoded...). Errors: those of decoding and of `call`.
template <typename... Args, typename Call>
absl::StatusOr<Nest> CallDecoded(const Nest& args, Call call) {
  if constexpr (sizeof...(Args) == 0) {
    return call();
  } else {
    DIVVY_ASSIGN_OR_RETURN(auto decoded,
                           (NestCodec<std::tuple<std::decay_t<Args>...>>::Decode(args)));
    return std::apply(call, std::move(decoded));
  }
}

}  // namespace internal

// A step function, known by its name in every process. Define it `const` at namespace scope, once:
//
//   absl::StatusOr<Metrics> TrainStep(WorkerContext& worker, Iterator batches) {
//     return worker.RunAndMerge(batches, TrainReplica);
//   }
//   const Step kTrain("train", TrainStep);
//
// Arguments and result are encoded by NestCodec. A function without a result returns a Status.
// Schedule takes the function's argument types: an argument of the wrong type does not compile, nor
// does a number that could be truncated.
//
// A STEP IS A TRANSACTION. Its staged writes are applied exactly once if it returns OK, and not at
// all if it fails. The function may run more than once, and on another worker. So let it depend
// only on its arguments, its data, variables and seed(), and keep no state outside Variables.
// Globals that Train sets exist in the coordinator's process only.
//
// Constructing a Step never fails. Two functions with one name are refused at start. A worker that
// does not know a step fails that step, and the error says so. If a Step is in a static library,
// link the library with alwayslink (--whole-archive); otherwise the linker may drop the
// registration.
template <typename Signature>
class Step;

// The step of a function that returns absl::StatusOr<R>.
template <typename R, typename... Args>
class Step<R(Args...)> {
 public:
  using Result = R;
  Step(absl::string_view name, absl::StatusOr<R> (*function)(WorkerContext&, Args...),
       StepKind kind = StepKind::kTraining)
      : name_(name), kind_(kind) {
    StepRegistry::Add(internal::MakeRegisteredStep<R, Args...>(
        name, kind, [function](WorkerContext& worker, const Nest& args) {
          return internal::CallDecoded<Args...>(
              args, [&](const auto&... decoded) -> absl::StatusOr<Nest> {
                DIVVY_ASSIGN_OR_RETURN(R result, function(worker, decoded...));
                return NestCodec<R>::Encode(result);
              });
        }));
  }
  absl::string_view name() const { return name_; }
  StepKind kind() const { return kind_; }

 private:
  std::string name_;
  StepKind kind_;
};

// The step of a function that returns absl::Status.
template <typename... Args>
class Step<void(Args...)> {
 public:
  using Result = void;
  Step(absl::string_view name, absl::Status (*function)(WorkerContext&, Args...),
       StepKind kind = StepKind::kTraining)
      : name_(name), kind_(kind) {
    StepRegistry::Add(internal::MakeRegisteredStep<void, Args...>(
        name, kind, [function](WorkerContext& worker, const Nest& args) {
          return internal::CallDecoded<Args...>(
              args, [&](const auto&... decoded) -> absl::StatusOr<Nest> {
                DIVVY_RETURN_IF_ERROR(function(worker, decoded...));
                return Nest();
              });
        }));
  }
  absl::string_view name() const { return name_; }
  StepKind kind() const { return kind_; }

 private:
  std::string name_;
  StepKind kind_;
};

template <typename R, typename... Args>
Step(absl::string_view, absl::StatusOr<R> (*)(WorkerContext&, Args...),
     StepKind = StepKind::kTraining) -> Step<R(Args...)>;
template <typename... Args>
Step(absl::string_view, absl::Status (*)(WorkerContext&, Args...), StepKind = StepKind::kTraining)
    -> Step<void(Args...)>;

}  // namespace divvy

#endif  // DIVVY_STRATEGY_STEP_H_
