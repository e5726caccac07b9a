#include "strategy/step.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_join.h"
#include "base/guarded.h"
#include "base/mutex.h"
#include "base/named_registry.h"
#include "protocol/error.h"
#include "tensor/device_memory.h"

namespace divvy {
namespace {

struct StepTable {
  internal::NamedRegistry<RegisteredStep> steps{"step"};
  Mutex mu;
  bool sealed DIVVY_GUARDED_BY(mu) = false;
  std::set<std::string, std::less<>> late DIVVY_GUARDED_BY(mu);
};

// Never destroyed, so the order of initialisation and destruction does not matter.
StepTable& TheStepTable() {
  static StepTable* const table = new StepTable();
  return *table;
}

bool IsLate(absl::string_view name) {
  StepTable& table = TheStepTable();
  MutexLock lock(table.mu);
  return table.late.count(name) > 0;
}

}  // namespace

void StepRegistry::Add(RegisteredStep step) {
  StepTable& table = TheStepTable();
  const std::string name = step.name;
  {
    MutexLock lock(table.mu);
    if (table.sealed) table.late.insert(name);
  }
  table.steps.Add(name, std::move(step));
}

void StepRegistry::Seal() {
  StepTable& table = TheStepTable();
  MutexLock lock(table.mu);
  table.sealed = true;
}

const RegisteredStep* StepRegistry::Find(absl::string_view name) {
  return TheStepTable().steps.Find(name);
}

std::vector<const RegisteredStep*> StepRegistry::All() {
  std::vector<const RegisteredStep*> all;
  for (const std::string& name : TheStepTable().steps.names()) all.push_back(Find(name));
  return all;
}

absl::StatusOr<const RegisteredStep*> StepRegistry::Get(absl::string_view name) {
  if (IsLate(name)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the Step \"", name,
                     "\" was constructed after main began, so other processes do not know it: "
                     "define it const at namespace scope"));
  }
  return TheStepTable().steps.Get(name);
}

absl::Status StepRegistry::Validate() {
  const std::vector<std::string> problems = TheStepTable().steps.problems();
  return problems.empty() ? absl::OkStatus()
                          : absl::InvalidArgumentError(absl::StrJoin(problems, "; "));
}

absl::StatusOr<PerReplica<Nest>> WorkerContext::Next(const Iterator& iterator) {
  ASSIGN_OR_RETURN(std::optional<PerReplica<Nest>> batches, NextOrEnd(iterator));
  if (!batches)
    return EndOfData(
        absl::StrCat("worker ", worker_index(), " has no element left for step ", step()));
  return *std::move(batches);
}

absl::StatusOr<std::optional<PerReplica<Nest>>> WorkerContext::NextOrEnd(const Iterator& iterator) {
  RETURN_IF_ERROR(
      internal::CheckCrossReplica(strategy(), "Next", "the batch that Run gave this replica"));
  return environment_.Next(iterator.handle());
}

absl::StatusOr<Nest> RunStep(const RegisteredStep& step, StepEnvironment& environment,
                             const Nest& args) {
  const StrategyScope scope = environment.strategy().Scope();
  RETURN_IF_ERROR(scope.status());
  if (static_cast<int>(args.size()) != step.num_args || args.list() == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("step \"", step.name, "\" takes ", step.num_args,
                                                   " arguments, not ", args.ToString()));
  }
  WorkerContext worker(environment);
  return internal::Guarded<absl::StatusOr<Nest>>(absl::StrCat("step \"", step.name, "\""),
                                                 [&] { return step.body(worker, args); });
}

namespace {

// How MapBatch converts the parts of a batch.
struct BatchMap {
  std::function<absl::StatusOr<Nest>(const SparseIds& sparse)> sparse;
  std::function<absl::StatusOr<Nest>(const Nest& leaf)> leaf;
};

absl::StatusOr<Nest> MapBatch(const BatchMap& map, const Nest& batch) {
  if (const absl::StatusOr<SparseIds> sparse = batch.sparse_ids(); sparse.ok())
    return map.sparse(*sparse);
  if (batch.dict() != nullptr) {
    Nest::Dict mapped;
    for (const auto& [key, child] : *batch.dict()) {
      ASSIGN_OR_RETURN(Nest child_mapped, MapBatch(map, child));
      mapped.emplace(key, std::move(child_mapped));
    }
    return Nest(std::move(mapped));
  }
  if (batch.list() != nullptr) {
    Nest::List mapped;
    for (const Nest& child : *batch.list()) {
      ASSIGN_OR_RETURN(Nest child_mapped, MapBatch(map, child));
      mapped.push_back(std::move(child_mapped));
    }
    return Nest(std::move(mapped));
  }
  return map.leaf(batch);
}

absl::StatusOr<Nest> NoLists(const SparseIds& sparse) {
  SparseIds empty = sparse;
  ASSIGN_OR_RETURN(empty.ids, sparse.ids.Rows(0, 0));
  empty.row_splits = Tensor::Vector<int64_t>({0});
  if (sparse.weights) {
    ASSIGN_OR_RETURN(empty.weights, sparse.weights->Rows(0, 0));
  }
  return Nest(std::move(empty));
}

absl::StatusOr<Nest> NoRows(const Nest& leaf) {
  ASSIGN_OR_RETURN(Tensor tensor, leaf.tensor());
  if (tensor.shape().rank() == 0)
    return absl::InvalidArgumentError(
        "the dataset's elements are single examples, not batches: end it with .Batch(n)");
  ASSIGN_OR_RETURN(Tensor empty, tensor.Rows(0, 0));
  return Nest(std::move(empty));
}

}  // namespace

absl::StatusOr<Nest> EmptyBatchLike(const Nest& batch) {
  return MapBatch({NoLists, NoRows}, batch);
}

// Collects all leaves first, so that small leaves are copied together, and then puts them back in
// the same order.
absl::StatusOr<Nest> BatchOn(const Nest& batch, Device device) {
  if (device == Device{}) return batch;
  const auto keep = [](const SparseIds& sparse) { return Nest(sparse); };
  std::vector<Tensor> tensors;
  const auto collect = [&tensors](const Nest& leaf) -> absl::StatusOr<Nest> {
    if (leaf.kind() == Nest::Kind::kTensor) tensors.push_back(*leaf.tensor());
    return leaf;
  };
  RETURN_IF_ERROR(MapBatch({keep, collect}, batch).status());
  const TravelScope scope(Travel::kIntegersWhenUsed);
  ASSIGN_OR_RETURN(tensors, ToDevice(tensors, device));
  size_t next = 0;
  const auto put = [&](const Nest& leaf) -> absl::StatusOr<Nest> {
    return leaf.kind() == Nest::Kind::kTensor ? Nest(tensors[next++]) : leaf;
  };
  return MapBatch({keep, put}, batch);
}

}  // namespace divvy
