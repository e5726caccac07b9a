#include "strategy/strategy.h"

#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/guarded.h"
#include "base/status_macros.h"
#include "strategy/rendezvous.h"
#include "strategy/replica_context.h"
#include "strategy/variable_store.h"

namespace divvy {

using internal::CheckCrossReplica;
using internal::Context;
using internal::ContextEntry;
using internal::ContextKind;
using internal::CurrentContext;

namespace {

// One replica's part of a Run. The task leaves the rendezvous when it has run, or when a stopped
// executor drops it without running it. So the other replicas never wait for a task that has ended.
class ReplicaTask {
 public:
  ReplicaTask(internal::Rendezvous& rendezvous, int id, std::function<absl::Status()> body)
      : rendezvous_(rendezvous), id_(id), body_(std::move(body)) {}
  ReplicaTask(const ReplicaTask&) = delete;
  ReplicaTask& operator=(const ReplicaTask&) = delete;
  ~ReplicaTask() {
    if (body_)
      rendezvous_.Leave(id_, absl::CancelledError(absl::StrCat(
                                 "replica ", id_, " was not started: this process is stopping")));
  }
  void Run() {
    absl::Status status = internal::Guarded<absl::Status>(absl::StrCat("replica ", id_), body_);
    body_ = nullptr;
    // The last access to this Run's objects: Strategy::Run may return after it.
    rendezvous_.Leave(id_, std::move(status));
  }

 private:
  internal::Rendezvous& rendezvous_;
  const int id_;
  std::function<absl::Status()> body_;
};

StrategyParts WithLocals(StrategyParts parts) {
  if (parts.locals == nullptr) parts.locals = std::make_shared<LocalObjects>();
  return parts;
}

}  // namespace

Strategy::Strategy(StrategyParts parts) : parts_(WithLocals(std::move(parts))), extended_(*this) {}
Strategy::~Strategy() = default;

Strategy& internal::DefaultStrategy() {
  static Strategy* const strategy = new Strategy(StrategyParts());
  return *strategy;
}

Strategy& Strategy::Current() {
  Strategy* const current = CurrentContext().strategy;
  return current != nullptr ? *current : internal::DefaultStrategy();
}

StrategyScope Strategy::Scope() {
  // The default strategy's scope changes nothing: the default strategy's replica is current in this
  // scope, as it is outside of every scope.
  const bool is_default = this == &internal::DefaultStrategy();
  Context context{is_default ? ContextKind::kDefault : ContextKind::kScope,
                  is_default ? nullptr : this};
  context.error = CheckCrossReplica(*this, "Scope", "the strategy that is current there already");
  if (CurrentContext().strategy == this) context.colocation = CurrentContext().colocation;
  return StrategyScope(std::move(context));
}

absl::StatusOr<std::shared_ptr<VariableStore>> Strategy::store(absl::string_view call) const {
  RETURN_IF_ERROR(CurrentContext().error);
  if (parts_.store != nullptr) return parts_.store;
  return absl::FailedPreconditionError(
      absl::StrCat(call, ": the default strategy has no variables; enter strategy.Scope() first"));
}

absl::StatusOr<Variable> Strategy::CreateVariable(const VariableSpec& spec) {
  RETURN_IF_ERROR(CheckCrossReplica(*this, "CreateVariable", "a variable made on the coordinator"));
  ASSIGN_OR_RETURN(std::shared_ptr<VariableStore> store, this->store("CreateVariable"));
  RETURN_IF_ERROR(Validate(spec));
  ASSIGN_OR_RETURN(VariableInfo info, store->Create(spec, CurrentContext().colocation));
  return Variable(std::move(store), std::make_shared<const VariableInfo>(std::move(info)));
}

absl::StatusOr<Variable> Strategy::FindVariable(absl::string_view name) const {
  ASSIGN_OR_RETURN(std::shared_ptr<VariableStore> store, this->store("FindVariable"));
  ASSIGN_OR_RETURN(VariableInfo info, store->Find(name));
  return Variable(std::move(store), std::make_shared<const VariableInfo>(std::move(info)));
}

absl::StatusOr<Variable> CreateVariable(const VariableSpec& spec) {
  if (CurrentContext().kind == ContextKind::kDefault) {
    return absl::FailedPreconditionError(
        absl::StrCat("CreateVariable(\"", spec.name,
                     "\") was called outside a scope; enter strategy.Scope() first"));
  }
  return Strategy::Current().CreateVariable(spec);
}

absl::Status Strategy::CheckValues(absl::string_view call, absl::string_view instead,
                                   int size) const {
  RETURN_IF_ERROR(CheckCrossReplica(*this, call, instead));
  if (size == num_replicas_in_sync()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(call, ": the value has ", size, " components, but the strategy has ",
                   num_replicas_in_sync(), " replicas; use a value of this strategy"));
}

absl::Status Strategy::CheckRun(std::vector<int> sizes) const {
  constexpr absl::string_view kInstead = "a plain call: the function runs on every replica already";
  RETURN_IF_ERROR(CheckCrossReplica(*this, "Run", kInstead));
  for (int size : sizes) {
    if (size >= 0) RETURN_IF_ERROR(CheckValues("Run", kInstead, size));
  }
  return absl::OkStatus();
}

absl::Status Strategy::RunReplicas(const ReplicaBody& body) {
  const int n = num_replicas_in_sync();
  internal::Rendezvous rendezvous(n);
  const auto task = [&](int id) {
    return std::make_shared<ReplicaTask>(rendezvous, id, [this, &body, &rendezvous, id, n] {
      ReplicaContext replica(*this, id, n > 1 ? &rendezvous : nullptr);
      ContextEntry entry({ContextKind::kReplica, this, &replica});
      return body(replica, id);
    });
  };
  for (int id = 1; id < n; ++id) {
    parts_.executor->PostBlocking(absl::StrCat("replica-", id), [run = task(id)] { run->Run(); });
  }
  task(0)->Run();
  return rendezvous.WaitForAll();
}

absl::StatusOr<Nest> Strategy::Reduce(ReduceOp op, const Nest& value, const Axes& axes) {
  RETURN_IF_ERROR(CheckCrossReplica(*this, "Reduce", "replica.AllReduce"));
  RETURN_IF_ERROR(value.status());
  if (axes.values().empty()) return value;
  return internal::ReduceNests(op, std::vector<Nest>(num_replicas_in_sync(), value), axes);
}

absl::StatusOr<Tensor> Strategy::Gather(const PerReplica<Tensor>& value, int axis) {
  RETURN_IF_ERROR(CheckValues("Gather", "replica.AllGather", value.size()));
  if (this == &internal::DefaultStrategy()) return value[0];
  return internal::GatherTensors(value.values(), axis);
}

absl::StatusOr<Tensor> Strategy::Gather(const Tensor& value, int axis) {
  RETURN_IF_ERROR(CheckCrossReplica(*this, "Gather", "replica.AllGather"));
  return value;
}

std::vector<Device> StrategyExtended::worker_devices() const {
  return strategy_.parts().replica_devices;
}

std::vector<std::string> StrategyExtended::parameter_devices() const {
  std::vector<std::string> devices;
  if (strategy_.cluster_resolver() == nullptr) return devices;
  const absl::StatusOr<ClusterSpec> cluster = strategy_.cluster_resolver()->cluster_spec();
  if (!cluster.ok()) return devices;
  for (int task : cluster->task_indices("ps"))
    devices.push_back(absl::StrCat("/job:ps/replica:0/task:", task, "/device:CPU:0"));
  return devices;
}

absl::StatusOr<StrategyScope> StrategyExtended::ColocateVarsWith(const Variable& variable,
                                                                 std::optional<int> shard) {
  RETURN_IF_ERROR(CheckCrossReplica(strategy_, "ColocateVarsWith",
                                    "it where variables are created, on the coordinator"));
  if (CurrentContext().strategy != &strategy_) {
    return absl::FailedPreconditionError(
        "ColocateVarsWith was called while its strategy is not the current one; enter "
        "strategy.Scope() first");
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<VariableStore> store, strategy_.store("ColocateVarsWith"));
  const std::string name = absl::StrCat("variable \"", variable.spec().name, "\"");
  if (variable.store_->job() != store->job()) {
    return absl::InvalidArgumentError(
        absl::StrCat("ColocateVarsWith: ", name, " was not created under this strategy"));
  }
  const int shards = static_cast<int>(variable.shard_offsets().size()) - 1;
  if (!shard && shards > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("ColocateVarsWith: ", name, " has ", shards,
                     " shards, on several parameter servers: name one shard"));
  }
  if (shard && (*shard < 0 || *shard >= shards)) {
    return absl::InvalidArgumentError(absl::StrCat("ColocateVarsWith: ", name, " has ", shards,
                                                   " shards, and no shard ", *shard));
  }
  Context context = CurrentContext();
  context.colocation = Colocation{variable.spec().name, shard.value_or(0)};
  return StrategyScope(std::move(context));
}

absl::Status StrategyExtended::Update(const Variable& variable, Variable::Scatter op,
                                      const Nest& value) {
  RETURN_IF_ERROR(
      CheckCrossReplica(strategy_, "Update", "the variable's own Assign or ScatterRows"));
  if (value.kind() == Nest::Kind::kIndexedSlices) {
    ASSIGN_OR_RETURN(IndexedSlices slices, value.indexed_slices());
    return variable.ScatterRows(op, slices);
  }
  ASSIGN_OR_RETURN(Tensor tensor, value.tensor());
  if (op == Variable::Scatter::kUpdate) return variable.Assign(tensor);
  if (op == Variable::Scatter::kAdd) return variable.AssignAdd(tensor);
  if (op == Variable::Scatter::kSub) return variable.AssignSub(tensor);
  return absl::InvalidArgumentError(
      absl::StrCat("Update of \"", absl::string_view(variable),
                   "\": a whole tensor can be assigned, added or subtracted (kUpdate, kAdd, kSub); "
                   "for other ops give IndexedSlices"));
}

}  // namespace divvy
