// The API inside a replica function: TensorFlow's tf.distribute.ReplicaContext.
#ifndef DIVVY_STRATEGY_REPLICA_CONTEXT_H_
#define DIVVY_STRATEGY_REPLICA_CONTEXT_H_

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
#include "absl/types/span.h"
#include "ops/gradient_tape.h"
#include "optimizers/optimizer.h"
#include "strategy/arrival.h"
#include "strategy/strategy.h"
#include "tensor/nest.h"

namespace divvy {

namespace internal {

// The type of MergeCall's result in a replica: T if the function returns StatusOr<PerReplica<T>> or
// StatusOr<T>, monostate if it returns Status.
template <typename F, typename... Args>
using MergeReturnT =
    typename Fallible<std::invoke_result_t<F&, Strategy&, PerReplica<std::decay_t<Args>>...>>::type;
template <typename F, typename... Args>
using MergeResultT = typename ComponentOf<MergeReturnT<F, Args...>>::type;

// The I-th element of every replica's tuple, in replica order.
template <size_t I, typename Tuple>
auto ElementOfEach(const PerReplica<Tuple>& tuples) {
  std::vector<std::tuple_element_t<I, Tuple>> elements;
  for (const Tuple& tuple : tuples.values()) elements.push_back(std::get<I>(tuple));
  return PerReplica(std::move(elements));
}

}  // namespace internal

// While this object lives, a replica context that was made by hand is the thread's current one.
// Movable. Must be destroyed on the thread that made it.
class [[nodiscard]] Entered {
 private:
  friend class ReplicaContext;
  explicit Entered(internal::Context context) : entry_(std::move(context)) {}
  internal::ContextEntry entry_;
};

// The argument of a replica function. It identifies the replica, lets it communicate with the other
// replicas, reads variables and takes gradients.
//
//   absl::StatusOr<Metrics> TrainReplica(ReplicaContext& replica, const Nest& batch) {
//     GradientTape tape(replica);
//     Var losses = Losses(tape, batch);
//     RETURN_IF_ERROR(replica.ApplyGradients(tape.Gradient(ReduceMean(losses))));
//     return Collect({{"loss", MeanOf(losses)}});
//   }
//
// Not thread-safe: use it on its replica's thread only, while its function runs. A call made
// anywhere else, such as in a merge function or after Run, returns FailedPrecondition and names the
// call to use instead.
class ReplicaContext : public VariableReader {
 public:
  // Strategy::Run makes these; only tests make them by hand.
  ReplicaContext(Strategy& strategy, int replica_id_in_sync_group);
  ReplicaContext(const ReplicaContext&) = delete;
  ReplicaContext& operator=(const ReplicaContext&) = delete;

  // TensorFlow's get_replica_context(). Outside every context it is the default strategy's replica.
  // FailedPrecondition in cross-replica context. Does not block.
  static absl::StatusOr<ReplicaContext*> Current();
  // TensorFlow's __enter__ and __exit__: the context is current until the returned value is
  // destroyed. InvalidArgument: the id is not in [0, num_replicas_in_sync()). FailedPrecondition:
  // another strategy's context is current.
  absl::StatusOr<Entered> Enter();

  int replica_id_in_sync_group() const { return id_; }
  int num_replicas_in_sync() const { return strategy_.num_replicas_in_sync(); }
  Strategy& strategy() const { return strategy_; }
  // The device on which this replica computes.
  Device device() const override;
  // The same in TensorFlow's form: {"/job:worker/replica:0/task:1/device:GPU:0"}.
  std::vector<std::string> devices() const;
  // The step's number; the same on every attempt.
  int64_t step() const { return strategy_.parts().step; }
  // Derived from the job, the step and the replica; the same on every attempt.
  uint64_t seed() const override;

  // Collectives. All replicas must make the same calls in the same order. A call blocks until every
  // replica has made it. With one replica the result is the replica's own value.
  //
  //   InvalidArgument     the replicas' calls differ in kind, op, structure, dtype or shape; every
  //                       replica gets this error, which names two of them
  //   FailedPrecondition  another replica returned without making the call; or the context was made
  //                       by hand and there are several replicas
  //   DeadlineExceeded    CommunicationOptions::timeout has passed, the call's or else the one in
  //                       StrategyOptions::communication
  //   others              the error with which another replica failed, or its argument's own error
  //                       (a failed Nest, Var or Gradients), which every replica gets
  //
  // After such an error the replicas' next calls match up again.

  // Combines the replicas' values; every replica gets the result. T is a Nest or has a NestCodec: a
  // tensor, IndexedSlices, vectors and maps of them. Rules: internal::ReduceNests, except that
  // IndexedSlices are not combined with dense values. All leaves of a value are combined in one
  // collective. Also InvalidArgument: negative bytes_per_pack.
  template <typename T>
  absl::StatusOr<T> AllReduce(ReduceOp op, const T& value,
                              const CommunicationOptions& options = {}) {
    DIVVY_ASSIGN_OR_RETURN(Nest reduced, AllReduceNest(op, NestCodec<T>::Encode(value), options));
    return NestCodec<T>::Decode(reduced);
  }
  // Differentiable: the gradient of an all-reduce is the all-reduce of the gradients, with the same
  // op. All replicas must differentiate the same collectives in the same order: the gradient of
  // each replica's n-th differentiable collective is combined with that of the others' n-th, and a
  // mismatch is InvalidArgument. A failed Var fails the call on all replicas. An error makes the
  // returned Var a failed one.
  Var AllReduce(ReduceOp op, const Var& value, const CommunicationOptions& options = {});
  // One collective for all values; each value has its own gradient.
  std::vector<Var> AllReduce(ReduceOp op, const std::vector<Var>& values,
                             const CommunicationOptions& options = {});
  // Concatenates the replicas' values along `axis`, leaf by leaf, in replica order; every replica
  // gets the result. Only `axis` may differ in length. T: as AllReduce. Errors:
  // internal::AllGatherNests's.
  template <typename T>
  absl::StatusOr<T> AllGather(const T& value, int axis) {
    DIVVY_ASSIGN_OR_RETURN(Nest gathered, AllGatherNest(NestCodec<T>::Encode(value), axis));
    return NestCodec<T>::Decode(gathered);
  }
  // Differentiable: a replica's gradient is its slice of the sum of all gradients. Otherwise as
  // AllReduce of a Var.
  Var AllGather(const Var& value, int axis);

  // Runs fn(Strategy&, PerReplica<Args>...) once, in cross-replica context, on one of the replicas'
  // threads, while all replicas wait. Replica 0's fn runs; the other replicas' fn must have the
  // same type. If fn returns a PerReplica, each replica gets its own component; otherwise all get
  // the same result. A collective; also InvalidArgument: a PerReplica result with another number of
  // replicas.
  template <typename F, typename... Args>
  absl::StatusOr<internal::MergeResultT<F, Args...>> MergeCall(F&& fn, const Args&... args) {
    using Tuple = std::tuple<std::decay_t<Args>...>;
    using Result = internal::MergeResultT<F, Args...>;
    return Meet<Tuple, Result, std::decay_t<F>>(
        "MergeCall", "call the function directly", absl::StatusOr<Tuple>(absl::in_place, args...),
        [&](const PerReplica<Tuple>& tuples) {
          return CallMerged<Result>(fn, tuples, std::index_sequence_for<Args...>());
        });
  }

  // Reads variables without a tape, for use with any other library. One call is one round trip to
  // the parameter servers. If several replicas of a worker read the whole of one variable, it is
  // fetched once. The values are on device(). Blocks. Errors: VariableStore::ReadOn's.
  absl::Status Read(absl::Span<ReadRequest> requests) override;
  // Reads whole variables, in order, as Read does. Also FailedPrecondition: a spec whose dtype or
  // shape differs from the variable's; the message names both.
  absl::StatusOr<std::vector<Tensor>> ReadAll(absl::Span<const VariableSpec> variables);

  // Combines the gradients of the worker's replicas and stages them for the step's commit. The
  // default is kMean (TensorFlow's is kSum). At the commit each variable's own optimizer applies
  // its gradient on the parameter server. Rows of IndexedSlices are concatenated. A collective:
  // every replica must call it, and it blocks until all have.
  //
  // The parameter is a StatusOr so that ApplyGradients(tape.Gradient(loss)) fits on one line; an
  // error in it becomes the error of all replicas. If there are no gradients, nothing is staged.
  //
  // InvalidArgument: a variable without an optimizer or of a dtype other than float32, or a
  // gradient whose shape differs from the variable's. FailedPrecondition: a second gradient for a
  // variable in one step, or a read-only step.
  absl::Status ApplyGradients(absl::StatusOr<Gradients> gradients, ReduceOp op = ReduceOp::kMean);
  // Uses `optimizer` instead of the variables' own. If the replicas pass different ones, replica
  // 0's is used. The optimizer's slots are created at its first use, before the step commits. Also
  // InvalidArgument: the errors of the optimizer's Validate.
  absl::Status ApplyGradients(absl::StatusOr<Gradients> gradients, const Optimizer& optimizer,
                              ReduceOp op = ReduceOp::kMean);

  // An object that this replica keeps between steps, such as a LibTorch module or a scratch buffer.
  // `make` creates it at first use. It is lost with the worker, so never keep the model's state in
  // it. The same key with another T is another object.
  template <typename T>
  T& Local(absl::string_view key, std::function<std::unique_ptr<T>()> make) {
    return strategy_.parts().locals->Get<T>(absl::StrCat("replica ", id_, "/", key), make);
  }

 private:
  friend class Strategy;
  friend class Variable;
  ReplicaContext(Strategy& strategy, int id, internal::Rendezvous* rendezvous)
      : strategy_(strategy), id_(id), rendezvous_(rendezvous) {}

  template <typename In, typename Out>
  struct Payload {
    absl::StatusOr<In> in;
    std::optional<Out> out;
  };

  // One collective. `complete` maps the values of all replicas to one result for each replica. If a
  // replica's value is an error, all replicas get the error. `Tag` distinguishes collectives whose
  // types are equal.
  template <typename In, typename Out, typename Tag = void>
  absl::StatusOr<Out> Meet(
      std::string call, absl::string_view instead, absl::StatusOr<In> in,
      const std::function<absl::StatusOr<PerReplica<Out>>(const PerReplica<In>&)>& complete,
      absl::Duration timeout = absl::InfiniteDuration()) {
    using Mine = Payload<In, Out>;
    Mine mine{std::move(in), std::nullopt};
    const auto carry_out = [&complete](absl::Span<void* const> payloads) -> absl::Status {
      std::vector<In> ins;
      for (void* payload : payloads) ins.push_back(*std::move(static_cast<Mine*>(payload)->in));
      DIVVY_ASSIGN_OR_RETURN(PerReplica<Out> outs, complete(PerReplica<In>(std::move(ins))));
      for (size_t i = 0; i < payloads.size(); ++i)
        static_cast<Mine*>(payloads[i])->out.emplace(outs[i]);
      return absl::OkStatus();
    };
    DIVVY_RETURN_IF_ERROR(MeetOthers(instead, {std::move(call), &typeid(void (*)(Mine, Tag*)),
                                               &mine, carry_out, mine.in.status(), timeout}));
    return *std::move(mine.out);
  }
  template <typename Out>
  absl::StatusOr<PerReplica<Out>> ToEach(absl::StatusOr<Out> result) const {
    if (!result.ok()) return std::move(result).status();
    return PerReplica<Out>(std::vector<Out>(num_replicas_in_sync(), *std::move(result)));
  }
  absl::StatusOr<PerReplica<std::monostate>> ToEach(absl::Status status) const {
    if (!status.ok()) return status;
    return PerReplica<std::monostate>(std::vector<std::monostate>(num_replicas_in_sync()));
  }
  template <typename Out>
  absl::StatusOr<PerReplica<Out>> ToEach(absl::StatusOr<PerReplica<Out>> result) const {
    if (result.ok() && result->size() != num_replicas_in_sync()) return WrongSize(result->size());
    return result;
  }
  template <typename Result, typename F, typename Tuple, size_t... I>
  absl::StatusOr<PerReplica<Result>> CallMerged(F& fn, const PerReplica<Tuple>& tuples,
                                                std::index_sequence<I...>) const {
    internal::ContextEntry entry({internal::ContextKind::kMerge, &strategy_});
    return ToEach(fn(strategy_, internal::ElementOfEach<I>(tuples)...));
  }
  absl::Status WrongSize(int size) const;
  absl::Status MeetOthers(absl::string_view instead, internal::Arrival arrival);
  absl::StatusOr<Nest> AllReduceNest(ReduceOp op, absl::StatusOr<Nest> value,
                                     const CommunicationOptions& options);
  absl::StatusOr<Nest> MeetToReduce(std::string call, ReduceOp op, absl::StatusOr<Nest> value,
                                    const CommunicationOptions& of_call);
  absl::StatusOr<Nest> AllGatherNest(Nest value, int axis);
  Var Recorded(ReduceOp op, const CommunicationOptions& options,
               const absl::StatusOr<Nest>& reduced, const Var& value);
  absl::Status Apply(absl::StatusOr<Gradients> gradients, const std::optional<Optimizer>& optimizer,
                     ReduceOp op);
  std::string GradientOf(absl::string_view call);  // of the next differentiable collective

  Strategy& strategy_;
  const int id_;
  internal::Rendezvous* rendezvous_ = nullptr;  // null: made by hand, or the only replica
  int num_differentiable_ = 0;                  // collectives on Vars so far
};

}  // namespace divvy

#endif  // DIVVY_STRATEGY_REPLICA_CONTEXT_H_
