// TensorFlow's tf.distribute.Strategy: the replicas of one worker, and the variables that all
// workers share.
#ifndef DIVVY_STRATEGY_STRATEGY_H_
#define DIVVY_STRATEGY_STRATEGY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cluster/cluster_resolver.h"
#include "data/distribute.h"
#include "ops/ops.h"
#include "strategy/context.h"
#include "strategy/local_objects.h"
#include "strategy/per_replica.h"
#include "strategy/reduce.h"
#include "strategy/strategy_options.h"
#include "strategy/variable.h"
#include "tensor/nest.h"

namespace divvy {

class Executor;
class VariableStore;

// The parts of a Strategy. worker/core makes a strategy for each attempt of a step; the coordinator
// makes one for the job.
struct StrategyParts {
  // Null: no variables, as in the default strategy.
  std::shared_ptr<VariableStore> store;
  // Provides the replicas' threads. REQUIRES: not null with more than one replica; outlives the
  // strategy.
  Executor* executor = nullptr;
  // Null: no resolver.
  std::shared_ptr<const ClusterResolver> resolver;
  // The device of each replica; replicas on the CPU are all on CPU:0. REQUIRES: not empty.
  std::vector<Device> replica_devices = {Device{}};
  // The step's number; the same on every attempt.
  int64_t step = 0;
  // Derived from the job and the step; the same on every attempt.
  uint64_t seed = 0;
  // The worker's objects. Null: the strategy makes its own.
  std::shared_ptr<LocalObjects> locals;
  // StrategyOptions::communication.
  CommunicationOptions communication = {};
};

namespace internal {

template <typename T>
struct ComponentOf {
  using type = T;
  static const T& Get(const T& value, int) { return value; }
  static int Size(const T&) { return -1; }
};
template <typename T>
struct ComponentOf<PerReplica<T>> {
  using type = T;
  static decltype(auto) Get(const PerReplica<T>& value, int replica) { return value[replica]; }
  static int Size(const PerReplica<T>& value) { return value.size(); }
};

// StatusOr<T> -> T, Status -> monostate. Any other result type does not compile.
template <typename T>
struct Fallible;
template <typename T>
struct Fallible<absl::StatusOr<T>> {
  using type = T;
};
template <>
struct Fallible<absl::Status> {
  using type = std::monostate;
};
template <typename F, typename... Args>
using ReplicaResultT = typename Fallible<
    std::invoke_result_t<F&, ReplicaContext&, const typename ComponentOf<Args>::type&...>>::type;

inline absl::Status Keep(absl::Status status, std::optional<std::monostate>& kept) {
  kept.emplace();
  return status;
}
template <typename T>
absl::Status Keep(absl::StatusOr<T> result, std::optional<T>& kept) {
  if (!result.ok()) return std::move(result).status();
  kept.emplace(*std::move(result));
  return absl::OkStatus();
}
template <typename T>
PerReplica<T> AllOf(std::vector<std::optional<T>> values) {  // REQUIRES: each has a value
  std::vector<T> all;
  for (std::optional<T>& value : values) all.push_back(*std::move(value));
  return PerReplica<T>(std::move(all));
}
template <typename T>
std::vector<Nest> EncodeAll(const PerReplica<T>& values) {
  std::vector<Nest> nests;
  for (int i = 0; i < values.size(); ++i) nests.push_back(NestCodec<T>::Encode(values[i]));
  return nests;
}

}  // namespace internal

// The type of Run's result for each replica: R if the function returns StatusOr<R>, monostate if it
// returns Status.
template <typename F, typename... Args>
using ReplicaResult = internal::ReplicaResultT<F, Args...>;

// Makes a strategy current on this thread while the scope lives, as Python's `with
// strategy.scope():`. Creating a variable with divvy::CreateVariable needs a scope; reading and
// writing variables, scheduling and reducing do not. Movable. Must be destroyed on the thread that
// made it. Keep it in a named variable: a temporary ends at once.
//
//   auto scope = coordinator.strategy().Scope();
//   RETURN_IF_ERROR(CreateVariable(kWeights).status());
class [[nodiscard]] StrategyScope {
 public:
  // FailedPrecondition: the scope may not be entered here. Every call that is made inside it then
  // returns this error.
  absl::Status status() const { return status_; }

 private:
  friend class Strategy;
  friend class StrategyExtended;
  explicit StrategyScope(internal::Context context)
      : status_(context.error), entry_(std::move(context)) {}
  absl::Status status_;
  internal::ContextEntry entry_;
};

class Strategy;

// tf.distribute's strategy.extended: functions that programs seldom need. Thread-safe. It lives as
// long as its Strategy.
class StrategyExtended {
 public:
  // The devices of this worker's replicas, in replica order. Does not block.
  std::vector<Device> worker_devices() const;
  // The parameter servers, each as "/job:ps/replica:0/task:<index>/device:CPU:0"; empty without a
  // resolver. Does not block.
  std::vector<std::string> parameter_devices() const;
  // Strategy::Reduce without an axis, with the result on `destination`. Errors: those of Reduce,
  // and those of Tensor::To for a device that does not exist.
  template <typename T>
  absl::StatusOr<T> ReduceTo(ReduceOp op, const PerReplica<T>& value, Device destination);
  // ReduceTo for each pair, in order; stops at the first error.
  template <typename T>
  absl::StatusOr<std::vector<T>> BatchReduceTo(
      ReduceOp op, absl::Span<const std::pair<PerReplica<T>, Device>> values);
  // While the scope lives, places new variables on the parameter server of `variable`, or of its
  // shard `shard`. Such variables are never cut into shards, and the round-robin of placement does
  // not count them. The scope ends as Strategy::Scope does. FailedPrecondition (checked first):
  // this strategy is not the current one on this thread. InvalidArgument: a variable of another
  // strategy; a variable with several shards and no `shard`; or a shard that does not exist.
  absl::StatusOr<StrategyScope> ColocateVarsWith(const Variable& variable,
                                                 std::optional<int> shard = {});
  // TensorFlow's extended.update(var, fn), limited to the functions that a parameter server has,
  // because a parameter server runs no code of the program. A tensor is assigned (kUpdate), added
  // or subtracted as a whole; IndexedSlices are scattered. Blocks as Variable's writes do.
  // InvalidArgument: another op on a tensor, or another kind of value. Otherwise the errors of
  // Variable's writes.
  absl::Status Update(const Variable& variable, Variable::Scatter op, const Nest& value);

 private:
  friend class Strategy;
  explicit StrategyExtended(Strategy& strategy) : strategy_(strategy) {}
  Strategy& strategy_;
};

// TensorFlow's Strategy: the replicas of one worker, which run the same function on their own parts
// of a batch, and the variables that all workers share. A step function uses its worker's strategy
// (worker.strategy()); the program uses the coordinator's. Both reach the same variables.
//
// Thread-safe. The context of the calling thread decides which calls are allowed. In a replica
// function only the values of that replica are available (ReplicaContext). In a scope, a step
// function or a merge function, and outside all of them, the values of all replicas are available
// (Run, Reduce, Gather). A call from the wrong context is a mistake in the program: it returns
// FailedPrecondition and names the call to use instead.
class Strategy {
 public:
  explicit Strategy(StrategyParts parts);
  virtual ~Strategy();
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  // TensorFlow's get_strategy(): the strategy of this thread's innermost context. Outside every
  // context it is the default strategy, which has one replica on the CPU and no variables. Does not
  // block.
  static Strategy& Current();

  // The number of replicas of ONE worker: its GPUs, or 1. It does not count the other workers.
  int num_replicas_in_sync() const { return static_cast<int>(parts_.replica_devices.size()); }
  // Null for the default strategy.
  const ClusterResolver* cluster_resolver() const { return parts_.resolver.get(); }
  StrategyExtended& extended() { return extended_; }

  // Makes this strategy current on this thread while the scope lives. It may not be entered in a
  // replica function or inside another strategy's scope. Then the scope's status() is the error,
  // and every call made inside the scope fails with it.
  StrategyScope Scope();

  // Creates a variable, as divvy::CreateVariable does inside Scope(). Only the coordinator may.
  // Blocks until every shard holds its initial value. The spec's partitioner cuts the variable into
  // shards; without one, the strategy's does. The shards go to the parameter servers in turn or,
  // with kBalanced, each to the one with the fewest bytes of variables.
  //
  //   AlreadyExists       the name is taken
  //   InvalidArgument     the spec or the partitioner's result is not valid; the message names the
  //                       variable and the fix
  //   ResourceExhausted   a parameter server lacks memory (--memory_limit_bytes)
  //   FailedPrecondition  called in a step or a data source, or on the default strategy
  //
  // After an error the name is free again, and the next variable is placed as if this one had never
  // been tried. There are two exceptions, in which a part of the variable remains: FromRows fails
  // after its first 16 MiB, or parameter servers are lost during the call.
  absl::StatusOr<Variable> CreateVariable(const VariableSpec& spec);
  // Finds an existing variable. Allowed in every context. Does not block. NotFound: the message
  // lists the most similar names.
  absl::StatusOr<Variable> FindVariable(absl::string_view name) const;

  // Runs fn(ReplicaContext&, args...) once for each replica: replica 0 on this thread, every other
  // replica on a thread of its own. Blocks until all replicas have ended, and returns their results
  // in replica order. With one replica everything runs on this thread.
  //
  // A PerReplica argument is split: each replica gets its own component. Every other argument is
  // passed unchanged. Several threads call fn at once, so its captures must be thread-safe. fn
  // returns StatusOr<R> or Status; an exception that it throws becomes Unknown with its what().
  //
  // Returns the first error of a replica. A replica that fails also fails the replicas that wait
  // for it in MergeCall or AllReduce. InvalidArgument: a PerReplica with another number of
  // replicas. FailedPrecondition: called in a replica function; call fn directly there.
  template <typename F, typename... Args>
  absl::StatusOr<PerReplica<ReplicaResult<F, Args...>>> Run(F&& fn, const Args&... args) {
    using Result = ReplicaResult<F, Args...>;
    DIVVY_RETURN_IF_ERROR(CheckRun({internal::ComponentOf<Args>::Size(args)...}));
    std::vector<std::optional<Result>> results(num_replicas_in_sync());
    DIVVY_RETURN_IF_ERROR(RunReplicas([&](ReplicaContext& replica, int id) {
      return internal::Keep(fn(replica, internal::ComponentOf<Args>::Get(args, id)...),
                            results[id]);
    }));
    return internal::AllOf(std::move(results));
  }

  // Combines the replicas' values into one. kNoAxis reduces over replicas only. With an axis, it
  // reduces over the replicas and that axis, and kMean divides by the number of elements, so
  // partial batches are weighted correctly. T needs a NestCodec. The result of several replicas is
  // on the CPU. The value of a single replica without an axis is returned unchanged. May wait for a
  // GPU.
  //
  // Rules and errors: internal::ReduceNests. Also InvalidArgument: the number of values is not the
  // number of replicas. FailedPrecondition: called in a replica function (use replica.AllReduce) or
  // in another strategy's scope.
  //
  //   // [batch] of each replica -> [batch]
  //   ASSIGN_OR_RETURN(const Tensor sum, strategy.Reduce(ReduceOp::kSum, losses, kNoAxis));
  //   // of all examples -> []
  //   ASSIGN_OR_RETURN(const Tensor mean, strategy.Reduce(ReduceOp::kMean, losses, 0));
  template <typename T>
  absl::StatusOr<T> Reduce(ReduceOp op, const PerReplica<T>& value, const Axes& axes) {
    DIVVY_RETURN_IF_ERROR(CheckValues("Reduce", "replica.AllReduce", value.size()));
    if (value.size() == 1 && axes.values().empty()) return value[0];
    DIVVY_ASSIGN_OR_RETURN(Nest reduced,
                           internal::ReduceNests(op, internal::EncodeAll(value), axes));
    return NestCodec<T>::Decode(reduced);
  }
  // Reduces a value that is not distributed. Without axes it is returned unchanged, also for kSum.
  // With axes it is reduced as if each replica had a copy, as in TensorFlow's parameter server
  // strategy.
  absl::StatusOr<Nest> Reduce(ReduceOp op, const Nest& value, const Axes& axes);

  // Concatenates the replicas' tensors in replica order: [.., n_i, ..] -> [.., sum of n_i, ..], on
  // the CPU. Only `axis` may differ in length; a negative axis counts from the end. May wait for a
  // GPU. InvalidArgument, naming two replicas: rank 0, an axis that does not exist, or tensors that
  // differ in dtype, rank or another dimension. FailedPrecondition: as Reduce.
  absl::StatusOr<Tensor> Gather(const PerReplica<Tensor>& value, int axis);
  // A value that is not distributed is returned unchanged.
  absl::StatusOr<Tensor> Gather(const Tensor& value, int axis);

  // The replicas' values in replica order, to take them out of distributed code. Allowed in every
  // context; never fails.
  template <typename T>
  std::vector<T> LocalResults(const PerReplica<T>& value) {
    return value.values();
  }
  // Returns a plain value or a variable as a vector of one.
  template <typename T>
  std::vector<T> LocalResults(const T& value) {
    return {value};
  }

  // Calls value_fn(ValueContext) for each replica, in order, on this thread, and returns the
  // results. They may be of any copyable type. Use it for values that differ by replica from the
  // start, such as seeds or parts of a range; data come from worker.Next. FailedPrecondition:
  // called in a replica function or in another strategy's scope.
  template <typename F>
  absl::StatusOr<PerReplica<std::invoke_result_t<F&, ValueContext>>> DistributeValuesFromFunction(
      F&& value_fn) {
    DIVVY_RETURN_IF_ERROR(internal::CheckCrossReplica(*this, "DistributeValuesFromFunction",
                                                      "the replica's own value"));
    std::vector<std::invoke_result_t<F&, ValueContext>> values;
    for (int i = 0; i < num_replicas_in_sync(); ++i)
      values.push_back(value_fn(ValueContext{i, num_replicas_in_sync()}));
    return PerReplica(std::move(values));
  }

  // As the functions of the same names in data/distribute.h, which describes them. Call them only
  // inside a DataSource function, which runs in this strategy's scope on its worker. Elsewhere they
  // return FailedPrecondition.
  absl::StatusOr<Dataset> DistributeDataset(const Dataset& global_batches,
                                            const InputOptions& options = {}) {
    DIVVY_RETURN_IF_ERROR(
        internal::CheckCrossReplica(*this, "DistributeDataset", "a DataSource function"));
    return divvy::DistributeDataset(global_batches, options);
  }
  absl::StatusOr<Dataset> DistributeDatasetsFromFunction(const DatasetFunction& fn,
                                                         const InputOptions& options = {}) {
    DIVVY_RETURN_IF_ERROR(internal::CheckCrossReplica(*this, "DistributeDatasetsFromFunction",
                                                      "a DataSource function"));
    return divvy::DistributeDatasetsFromFunction(fn, options);
  }

  // For implementers.
  const StrategyParts& parts() const { return parts_; }
  // The store behind the variables; `call` names the caller in the error. FailedPrecondition: the
  // default strategy, or a strategy without variables.
  absl::StatusOr<std::shared_ptr<VariableStore>> store(absl::string_view call) const;

 private:
  friend class StrategyExtended;
  using ReplicaBody = std::function<absl::Status(ReplicaContext& replica, int id)>;
  absl::Status CheckRun(std::vector<int> sizes) const;  // of the arguments; -1: not distributed
  absl::Status CheckValues(absl::string_view call, absl::string_view instead, int size) const;
  absl::Status RunReplicas(const ReplicaBody& body);

  StrategyParts parts_;
  StrategyExtended extended_;
};

// Creates a variable with the strategy whose scope this thread is in. Blocks and fails as
// Strategy::CreateVariable. Also FailedPrecondition: outside every scope; enter strategy.Scope()
// first.
absl::StatusOr<Variable> CreateVariable(const VariableSpec& spec);

namespace internal {
Strategy& DefaultStrategy();              // never destroyed
ReplicaContext& DefaultReplicaContext();  // this thread's, outside every scope
}  // namespace internal

template <typename T>
absl::StatusOr<T> StrategyExtended::ReduceTo(ReduceOp op, const PerReplica<T>& value,
                                             Device destination) {
  DIVVY_ASSIGN_OR_RETURN(T reduced, strategy_.Reduce(op, value, kNoAxis));
  DIVVY_ASSIGN_OR_RETURN(Nest moved, internal::MoveTo(NestCodec<T>::Encode(reduced), destination));
  return NestCodec<T>::Decode(moved);
}

template <typename T>
absl::StatusOr<std::vector<T>> StrategyExtended::BatchReduceTo(
    ReduceOp op, absl::Span<const std::pair<PerReplica<T>, Device>> values) {
  std::vector<T> reduced;
  for (const auto& [value, destination] : values) {
    DIVVY_ASSIGN_OR_RETURN(T one, ReduceTo(op, value, destination));
    reduced.push_back(std::move(one));
  }
  return reduced;
}

}  // namespace divvy

#endif  // DIVVY_STRATEGY_STRATEGY_H_
