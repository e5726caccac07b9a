// Step functions: what runs on the workers, known by name in every process.
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
#include "cluster/end_of_data.h"
#include "strategy/per_replica.h"
#include "strategy/strategy.h"
#include "tensor/nest.h"

namespace divvy {

// A position in a dataset on every worker; an argument of Schedule and of step functions. A handle,
// thread-safe: copies are the same iterator. When the last handle on the coordinator is gone, the
// workers close it; steps that name it and still wait or run keep it until they end. Made by
// PerWorkerDataset, read by WorkerContext::Next.
class Iterator {
 public:
  explicit Iterator(PerWorkerHandle handle)
      : handle_(std::make_shared<const PerWorkerHandle>(handle)) {}
  // For the coordinator: the pointer's deleter closes the iterator.
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

// What a worker lends to one running attempt of a step. Implemented by worker/core, by a fake in
// tests; outlives the attempt. Thread-safe.
class StepEnvironment {
 public:
  virtual ~StepEnvironment() = default;
  // One made for this attempt: its parts hold the step's transaction, number and seed, and the
  // worker's LocalObjects.
  virtual Strategy& strategy() = 0;
  virtual int worker_index() const = 0;
  // The next elements of the iterator that `handle` names on this worker, one for each replica and
  // where it computes (BatchOn; InputOptions::fetch_to_device false: on the CPU), with
  // EmptyBatchLike where too few are left; nullopt: none is left. May block while data is read.
  // Aborted with Reason::kInputAborted: the iterator is gone, the step is run again.
  virtual absl::StatusOr<std::optional<PerReplica<Nest>>> Next(PerWorkerHandle handle) = 0;
  virtual bool cancelled() const = 0;
};

// The API of a step function, on its worker, in cross-replica context: the step handles values of
// all replicas of the worker, and calls Run for what each does. Used on the step's thread, while
// the step runs.
class WorkerContext {
 public:
  explicit WorkerContext(StepEnvironment& environment) : environment_(environment) {}
  WorkerContext(const WorkerContext&) = delete;
  WorkerContext& operator=(const WorkerContext&) = delete;

  Strategy& strategy() { return environment_.strategy(); }
  int worker_index() const { return environment_.worker_index(); }
  // number of the step; the same on every attempt
  int64_t step() const { return environment_.strategy().parts().step; }
  // From (job, step); the same on every attempt.
  uint64_t seed() const { return environment_.strategy().parts().seed; }

  // An element for each replica, in replica order: where too few are left, the last replicas get
  // batches with 0 rows (EmptyBatchLike). Blocks while data are read. Of leased data once in a
  // step: its elements are the step's, the same on every attempt. OutOfRange, for which IsEndOfData
  // holds: none is left; return it, RunEpoch expects it. FailedPrecondition: in a replica function,
  // where each replica would take a step's elements; or a second time in a step. DataLoss, NotFound
  // and others: the data source's own, with file and line. Aborted: the iterator was lost with its
  // worker's session; return it, the step is run again.
  absl::StatusOr<PerReplica<Nest>> Next(const Iterator& iterator);
  // The same, with nullopt at the end: for a step that has something to do then.
  absl::StatusOr<std::optional<PerReplica<Nest>>> NextOrEnd(const Iterator& iterator);

  // What most steps do, in one call: the next elements of `batches` (Next), `fn(ReplicaContext&,
  // const Nest& batch, args...)` on each replica (Strategy::Run), and the sum of what the replicas
  // give (Strategy::Reduce; of Metrics: merged). So a step needs no second function:
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
  // `fn` returns a StatusOr of what travels as a Nest. Blocks; errors: those of the three, the end
  // of the data first (IsEndOfData).
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

  // An object kept between steps by this worker, made at first use. Gone when the worker is: never
  // put state of the model in it. Another T under the same key is another object.
  template <typename T>
  T& Local(absl::string_view key, std::function<std::unique_ptr<T>()> make) {
    return environment_.strategy().parts().locals->Get<T>(absl::StrCat("worker/", key), make);
  }

  // For long steps: whether the result no longer matters (another step's error, a deadline, a
  // session that has ended). Return Cancelled soon: until the function has returned no other step
  // of the session runs. Never false again.
  bool cancelled() const { return environment_.cancelled(); }

 private:
  StepEnvironment& environment_;
};

// kTraining: has the next step number, and counts in Coordinator::step(). kReadOnly: takes no step
// number, writes are FailedPrecondition; for evaluation. It sees the variables as they are, beside
// training steps that run.
enum class StepKind : uint8_t { kTraining, kReadOnly };

// What is known of a step function in this process. Made by Step's constructor.
struct RegisteredStep {
  std::string name;
  StepKind kind = StepKind::kTraining;
  // besides the WorkerContext
  int num_args = 0;
  // Of its types; equal in processes built from the same source by the same compiler. To compare,
  // not to read.
  std::string signature;
  // args: a list
  std::function<absl::StatusOr<Nest>(WorkerContext&, const Nest& args)> body;
};

// The steps of this process. Thread-safe. Filled before `main` by the constructors of Step; lives
// forever.
class StepRegistry {
 public:
  // Never fails: a double name is kept for Validate.
  static void Add(RegisteredStep step);
  // Null: no such step. Valid forever.
  static const RegisteredStep* Find(absl::string_view name);
  // NotFound: lists the steps there are. FailedPrecondition: it was added after Seal.
  static absl::StatusOr<const RegisteredStep*> Get(absl::string_view name);
  // In name order; of a double name the first.
  static std::vector<const RegisteredStep*> All();
  // No more steps from here on, says `main`: those that are added later are known here and nowhere
  // else, and Get refuses them (FailedPrecondition).
  static void Seal();
  // To be asked at start. InvalidArgument: every name that is empty or was given to two functions,
  // all at once.
  static absl::Status Validate();
};

// Runs one attempt on the calling thread, in the scope of environment.strategy(). Blocks as the
// function does. A function that throws is Unknown with what().
absl::StatusOr<Nest> RunStep(const RegisteredStep& step, StepEnvironment& environment,
                             const Nest& args);

// What too few elements are filled up with: `batch` with no examples (every tensor with 0 rows,
// row_splits of sparse ids {0}). InvalidArgument: a tensor of rank 0, which has no rows: batch the
// dataset first.
absl::StatusOr<Nest> EmptyBatchLike(const Nest& batch);

// `batch` as a replica on `device` computes with it: its tensors lie there, its sparse ids on the
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

// `call(args...)` with the arguments decoded.
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

// A step function, known by name in every process. Define it `const` at namespace scope, once:
//     absl::StatusOr<Metrics> TrainStep(WorkerContext& worker, Iterator batches) { ... }
//     const Step kTrain("train", TrainStep);
// Its arguments and its result travel as NestCodec has it; a function that gives nothing returns a
// Status.
//
//     absl::StatusOr<Metrics> TrainStep(WorkerContext& worker, Iterator batches) {
//       return worker.RunAndMerge(batches, TrainReplica);
//     }
//
// The types of the function are the types of Schedule: a wrong argument does not compile, nor a
// number that would be cut. A STEP IS
// A TRANSACTION: what it stages is applied once if it returns OK, not at all if it fails. It may
// run more than once, elsewhere: let it depend on its arguments, its data, variables and seed()
// alone, and keep no state outside Variables. Globals set by Train exist on the coordinator alone.
// Two functions under one name are refused at start; a worker that does not know a step it is given
// says so by the step's error.
template <typename Signature>
class Step;

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
