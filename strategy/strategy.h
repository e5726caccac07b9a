// TensorFlow's tf.distribute.Strategy: the replicas of one worker, and the variables they share.
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

// What a Strategy is made of. worker/core makes one for each attempt of a step, the coordinator one
// for the job.
struct StrategyParts {
  // null: no variables (the default strategy)
  std::shared_ptr<VariableStore> store;
  // lends the replicas' threads. REQUIRES: not null with more than one replica; outlives the
  // strategy
  Executor* executor = nullptr;
  // null: none
  std::shared_ptr<const ClusterResolver> resolver;
  // Where each replica computes; those on the CPU are all CPU:0. REQUIRES: not empty.
  std::vector<Device> replica_devices = {Device{}};
  // number of the step; the same on every attempt
  int64_t step = 0;
  // From (job, step); the same on every attempt.
  uint64_t seed = 0;
  // Of the worker; null: the strategy's own.
  std::shared_ptr<LocalObjects> locals;
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

// StatusOr<T> -> T, Status -> monostate. Another result does not compile.
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

// What Run gives for each replica: R of a function that returns StatusOr<R>; monostate for Status.
template <typename F, typename... Args>
using ReplicaResult = internal::ReplicaResultT<F, Args...>;

// Makes a strategy current on this thread while it lives: `with strategy.scope():`. Variables are
// created in it; reading and writing them, scheduling and reducing do not ask for it. Movable; ends
// on the thread it began on. Give it a name: one that is dropped has ended already.
//
//   auto scope = coordinator.strategy().Scope();
//   RETURN_IF_ERROR(CreateVariable(kWeights).status());
class [[nodiscard]] StrategyScope {
 public:
  // FailedPrecondition: the scope must not be entered here. Every call made inside it fails with
  // this.
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

// What tf.distribute calls strategy.extended: what programs seldom need. Thread-safe; lives in its
// Strategy.
class StrategyExtended {
 public:
  // Neither blocks.
  // Of this worker, one for each replica, in replica order.
  std::vector<Device> worker_devices() const;
  // "/job:ps/replica:0/task:<index>/device:CPU:0"; empty without a resolver
  std::vector<std::string> parameter_devices() const;
  // Strategy::Reduce without an axis, and the result on `destination`. Errors: Reduce's, and
  // Tensor::To's for a device that is not there.
  template <typename T>
  absl::StatusOr<T> ReduceTo(ReduceOp op, const PerReplica<T>& value, Device destination);
  // One after another; the first error ends it.
  template <typename T>
  absl::StatusOr<std::vector<T>> BatchReduceTo(
      ReduceOp op, absl::Span<const std::pair<PerReplica<T>, Device>> values);
  // Variables created while the scope lives lie on the parameter server of `variable`, or of that
  // shard of it; they are never cut, and do not count in the round of placement. Ends as
  // Strategy::Scope. FailedPrecondition (checked first): this strategy is not the current one here.
  // InvalidArgument: a variable of another strategy; several shards and none named; no such shard.
  absl::StatusOr<StrategyScope> ColocateVarsWith(const Variable& variable,
                                                 std::optional<int> shard = {});
  // tf's extended.update(var, fn) with the functions a ps has: no code travels. A tensor is
  // assigned (kUpdate), added or subtracted whole, IndexedSlices are scattered. InvalidArgument:
  // another op on a tensor, or another kind of value.
  absl::Status Update(const Variable& variable, Variable::Scatter op, const Nest& value);

 private:
  friend class Strategy;
  explicit StrategyExtended(Strategy& strategy) : strategy_(strategy) {}
  Strategy& strategy_;
};

// TensorFlow's Strategy: the replicas of one worker, which run the same function on their own part
// of a batch, and the variables that all workers share. A step function has that of its worker
// (worker.strategy()), the program that of the coordinator; both reach the same variables.
//
// Thread-safe. What a thread may call follows from where it is: outside everything and in a scope,
// a step or a merge function, values of all replicas are at hand (Run, Reduce, Gather); in a
// replica function only its own (ReplicaContext). Calls made from the wrong context are
// FailedPrecondition and name the call to use: they are mistakes in the program, so mend it.
class Strategy {
 public:
  explicit Strategy(StrategyParts parts);
  virtual ~Strategy();
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  // get_strategy(): that of this thread's innermost context, else the default no-op strategy: one
  // replica on the CPU, no variables.
  static Strategy& Current();

  // GPUs of one worker, or 1: not workers x GPUs
  int num_replicas_in_sync() const { return static_cast<int>(parts_.replica_devices.size()); }
  // null for the default strategy
  const ClusterResolver* cluster_resolver() const { return parts_.resolver.get(); }
  StrategyExtended& extended() { return extended_; }

  // Makes this strategy current on this thread while the scope lives. An illegal entry (from a
  // replica, another strategy's scope) gives a scope whose status() is the error, and every call
  // made inside it fails with that error.
  StrategyScope Scope();

  // = divvy::CreateVariable inside Scope(). On the coordinator alone; blocks until every shard
  // holds its initial value. Cut by the spec's partitioner, else by the strategy's; its shards go
  // round the parameter servers (or, kBalanced, to the lightest). AlreadyExists: the name is taken.
  // InvalidArgument: a spec or a partitioner's answer that makes no sense; names the variable and
  // the fix. ResourceExhausted: no memory on a parameter server (--memory_limit_bytes).
  // FailedPrecondition: in a step or a data source, or the default strategy. Nothing is left of a
  // variable that was refused: the name is free, and the turn of the parameter servers has not
  // advanced; but where FromRows fails after its first 16 MiB, or the parameter servers are lost
  // meanwhile, a part is there.
  absl::StatusOr<Variable> CreateVariable(const VariableSpec& spec);
  // A variable that exists, in any context. Does not block. NotFound: lists the names nearest to
  // it.
  absl::StatusOr<Variable> FindVariable(absl::string_view name) const;

  // Runs fn(ReplicaContext&, component of each argument...) once for each replica, replica 0 on
  // this thread, each other on one of its own; blocks until all have ended. A failing replica fails
  // those that wait for it in MergeCall or AllReduce; the first error is returned. A PerReplica
  // argument gives each its component, others are passed as they are. fn is called by several
  // threads at once, so what it captures must bear that. It returns StatusOr<R> or Status; what it
  // throws is Unknown with its words. With one replica it runs on this thread, and the result is a
  // PerReplica of one. InvalidArgument: a PerReplica of another number of replicas.
  // FailedPrecondition: inside a replica, where a plain call does it.
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

  // axis: kNoAxis reduces over replicas only. With an axis, kMean divides by the number of
  // elements, so partial batches weigh right. T travels as a Nest (NestCodec); what several
  // replicas make lies on the CPU, one replica's value without an axis is given back as it is.
  // Rules and errors: internal::ReduceNests; InvalidArgument, too: values of another number of
  // replicas.
  // FailedPrecondition: inside a replica, or in another strategy's scope.
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
  // Not distributed: as it is, kSum too; with axes, as one copy per replica (as TensorFlow's
  // parameter server strategy).
  absl::StatusOr<Nest> Reduce(ReduceOp op, const Nest& value, const Axes& axes);

  // Concatenated in replica order: [.., n_i, ..] -> [.., sum of n_i, ..]; only `axis` may differ in
  // length, negative counts from the end. InvalidArgument, naming two replicas: rank 0, an axis
  // that is not there, or another dtype, rank or dimension.
  absl::StatusOr<Tensor> Gather(const PerReplica<Tensor>& value, int axis);
  absl::StatusOr<Tensor> Gather(const Tensor& value, int axis);  // not distributed: as it is

  // The values in replica order: what comes out of distributed code. Anywhere; never fails.
  template <typename T>
  std::vector<T> LocalResults(const PerReplica<T>& value) {
    return value.values();
  }
  template <typename T>
  std::vector<T> LocalResults(const T& value) {  // a plain value or variable: a vector of one
    return {value};
  }

  // value_fn(ValueContext) for each replica, in order, on this thread: any copyable type. For
  // values that differ by replica from the start (seeds, parts of a range); data come from
  // worker.Next. FailedPrecondition: inside a replica, or in another strategy's scope.
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

  // Only inside a DataSource function, which runs in this strategy's scope on its worker; elsewhere
  // FailedPrecondition that says so. As the functions of the same names (data/distribute.h), which
  // say more.
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
  // FailedPrecondition: the default strategy, or a strategy without variables.
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

// In the scope that this thread is in. FailedPrecondition outside a scope: "enter strategy.Scope()
// first".
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
