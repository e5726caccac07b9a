#include "strategy/variable.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "strategy/context.h"
#include "strategy/replica_context.h"
#include "strategy/strategy.h"
#include "strategy/variable_store.h"
#include "variables/table_parts.h"

namespace divvy {
namespace {

WriteOp ScatterOp(Variable::Scatter op) {
  switch (op) {
    case Variable::Scatter::kUpdate: return WriteOp::kScatterUpdate;
    case Variable::Scatter::kAdd: return WriteOp::kScatterAdd;
    case Variable::Scatter::kSub: return WriteOp::kScatterSub;
    case Variable::Scatter::kMul: return WriteOp::kScatterMul;
    case Variable::Scatter::kDiv: return WriteOp::kScatterDiv;
    case Variable::Scatter::kMin: return WriteOp::kScatterMin;
    case Variable::Scatter::kMax: return WriteOp::kScatterMax;
  }
  return WriteOp::kScatterUpdate;
}

absl::StatusOr<Tensor> Int64Ids(const Tensor& given) {
  ASSIGN_OR_RETURN(Tensor ids, given.To(Device{}));
  if (ids.dtype() != DType::kInt32) return ids;
  ASSIGN_OR_RETURN(absl::Span<const int32_t> narrow, ids.values<int32_t>());
  const std::vector<int64_t> wide(narrow.begin(), narrow.end());
  return Tensor::Copy<int64_t>(ids.shape(), wide);
}

// Moves a value to the device of the replica that reads it.
absl::StatusOr<Tensor> OnThisReplica(absl::StatusOr<Tensor> value) {
  const ReplicaContext* const replica = internal::CurrentContext().replica;
  if (!value.ok() || replica == nullptr) return value;
  return value->To(replica->device());
}

}  // namespace

const VariableSpec& Variable::spec() const { return info_->spec; }

absl::Span<const int64_t> Variable::shard_offsets() const { return info_->shard_offsets; }

std::vector<int> Variable::shard_servers() const { return info_->shard_servers; }

// The store to use on this thread. In a step this is the step's store, also for a handle from
// elsewhere in the job. A handle of another job is refused, because its variable of the same name
// is a different variable.
absl::StatusOr<std::shared_ptr<VariableStore>> Variable::StoreHere() const {
  const internal::Context& context = internal::CurrentContext();
  RETURN_IF_ERROR(context.error);
  if (context.strategy == nullptr || context.strategy->parts().store == nullptr) return store_;
  const std::shared_ptr<VariableStore>& current = context.strategy->parts().store;
  if (current->job() == store_->job()) return current;
  return absl::FailedPreconditionError(
      absl::StrCat("variable \"", spec().name, "\" belongs to the strategy of job ",
                   absl::Hex(store_->job().value()), ", and the strategy of job ",
                   absl::Hex(current->job().value()),
                   " is current on this thread: strategies do not mix. Let that scope end first, "
                   "or use the variable that ",
                   "FindVariable returns inside it"));
}

absl::StatusOr<Tensor> Variable::ReadRows(std::optional<Tensor> ids) const {
  ASSIGN_OR_RETURN(std::shared_ptr<VariableStore> store, StoreHere());
  ReadRequest request;
  request.name = spec().name;
  request.ids = std::move(ids);
  RETURN_IF_ERROR(store->Read(absl::MakeSpan(&request, 1)));
  return request.value;
}

absl::Status Variable::CheckHasRowNumbers(absl::string_view what) const {
  if (!spec().table) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " of dynamic table \"", spec().name,
                   "\": its rows have keys and no numbers; read them with Rows(keys)"));
}

absl::StatusOr<Tensor> Variable::Read() const { return OnThisReplica(ReadRows(std::nullopt)); }

absl::StatusOr<Tensor> Variable::Slice(std::optional<int64_t> start, std::optional<int64_t> stop,
                                       int64_t step) const {
  RETURN_IF_ERROR(CheckHasRowNumbers("Slice"));
  if (step == 0)
    return absl::InvalidArgumentError(
        absl::StrCat("Slice of \"", spec().name, "\": the step must not be 0"));
  if (spec().shape.rank() == 0)
    return absl::InvalidArgumentError(
        absl::StrCat("Slice of \"", spec().name, "\": it has rank 0 and so no rows; Read it"));
  const std::vector<int64_t> rows = internal::SliceRows(start, stop, step, spec().shape.dim(0));
  if (step == 1 && static_cast<int64_t>(rows.size()) == spec().shape.dim(0)) return Read();
  return OnThisReplica(ReadRows(Tensor::Vector<int64_t>(rows)));
}

absl::StatusOr<Tensor> Variable::At(absl::Span<const IndexItem> index) const {
  RETURN_IF_ERROR(CheckHasRowNumbers("At"));
  const absl::StatusOr<internal::IndexPlan> plan = internal::PlanIndex(index, spec().shape);
  if (!plan.ok())
    return absl::Status(plan.status().code(),
                        absl::StrCat("At of \"", spec().name, "\": ", plan.status().message()));
  // The rows are distinct and in range.
  const auto all_rows = [this](const std::vector<int64_t>& rows) {
    return static_cast<int64_t>(rows.size()) == spec().shape.dim(0) &&
           std::is_sorted(rows.begin(), rows.end());
  };
  const bool whole =
      plan->positions.empty() || spec().shape.rank() == 0 || all_rows(plan->positions[0]);
  ASSIGN_OR_RETURN(const Tensor rows, whole
                                          ? ReadRows(std::nullopt)
                                          : ReadRows(Tensor::Vector<int64_t>(plan->positions[0])));
  return OnThisReplica(internal::TakePlanned(*plan, rows));
}

absl::StatusOr<Tensor> Variable::Rows(const Tensor& ids) const {
  if (spec().shape.rank() == 0)
    return absl::InvalidArgumentError(
        absl::StrCat("Rows of \"", spec().name, "\": it has rank 0 and so no rows; Read it"));
  ASSIGN_OR_RETURN(Tensor wide, Int64Ids(ids));
  std::vector<int64_t> dims(wide.shape().dims().begin(), wide.shape().dims().end());
  for (int axis = 1; axis < spec().shape.rank(); ++axis) dims.push_back(spec().shape.dim(axis));
  ASSIGN_OR_RETURN(wide, wide.Reshape({-1}));
  ASSIGN_OR_RETURN(Tensor rows, ReadRows(std::move(wide)));
  return OnThisReplica(rows.Reshape(Shape(dims)));
}

absl::Status Variable::CheckIsTable(absl::string_view what) const {
  if (spec().table) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " of variable \"", spec().name,
                   "\": it is no dynamic table. Read its rows with Rows(ids), or declare it as a "
                   "DynamicTable"));
}

absl::StatusOr<std::vector<TableRow>> Variable::Find(absl::Span<const int64_t> keys) const {
  RETURN_IF_ERROR(CheckIsTable("Find"));
  ASSIGN_OR_RETURN(const std::shared_ptr<VariableStore> store, StoreHere());
  const Tensor ids = Tensor::Vector<int64_t>(keys);
  ASSIGN_OR_RETURN(const std::vector<Tensor> read,
                   store->ReadTable({{spec().name, ids, PullWant::kValues},
                                     {spec().name, ids, PullWant::kRecords}}));
  const auto* values = read[0].data_as<float>();
  const auto* record = read[1].data_as<int64_t>();
  const int64_t width = spec().shape.dim(1);
  std::vector<TableRow> rows;
  rows.reserve(keys.size());
  for (const int64_t key : keys) {
    const bool exists = record[0] >= 0;
    rows.push_back({key, exists, exists ? record[0] : 0, record[1], {values, values + width}});
    values += width;
    record += kTableRecordWidth;
  }
  return rows;
}

absl::StatusOr<TableStats> Variable::Stats() const {
  RETURN_IF_ERROR(CheckIsTable("Stats"));
  ASSIGN_OR_RETURN(const std::shared_ptr<VariableStore> store, StoreHere());
  // A resize may cut and place the table anew while it is read.
  while (true) {
    ASSIGN_OR_RETURN(const VariableInfo before, store->Find(spec().name));
    ASSIGN_OR_RETURN(const std::vector<Tensor> read,
                     store->ReadTable({{spec().name, std::nullopt, PullWant::kStats}}));
    ASSIGN_OR_RETURN(const VariableInfo after, store->Find(spec().name));
    if (before.shard_servers != after.shard_servers ||
        before.shard_servers.size() != static_cast<size_t>(read[0].shape().dim(0)))
      continue;
    TableStats stats;
    const auto* part = read[0].data_as<int64_t>();
    for (const int ps : after.shard_servers) {
      stats.servers[ps] += ReadStats(part);
      stats += ReadStats(part);
      part += kTableStatsWidth;
    }
    return stats;
  }
}

absl::Status Variable::Assign(const Tensor& value) const {
  return WriteDense(WriteOp::kAssign, value);
}
absl::Status Variable::AssignAdd(const Tensor& value) const {
  return WriteDense(WriteOp::kAdd, value);
}
absl::Status Variable::AssignSub(const Tensor& value) const {
  return WriteDense(WriteOp::kSub, value);
}

absl::Status Variable::ScatterRows(Scatter op, const IndexedSlices& rows) const {
  ASSIGN_OR_RETURN(std::shared_ptr<VariableStore> store, StoreHere());
  IndexedSlices wide = rows;
  ASSIGN_OR_RETURN(wide.ids, Int64Ids(rows.ids));
  const absl::Status valid = Validate(wide);
  if (!valid.ok())
    return absl::Status(valid.code(),
                        absl::StrCat("ScatterRows of \"", spec().name, "\": ", valid.message()));
  const int64_t any_id = IndexedSlices::kAnyId;
  if (spec().shape.rank() == 0 || wide.num_rows != (spec().table ? any_id : spec().shape.dim(0))) {
    return absl::InvalidArgumentError(
        absl::StrCat("ScatterRows of \"", spec().name, "\": the slices are of a tensor of ",
                     wide.num_rows, " rows, but the variable has shape ", spec().shape.ToString()));
  }
  return store->Write({StagedWrite{spec().name, ScatterOp(op), wide.rows, wide.ids, std::nullopt}});
}

absl::Status Variable::WriteDense(WriteOp op, const Tensor& value) const {
  ASSIGN_OR_RETURN(std::shared_ptr<VariableStore> store, StoreHere());
  ReplicaContext* replica = internal::CurrentContext().replica;
  if (replica != nullptr && replica->num_replicas_in_sync() > 1)
    return CombineAndWrite(*replica, *store, op, value);
  return store->Write({StagedWrite{spec().name, op, value, std::nullopt, std::nullopt}});
}

absl::Status Variable::CombineAndWrite(ReplicaContext& replica, VariableStore& store, WriteOp op,
                                       const Tensor& value) const {
  const std::string call = absl::StrCat(WriteOpName(op), " of \"", spec().name, "\"");
  const VariableAggregation aggregation = spec().aggregation;
  if (aggregation == VariableAggregation::kNone) {
    return absl::InvalidArgumentError(
        absl::StrCat(call,
                     " by several replicas: its spec does not say how they combine; set "
                     "`aggregation` to kSum, kMean or "
                     "kOnlyFirstReplica, or write outside Run"));
  }
  const auto combine =
      [&](const PerReplica<Tensor>& values) -> absl::StatusOr<PerReplica<std::monostate>> {
    Nest combined(values[0]);
    if (aggregation != VariableAggregation::kOnlyFirstReplica) {
      const ReduceOp reduce =
          aggregation == VariableAggregation::kSum ? ReduceOp::kSum : ReduceOp::kMean;
      ASSIGN_OR_RETURN(combined,
                       internal::ReduceNests(reduce, internal::EncodeAll(values), kNoAxis));
    }
    ASSIGN_OR_RETURN(Tensor written, combined.tensor());
    return replica.ToEach(
        store.Write({StagedWrite{spec().name, op, written, std::nullopt, std::nullopt}}));
  };
  return replica.Meet<Tensor, std::monostate, Variable>(call, "assign directly", value, combine)
      .status();
}

}  // namespace divvy
