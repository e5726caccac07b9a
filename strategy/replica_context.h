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

// What MergeCall gives a replica: T of StatusOr<PerReplica<T>> or StatusOr<T>; monostate for
// Status.
template <typename F, typename... Args>
using MergeReturnT =
    typename Fallible<std::invoke_result_t<F&, Strategy&, PerReplica<std::decay_t<Args>>...>>::type;
template <typename F, typename... Args>
using MergeResultT = typename ComponentOf<MergeReturnT<F, Args...>>::type;

// The I-th elements, replica by replica.
template <size_t I, typename Tuple>
auto ElementOfEach(const PerReplica<Tuple>& tuples) {
  std::vector<std::tuple_element_t<I, Tuple>> elements;
  for (const Tuple& tuple : tuples.values()) elements.push_back(std::get<I>(tuple));
  return PerReplica(std::move(elements));
}

}  // namespace internal

// A replica context made by hand is the thread's current one while this lives. Movable; ends on the
// thread it began on.
class [[nodiscard]] Entered {
 private:
  friend class ReplicaContext;
  explicit Entered(internal::Context context) : entry_(std::move(context)) {}
  internal::ContextEntry entry_;
};

// What a replica function is given: who the replica is, how it meets the others, what it reads from
// and gives its gradients to.
//
//   absl::StatusOr<Metrics> TrainReplica(ReplicaContext& replica, const Nest& batch) {
//     GradientTape tape(replica);
//     Var losses = Losses(tape, batch);
//     RETURN_IF_ERROR(replica.ApplyGradients(tape.Gradient(ReduceMean(losses))));
//     return Collect({{"loss", MeanOf(losses)}});
//   }
//
// Used on its replica's thread only, while its function runs. Calls made anywhere else (in a merge
// function, after Run) are FailedPrecondition and name the call to use.
class ReplicaContext : public VariableReader {
 public:
  // By hand only in tests; Run makes them.
  ReplicaContext(Strategy& strategy, int replica_id_in_sync_group);
  ReplicaContext(const ReplicaContext&) = delete;
  ReplicaContext& operator=(const ReplicaContext&) = delete;

  // get_replica_context(): outside everything the default one. FailedPrecondition in cross-replica
  // context.
  static absl::StatusOr<ReplicaContext*> Current();
  // __enter__ and __exit__: current while the value lives. InvalidArgument: id not in [0, R).
  // FailedPrecondition: another strategy's context is current.
  absl::StatusOr<Entered> Enter();

  int replica_id_in_sync_group() const { return id_; }
  int num_replicas_in_sync() const { return strategy_.num_replicas_in_sync(); }
  Strategy& strategy() const { return strategy_; }
  // Where this replica computes.
  Device device() const override;
  // TensorFlow's form: {"/job:worker/replica:0/task:1/device:GPU:0"}
  std::vector<std::string> devices() const;
  // number of the step; the same on every attempt
  int64_t step() const { return strategy_.parts().step; }
  // From (job, step, replica): the same on every attempt.
  uint64_t seed() const override;

  // Collectives. All replicas must make the same calls in the same order; they block until all have
  // come. Another kind, op, structure, dtype or shape: InvalidArgument for all, naming both
  // replicas. A replica that returns or fails without coming: FailedPrecondition or its error for
  // those who wait. One that comes with an error (a failed Nest, Var or Gradients) gives it to all,
  // and their next calls meet again.
  // One replica: the identity. A context made by hand has nobody to meet: FailedPrecondition if
  // there are several replicas.

  // T: a Nest, or travels as one (a tensor, IndexedSlices, vectors and maps of them). Rules:
  // internal::ReduceNests, but IndexedSlices meet only their like. One meeting for all of its
  // leaves. InvalidArgument: negative bytes_per_pack.
  template <typename T>
  absl::StatusOr<T> AllReduce(ReduceOp op, const T& value,
                              const CommunicationOptions& options = {}) {
    DIVVY_ASSIGN_OR_RETURN(Nest reduced, AllReduceNest(op, NestCodec<T>::Encode(value), options));
    return NestCodec<T>::Decode(reduced);
  }
  // Differentiable: the gradient of an all-reduce is the all-reduce of the gradient, with the same
  // op. All replicas must differentiate alike: the gradient of one replica's n-th differentiable
  // collective meets that of the others' n-th, or it is InvalidArgument. A failed Var fails it on
  // all replicas.
  Var AllReduce(ReduceOp op, const Var& value, const CommunicationOptions& options = {});
  // One meeting for all of them; each has a gradient of its own.
  std::vector<Var> AllReduce(ReduceOp op, const std::vector<Var>& values,
                             const CommunicationOptions& options = {});
  // T: as AllReduce. Leaf by leaf, concatenated in replica order; only `axis` may differ in length.
  // Errors: internal::GatherNests.
  template <typename T>
  absl::StatusOr<T> AllGather(const T& value, int axis) {
    DIVVY_ASSIGN_OR_RETURN(Nest gathered, AllGatherNest(NestCodec<T>::Encode(value), axis));
    return NestCodec<T>::Decode(gathered);
  }
  // Differentiable: a replica's gradient is its slice of the sum of all gradients. Otherwise as
  // AllReduce of a Var.
  Var AllGather(const Var& value, int axis);

  // fn(Strategy&, PerReplica<Args>...) runs once, in cross-replica context, on one of the replicas'
  // threads while all wait; it is replica 0's fn, and those of the others must be of its type. A
  // PerReplica result is unpacked, any other goes to each replica. InvalidArgument: one of another
  // size.
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

  // Without a tape, with any other library. One call, one round trip; what several replicas read
  // whole is fetched once for their worker. On device(). Blocks. Errors: VariableStore::Read's.
  absl::Status Read(absl::Span<ReadRequest> requests) override;
  // The whole values in order, as Read. FailedPrecondition, too: a spec of another dtype or shape
  // than the variable's; names both.
  absl::StatusOr<std::vector<Tensor>> ReadAll(absl::Span<const VariableSpec> variables);

  // Combines the gradients of the worker's replicas (kMean unless told otherwise; TensorFlow: kSum)
  // and stages them for the step's commit, where each variable's own optimizer applies them on its
  // ps. Rows of IndexedSlices are concatenated. Once per step and variable: FailedPrecondition the
  // second time. Takes the StatusOr, so that ApplyGradients(tape.Gradient(loss)) is one line: its
  // error is that of all replicas. No gradients at all: nothing is staged. InvalidArgument: a
  // variable that names no optimizer, or is not float32; a gradient of another shape.
  // FailedPrecondition, too: a read-only step. A collective, which every replica must call; it
  // blocks until all have.
  absl::Status ApplyGradients(absl::StatusOr<Gradients> gradients, ReduceOp op = ReduceOp::kMean);
  // With this optimizer instead of the variables' own (replica 0's counts). Slots that it needs are
  // made when it is first used, before the step commits. InvalidArgument, too: what Validate says
  // of the optimizer.
  absl::Status ApplyGradients(absl::StatusOr<Gradients> gradients, const Optimizer& optimizer,
                              ReduceOp op = ReduceOp::kMean);

  // An object kept between steps by this replica, made at first use (a LibTorch module, a scratch
  // buffer). Gone when the worker is: never put state of the model in it. Another T under the same
  // key is another object.
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

  // One collective: `complete` maps what all replicas bring to what each takes home. A replica that
  // brings an error fails all. `Tag` tells collectives of equal types apart.
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
                                    const CommunicationOptions& options);
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
