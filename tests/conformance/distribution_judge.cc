#include "tests/conformance/distribution_judge.h"

#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/status_macros.h"
#include "partitioners/partitioner.h"
#include "program/main.h"
#include "strategy/coordinator.h"
#include "strategy/replica_context.h"
#include "strategy/strategy.h"
#include "strategy/variable.h"
#include "tests/conformance/sharded_variable.h"

namespace divvy::conformance {
namespace {

constexpr Tolerance kArithmetic{1e-6, 1e-6};
// The file does not have the number of rows of the IndexedSlices.
constexpr int64_t kRowsOfTheWhole = 1 << 20;

// ---- reduce_gather ------------------------------------------------------------------------------

absl::StatusOr<Nest> LeafFrom(const Json& value) {
  if (value.contains("ids")) {
    ASSIGN_OR_RETURN(IndexedSlices slices, SlicesFrom(value, kRowsOfTheWhole));
    return Nest(std::move(slices));
  }
  ASSIGN_OR_RETURN(Tensor tensor, TensorFrom(value));
  return Nest(std::move(tensor));
}

absl::StatusOr<PerReplica<Nest>> ValuesFrom(const Json& test_case) {
  std::vector<Nest> values;
  for (const Json& value : test_case.at("values")) {
    ASSIGN_OR_RETURN(Nest leaf, LeafFrom(value));
    values.push_back(std::move(leaf));
  }
  if (values.empty()) return absl::InvalidArgumentError("a case without values");
  return PerReplica<Nest>(std::move(values));
}

absl::StatusOr<PerReplica<Tensor>> TensorsOf(const PerReplica<Nest>& values) {
  std::vector<Tensor> tensors;
  for (const Nest& value : values.values()) {
    ASSIGN_OR_RETURN(Tensor tensor, value.tensor());
    tensors.push_back(std::move(tensor));
  }
  return PerReplica<Tensor>(std::move(tensors));
}

Axes AxesFrom(const Json& axis) {
  if (axis.is_null()) return Axes(kNoAxis);
  if (axis.is_number()) return Axes(axis.get<int>());
  return Axes(absl::Span<const int>(axis.get<std::vector<int>>()));
}

// The result of all replicas, which must be the same.
absl::StatusOr<Nest> SameOnAll(const absl::StatusOr<PerReplica<Nest>>& results) {
  RETURN_IF_ERROR(results.status());
  for (int i = 1; i < results->size(); ++i) {
    if (!BitwiseEqual((*results)[0], (*results)[i]))
      return absl::InternalError(absl::StrCat("replica ", i, " got another result than replica 0"));
  }
  return (*results)[0];
}

absl::StatusOr<Nest> Call(const Json& test_case, Strategy& strategy,
                          const PerReplica<Nest>& values) {
  const std::string call = test_case.at("call").get<std::string>();
  const Json& axis = test_case.at("axis");
  if (call == "gather" || call == "all_gather") {
    ASSIGN_OR_RETURN(PerReplica<Tensor> tensors, TensorsOf(values));
    const int along = axis.get<int>();
    if (call == "gather") {
      ASSIGN_OR_RETURN(Tensor gathered, strategy.Gather(tensors, along));
      return Nest(std::move(gathered));
    }
    return SameOnAll(strategy.Run(
        [along](ReplicaContext& replica, const Tensor& mine) -> absl::StatusOr<Nest> {
          ASSIGN_OR_RETURN(Tensor gathered, replica.AllGather(mine, along));
          return Nest(std::move(gathered));
        },
        tensors));
  }
  ASSIGN_OR_RETURN(ReduceOp op, ParseReduceOp(test_case.at("op").get<std::string>()));
  if (call == "all_reduce")
    return SameOnAll(strategy.Run(
        [op](ReplicaContext& replica, const Nest& mine) { return replica.AllReduce(op, mine); },
        values));
  return strategy.Reduce(op, values, AxesFrom(axis));
}

std::string LeafDifference(const Nest& got, const Json& wanted) {
  if (!wanted.contains("ids")) return Difference("value", got.tensor(), wanted, kArithmetic);
  const absl::StatusOr<IndexedSlices> slices = got.indexed_slices();
  if (!slices.ok()) return slices.status().ToString();
  const std::string ids = Difference("ids", slices->ids, wanted.at("ids"));
  return ids.empty() ? Difference("rows", slices->rows, wanted.at("rows"), kArithmetic) : ids;
}

// ---- scatter ------------------------------------------------------------------------------------

std::optional<Variable::Scatter> ScatterFrom(const std::string& op) {
  static const auto& ops = *new std::map<std::string, Variable::Scatter>{
      {"scatter_update", Variable::Scatter::kUpdate},
      {"batch_scatter_update", Variable::Scatter::kUpdate},
      {"scatter_add", Variable::Scatter::kAdd},
      {"scatter_sub", Variable::Scatter::kSub},
      {"scatter_mul", Variable::Scatter::kMul},
      {"scatter_div", Variable::Scatter::kDiv},
      {"scatter_min", Variable::Scatter::kMin},
      {"scatter_max", Variable::Scatter::kMax},
  };
  const auto found = ops.find(op);
  return found == ops.end() ? std::nullopt : std::optional<Variable::Scatter>(found->second);
}

// Without validation: the variable must refuse slices that do not fit.
absl::StatusOr<IndexedSlices> ScatteredRows(const Json& test_case, int64_t num_rows) {
  IndexedSlices slices;
  slices.num_rows = num_rows;
  ASSIGN_OR_RETURN(slices.ids, TensorFrom(test_case.at("ids")));
  ASSIGN_OR_RETURN(slices.rows, TensorFrom(test_case.at("rows")));
  return slices;
}

absl::StatusOr<std::unique_ptr<Coordinator>> ClusterOf(int num_ps) {
  EmbeddedOptions options;
  options.num_ps = num_ps;
  options.num_workers = 1;
  return StartEmbedded(options);
}

absl::StatusOr<Variable> CreateSharded(Strategy& strategy, const Json& test_case) {
  const std::vector<int64_t> sizes = test_case.at("shards").get<std::vector<int64_t>>();
  ASSIGN_OR_RETURN(const Tensor initial, TensorFrom(test_case.at("initial")));
  VariableSpec spec{"v", initial.shape(), initial, std::nullopt, initial.dtype()};
  spec.partitioner = FixedShardsPartitioner{static_cast<int64_t>(sizes.size())};
  ASSIGN_OR_RETURN(Variable variable, strategy.CreateVariable(spec));
  std::vector<int64_t> offsets = {0};
  for (int64_t size : sizes) offsets.push_back(offsets.back() + size);
  if (variable.shard_offsets() != absl::MakeConstSpan(offsets))
    return absl::InternalError("the variable was cut into other shards than the case's");
  return variable;
}

// ---- sharded_index ------------------------------------------------------------------------------

// A variable whose flat element k has the value k.
absl::StatusOr<ShardedVariable> CountedFrom(const Json& test_case) {
  const Shape shape = ShapeFrom(test_case.at("shape"));
  std::vector<int32_t> values(shape.num_elements());
  std::iota(values.begin(), values.end(), 0);
  ASSIGN_OR_RETURN(Tensor whole, Tensor::Copy<int32_t>(shape, values));
  return ShardedVariable("v", std::move(whole), test_case.at("shards"));
}

std::optional<int64_t> BoundFrom(const Json& bound) {
  return bound.is_null() ? std::nullopt : std::optional<int64_t>(bound.get<int64_t>());
}

IndexItem ItemFrom(const Json& item) {
  if (item == "ellipsis") return Ellipsis{};
  if (item == "newaxis") return NewAxis{};
  if (item.contains("int")) return item.at("int").get<int64_t>();
  const Json& slice = item.at("slice");
  return IndexSlice{BoundFrom(slice[0]), BoundFrom(slice[1]), BoundFrom(slice[2]).value_or(1)};
}

absl::StatusOr<Tensor> PullPlanned(const ShardedVariable& sharded,
                                   const std::vector<IndexItem>& index) {
  ASSIGN_OR_RETURN(const internal::IndexPlan plan,
                   internal::PlanIndex(index, sharded.layout().spec.shape));
  ASSIGN_OR_RETURN(const Tensor rows, sharded.Rows(Tensor::Vector<int64_t>(plan.positions.at(0))));
  return internal::TakePlanned(plan, rows);
}

}  // namespace

Verdict JudgeReduceGather(const Json& test_case) {
  const absl::StatusOr<PerReplica<Nest>> values = ValuesFrom(test_case);
  if (!values.ok()) return Failed(values.status().ToString());
  ThreadPoolExecutor executor(1);
  StrategyParts parts;
  parts.executor = &executor;
  parts.replica_devices.resize(values->size());
  Strategy strategy(std::move(parts));
  const absl::StatusOr<Nest> got = Call(test_case, strategy, *values);
  const Json& wanted = Wanted(test_case);
  if (IsFailure(wanted)) return PassedUnless(FailureDifference(got.status(), wanted));
  return got.ok() ? PassedUnless(LeafDifference(*got, wanted)) : Failed(got.status().ToString());
}

Verdict JudgeScatter(const Json& test_case) {
  const std::optional<Variable::Scatter> op = ScatterFrom(test_case.at("op").get<std::string>());
  if (!op) return Failed("an operation that variables do not have");
  const absl::StatusOr<std::unique_ptr<Coordinator>> cluster =
      ClusterOf(static_cast<int>(test_case.at("shards").size()));
  if (!cluster.ok()) return Failed(cluster.status().ToString());
  const absl::StatusOr<Variable> variable = CreateSharded((*cluster)->strategy(), test_case);
  if (!variable.ok()) return Failed(variable.status().ToString());
  const absl::StatusOr<IndexedSlices> rows =
      ScatteredRows(test_case, variable->spec().shape.dim(0));
  if (!rows.ok()) return Failed(rows.status().ToString());
  const absl::Status status = variable->ScatterRows(*op, *rows);
  const Json& wanted = Wanted(test_case);
  if (!IsFailure(wanted))
    return status.ok() ? PassedUnless(Difference("variable", variable->Read(), wanted, kArithmetic))
                       : Failed(status.ToString());
  const std::string difference = FailureDifference(status, wanted);
  return difference.empty() ? PassedUnless(Difference("variable after the failure",
                                                      variable->Read(), test_case.at("initial")))
                            : Failed(difference);
}

Verdict JudgeShardedIndex(const Json& test_case) {
  std::vector<IndexItem> index;
  for (const Json& item : test_case.at("index")) index.push_back(ItemFrom(item));
  const absl::StatusOr<ShardedVariable> sharded = CountedFrom(test_case);
  if (!sharded.ok()) return Failed(sharded.status().ToString());
  const absl::StatusOr<Tensor> got = PullPlanned(*sharded, index);
  const Json& wanted = Wanted(test_case);
  return PassedUnless(IsFailure(wanted) ? FailureDifference(got.status(), wanted)
                                        : Difference("part", got, wanted));
}

}  // namespace divvy::conformance
