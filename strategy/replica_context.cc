#include "strategy/replica_context.h"

#include <algorithm>

#include "base/random.h"
#include "base/status_macros.h"
#include "base/trace_range.h"
#include "ops/recording.h"
#include "strategy/rendezvous.h"
#include "strategy/variable_store.h"

namespace divvy {

using internal::Context;
using internal::ContextKind;
using internal::CurrentContext;

ReplicaContext& internal::DefaultReplicaContext() {
  thread_local ReplicaContext replica(DefaultStrategy(), 0);
  return replica;
}

ReplicaContext::ReplicaContext(Strategy& strategy, int replica_id_in_sync_group)
    : strategy_(strategy), id_(replica_id_in_sync_group) {}

absl::StatusOr<ReplicaContext*> ReplicaContext::Current() {
  const Context& context = CurrentContext();
  RETURN_IF_ERROR(context.error);
  if (context.kind == ContextKind::kReplica) return context.replica;
  if (context.kind == ContextKind::kDefault) return &internal::DefaultReplicaContext();
  return absl::FailedPreconditionError(
      "there is no replica context in cross-replica context (a scope, a step function, a merge "
      "function); use strategy.Run");
}

absl::StatusOr<Entered> ReplicaContext::Enter() {
  if (id_ < 0 || id_ >= num_replicas_in_sync()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "replica ", id_, " is not one of the strategy's ", num_replicas_in_sync(), " replicas"));
  }
  const Context& context = CurrentContext();
  RETURN_IF_ERROR(context.error);
  if (context.kind != ContextKind::kDefault && &Strategy::Current() != &strategy_) {
    return absl::FailedPreconditionError(
        "a replica context cannot be entered while another strategy's context is current on this "
        "thread");
  }
  return Entered({ContextKind::kReplica, &strategy_, this});
}

Device ReplicaContext::device() const {
  const std::vector<Device>& devices = strategy_.parts().replica_devices;
  return devices[std::clamp<size_t>(id_, 0, devices.size() - 1)];
}

std::vector<std::string> ReplicaContext::devices() const {
  const ClusterResolver* resolver = strategy_.cluster_resolver();
  const std::string type = resolver != nullptr ? resolver->task_type() : "";
  const int task = resolver != nullptr ? resolver->task_id().value_or(0) : 0;
  return {absl::StrCat("/job:", type.empty() ? "localhost" : type, "/replica:0/task:", task,
                       "/device:", device().ToString())};
}

uint64_t ReplicaContext::seed() const { return MixSeeds(strategy_.parts().seed, id_); }

absl::Status ReplicaContext::WrongSize(int size) const {
  return absl::InvalidArgumentError(absl::StrCat("MergeCall: the function returned ", size,
                                                 " components for ", num_replicas_in_sync(),
                                                 " replicas"));
}

absl::Status ReplicaContext::MeetOthers(absl::string_view instead,
                                        internal::Rendezvous::Arrival arrival) {
  if (arrival.timeout == absl::InfiniteDuration())
    arrival.timeout = strategy_.parts().communication.timeout;
  const std::string call = arrival.call;
  const TraceRange range(call.c_str());
  RETURN_IF_ERROR(internal::CheckReplica(*this, arrival.call, instead));
  if (rendezvous_ != nullptr) return rendezvous_->Meet(id_, std::move(arrival));
  if (num_replicas_in_sync() == 1)
    return arrival.error.ok() ? arrival.complete({arrival.payload}) : arrival.error;
  return absl::FailedPreconditionError(
      absl::StrCat(arrival.call,
                   ": this replica context was made by hand, so no other replica takes part; use "
                   "strategy.Run, or a strategy of one replica"));
}

namespace {

template <typename T>
absl::StatusOr<PerReplica<T>> Each(absl::StatusOr<std::vector<T>> values) {
  RETURN_IF_ERROR(values.status());
  return PerReplica<T>(*std::move(values));
}

}  // namespace

absl::StatusOr<Nest> ReplicaContext::AllReduceNest(ReduceOp op, absl::StatusOr<Nest> value,
                                                   const CommunicationOptions& options) {
  return MeetToReduce(absl::StrCat("AllReduce ", ReduceOpName(op)), op, std::move(value), options);
}

// This replica takes part even if its value or options are an error. So its later calls still match
// the other replicas' calls.
absl::StatusOr<Nest> ReplicaContext::MeetToReduce(std::string call, ReduceOp op,
                                                  absl::StatusOr<Nest> value,
                                                  const CommunicationOptions& of_call) {
  const CommunicationOptions options = MergeOptions(strategy_.parts().communication, of_call);
  if (options.bytes_per_pack < 0) {
    value = absl::InvalidArgumentError(absl::StrCat(
        "AllReduce: bytes_per_pack must not be negative, not ", options.bytes_per_pack));
  }
  const auto reduce = [&](const PerReplica<Nest>& values) -> absl::StatusOr<PerReplica<Nest>> {
    if (values.size() == 1) return values;
    return Each(internal::AllReduceNests(op, values.values(), options));
  };
  return Meet<Nest, Nest>(std::move(call), "use strategy.Reduce", std::move(value), reduce,
                          options.timeout);
}

absl::StatusOr<Nest> ReplicaContext::AllGatherNest(Nest value, int axis) {
  const auto gather = [&](const PerReplica<Nest>& values) -> absl::StatusOr<PerReplica<Nest>> {
    if (&strategy_ == &internal::DefaultStrategy()) return values;
    return Each(internal::AllGatherNests(values.values(), axis));
  };
  return Meet<Nest, Nest>(absl::StrCat("AllGather along axis ", axis), "use strategy.Gather",
                          std::move(value), gather);
}

namespace {

using Backward = std::vector<std::optional<Tensor>>;

absl::StatusOr<Nest> ToNest(const absl::StatusOr<Tensor>& tensor) {
  if (!tensor.ok()) return tensor.status();
  return Nest(*tensor);
}

absl::StatusOr<Nest> ToNest(const std::vector<Var>& values) {
  RETURN_IF_ERROR(internal::FirstError(values));
  Nest::List list;
  for (const Var& value : values) list.push_back(internal::ValueOf(value));
  return Nest(std::move(list));
}

absl::StatusOr<Backward> OneGradient(const absl::StatusOr<Nest>& gradient) {
  RETURN_IF_ERROR(gradient);
  ASSIGN_OR_RETURN(Tensor tensor, gradient->tensor());
  return Backward{std::move(tensor)};
}

// The offset of each replica's part in a gathered tensor, then the total length.
std::vector<int64_t> PartOffsets(const PerReplica<Tensor>& parts, int axis) {
  std::vector<int64_t> offsets = {0};
  for (const Tensor& part : parts.values())
    offsets.push_back(offsets.back() + part.shape().dim(axis));
  return offsets;
}

absl::StatusOr<PerReplica<Tensor>> SumAndCut(const PerReplica<Tensor>& gradients, int axis,
                                             const std::vector<int64_t>& offsets) {
  ASSIGN_OR_RETURN(const std::vector<Nest> sums,
                   internal::AllReduceNests(ReduceOp::kSum, internal::EncodeAll(gradients)));
  std::vector<Tensor> slices;
  for (int replica = 0; replica < gradients.size(); ++replica) {
    ASSIGN_OR_RETURN(const Tensor whole, sums[replica].tensor());
    ASSIGN_OR_RETURN(Tensor slice,
                     internal::SliceAxis(whole, axis, offsets[replica], offsets[replica + 1]));
    slices.push_back(std::move(slice));
  }
  return PerReplica<Tensor>(std::move(slices));
}

struct Gathered {
  Tensor whole;
  std::vector<int64_t> offsets;
};

}  // namespace

// The name has a number. Otherwise replicas that differentiate different collectives would combine
// gradients that do not belong together, without an error.
std::string ReplicaContext::GradientOf(absl::string_view call) {
  return absl::StrCat("the gradient of ", call, " (differentiable collective ",
                      ++num_differentiable_, ")");
}

// AllReduce's result for `value`, recorded with its derivative.
Var ReplicaContext::Recorded(ReduceOp op, const CommunicationOptions& options,
                             const absl::StatusOr<Nest>& reduced, const Var& value) {
  const std::string gradient_call = GradientOf(absl::StrCat("AllReduce ", ReduceOpName(op)));
  if (!reduced.ok()) return internal::FailedVar(reduced.status());
  return internal::Result(
      *reduced->tensor(), {value}, [this, op, options, gradient_call](const Tensor& gradient) {
        return OneGradient(MeetToReduce(gradient_call, op, Nest(gradient), options));
      });
}

Var ReplicaContext::AllReduce(ReduceOp op, const Var& value, const CommunicationOptions& options) {
  return Recorded(op, options, AllReduceNest(op, ToNest(value.Value()), options), value);
}

std::vector<Var> ReplicaContext::AllReduce(ReduceOp op, const std::vector<Var>& values,
                                           const CommunicationOptions& options) {
  const absl::StatusOr<Nest> reduced = AllReduceNest(op, ToNest(values), options);
  std::vector<Var> recorded;
  for (size_t i = 0; i < values.size(); ++i)
    recorded.push_back(Recorded(op, options, reduced.ok() ? (*reduced)[i] : reduced, values[i]));
  return recorded;
}

Var ReplicaContext::AllGather(const Var& value, int axis) {
  const std::string call = absl::StrCat("AllGather along axis ", axis),
                    gradient_call = GradientOf(call);
  const auto gather = [&](const PerReplica<Tensor>& parts) -> absl::StatusOr<PerReplica<Gathered>> {
    if (&strategy_ == &internal::DefaultStrategy())
      return ToEach(absl::StatusOr<Gathered>(Gathered{parts[0], {}}));
    ASSIGN_OR_RETURN(const std::vector<Nest> whole,
                     internal::AllGatherNests(internal::EncodeAll(parts), axis));
    std::vector<Gathered> gathered;
    for (const Nest& mine : whole) gathered.push_back({*mine.tensor(), PartOffsets(parts, axis)});
    return PerReplica<Gathered>(std::move(gathered));
  };
  const absl::StatusOr<Gathered> gathered =
      Meet<Tensor, Gathered>(call, "use strategy.Gather", value.Value(), gather);
  if (!gathered.ok()) return internal::FailedVar(gathered.status());
  return internal::Result(
      gathered->whole, {value},
      [this, axis, gradient_call,
       offsets = gathered->offsets](const Tensor& gradient) -> absl::StatusOr<Backward> {
        if (offsets.empty()) return Backward{gradient};
        const auto cut = [&](const PerReplica<Tensor>& gradients) {
          return SumAndCut(gradients, axis, offsets);
        };
        ASSIGN_OR_RETURN(
            Tensor mine,
            (Meet<Tensor, Tensor>(gradient_call, "differentiate inside the function given to Run",
                                  gradient, cut)));
        return Backward{std::move(mine)};
      });
}

absl::Status ReplicaContext::Read(absl::Span<ReadRequest> requests) {
  const TraceRange range("pull");
  RETURN_IF_ERROR(internal::CheckReplica(*this, "Read", "use variable.Read"));
  ASSIGN_OR_RETURN(std::shared_ptr<VariableStore> store, strategy_.store("Read"));
  return store->ReadOn(device(), requests);
}

absl::StatusOr<std::vector<Tensor>> ReplicaContext::ReadAll(
    absl::Span<const VariableSpec> variables) {
  std::vector<ReadRequest> requests(variables.size());
  for (size_t i = 0; i < variables.size(); ++i) requests[i].name = variables[i].name;
  RETURN_IF_ERROR(Read(absl::MakeSpan(requests)));
  std::vector<Tensor> values;
  for (size_t i = 0; i < variables.size(); ++i) {
    const Tensor& value = requests[i].value;
    if (value.dtype() != variables[i].dtype || value.shape() != variables[i].shape) {
      return absl::FailedPreconditionError(
          absl::StrCat("ReadAll: \"", variables[i].name, "\" was created as ", value.ToString(),
                       ", but this spec says ", DTypeName(variables[i].dtype), " ",
                       variables[i].shape.ToString()));
    }
    values.push_back(value);
  }
  return values;
}

absl::Status ReplicaContext::ApplyGradients(absl::StatusOr<Gradients> gradients, ReduceOp op) {
  return Apply(std::move(gradients), std::nullopt, op);
}

absl::Status ReplicaContext::ApplyGradients(absl::StatusOr<Gradients> gradients,
                                            const Optimizer& optimizer, ReduceOp op) {
  return Apply(std::move(gradients), optimizer, op);
}

namespace {

std::vector<StagedWrite> ToWrites(const Gradients& gradients,
                                  const std::optional<Optimizer>& optimizer) {
  std::vector<StagedWrite> writes;
  for (const auto& [name, gradient] : gradients.entries()) {
    const auto* slices = std::get_if<IndexedSlices>(&gradient);
    StagedWrite write{name, WriteOp::kGradient,
                      slices != nullptr ? slices->rows : std::get<Tensor>(gradient), std::nullopt,
                      optimizer};
    if (slices != nullptr) write.ids = slices->ids;
    writes.push_back(std::move(write));
  }
  return writes;
}

}  // namespace

absl::Status ReplicaContext::Apply(absl::StatusOr<Gradients> gradients,
                                   const std::optional<Optimizer>& optimizer, ReduceOp op) {
  const auto stage =
      [&](const PerReplica<Gradients>& all) -> absl::StatusOr<PerReplica<std::monostate>> {
    Gradients combined = all[0];
    if (all.size() > 1) {
      ASSIGN_OR_RETURN(const Nest reduced, internal::ReduceNests(op, internal::EncodeAll(all),
                                                                 kNoAxis, internal::Mixed::kRefuse,
                                                                 internal::RowsMeet::kOnGpus));
      ASSIGN_OR_RETURN(combined, NestCodec<Gradients>::Decode(reduced));
    }
    ASSIGN_OR_RETURN(std::shared_ptr<VariableStore> store, strategy_.store("ApplyGradients"));
    std::vector<StagedWrite> writes = ToWrites(combined, optimizer);
    return ToEach(writes.empty() ? absl::OkStatus() : store->Write(std::move(writes)));
  };
  const std::string call =
      absl::StrCat("ApplyGradients ", ReduceOpName(op), optimizer ? " with an optimizer" : "");
  return Meet<Gradients, std::monostate>(call, "stage them inside the function given to Run",
                                         std::move(gradients), stage)
      .status();
}

}  // namespace divvy
