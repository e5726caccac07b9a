// A program whose result is known, whatever dies while it runs. Each step adds 1 to every element
// of every counter, and the counters lie on all parameter servers. To the counters of --descents it
// adds 1 by a gradient of -1 and an optimizer. With --records the steps are those of passes over
// data, and each record counts its visits. With --changes the program assigns and creates variables
// while its steps run. At the end it prints "counter = N" if every element of every counter is N,
// the number of scheduled steps, and if every record was visited once in each pass.
#include <unistd.h>

#include <cstdio>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "divvy.h"

ABSL_FLAG(int64_t, steps, 1000, "the smallest number of steps");
ABSL_FLAG(std::string, stop_file, "", "after --steps, continue until this file exists");
ABSL_FLAG(int64_t, round, 200, "steps between two checks of --stop_file");
ABSL_FLAG(int, counters, 6, "number of counters, placed on the parameter servers in turn");
ABSL_FLAG(int, descents, 0, "number of further counters that count by gradients");
ABSL_FLAG(int64_t, records, 0,
          "records of the data that the steps read, five at a time, in passes; 0: no data");
ABSL_FLAG(bool, in_parts, false,
          "each worker reads a part of the records, divided when a pass begins "
          "(AutoShardPolicy::kAuto)");
ABSL_FLAG(bool, late_step, false, "schedule a step that is constructed only then, and end");
ABSL_FLAG(bool, changes, false, "assign and create variables while steps run");
ABSL_FLAG(int64_t, elements, 1, "elements of each counter");
ABSL_FLAG(bool, reads, false, "each step reads every counter whole, and some of its rows");
ABSL_FLAG(bool, on_gpus, false, "fail a step whose gradient is not computed on a GPU");
ABSL_FLAG(int, hanging_worker, -1, "index of a worker whose steps never return");

using namespace divvy;

VariableSpec Counter(int i) {
  return {absl::StrCat("counter/", i), {absl::GetFlag(FLAGS_elements)}, Zeros(), {}, DType::kInt64};
}

// Counters of whole numbers in float32, which is exact up to this value.
constexpr int64_t kExactInFloat = int64_t{1} << 24;
VariableSpec Descent(int i) {
  return {absl::StrCat("descent/", i), {absl::GetFlag(FLAGS_elements)}, Zeros(), Sgd{1.0}};
}

// A counter with this value in all elements.
Tensor Filled(int64_t value) {
  return Tensor::Vector<int64_t>(
      std::vector<int64_t>(static_cast<size_t>(absl::GetFlag(FLAGS_elements)), value));
}

VariableSpec Visits() {
  return {"visits", {absl::GetFlag(FLAGS_records)}, Zeros(), {}, DType::kInt64};
}

[[noreturn]] void HangForEver() {
  std::puts("hanging");
  std::fflush(stdout);
  for (;;) pause();
}

// A gradient of -1 for each element, computed on the replica's device.
absl::StatusOr<Tensor> Down(ReplicaContext& replica) {
  if (absl::GetFlag(FLAGS_on_gpus) && replica.device().kind != Device::Kind::kGpu) {
    return absl::InternalError(absl::StrCat("the replica is on ", replica.device().ToString()));
  }
  const std::vector<float> ones(static_cast<size_t>(absl::GetFlag(FLAGS_elements)), 1);
  ASSIGN_OR_RETURN(const Tensor there, Tensor::Vector<float>(ones).To(replica.device()));
  return (Var(there) * -1.0f).Value();
}

absl::Status Descend(ReplicaContext& replica) {
  ASSIGN_OR_RETURN(const Tensor down, Down(replica));
  Gradients gradients;
  for (int i = 0; i < absl::GetFlag(FLAGS_descents); ++i) gradients.Set(Descent(i).name, down);
  return replica.ApplyGradients(gradients);
}

// Other workers add meanwhile, so the values are not checked.
absl::Status ReadAll(WorkerContext& worker) {
  const int64_t last = absl::GetFlag(FLAGS_elements) - 1;
  for (int i = 0; i < absl::GetFlag(FLAGS_counters); ++i) {
    ASSIGN_OR_RETURN(const Variable counter, worker.strategy().FindVariable(Counter(i).name));
    RETURN_IF_ERROR(counter.Read().status());
    RETURN_IF_ERROR(counter.Rows(Tensor::Vector<int64_t>({0, last, last / 2, 0})).status());
  }
  return absl::OkStatus();
}

absl::Status AddOne(WorkerContext& worker) {
  if (worker.worker_index() == absl::GetFlag(FLAGS_hanging_worker)) HangForEver();
  if (absl::GetFlag(FLAGS_reads)) RETURN_IF_ERROR(ReadAll(worker));
  for (int i = 0; i < absl::GetFlag(FLAGS_counters); ++i) {
    ASSIGN_OR_RETURN(Variable counter, worker.strategy().FindVariable(Counter(i).name));
    RETURN_IF_ERROR(counter.AssignAdd(Filled(1)));
  }
  if (absl::GetFlag(FLAGS_descents) > 0) RETURN_IF_ERROR(worker.strategy().Run(Descend).status());
  return absl::OkStatus();
}
const Step kAddOne("counter/add_one", AddOne);

constexpr int64_t kBatch = 5;

absl::StatusOr<Dataset> Records(const InputContext& input) {
  std::vector<int64_t> ids(static_cast<size_t>(absl::GetFlag(FLAGS_records)));
  std::iota(ids.begin(), ids.end(), 0);
  return Dataset::FromTensorSlices(Nest(Nest::Dict{{"id", Nest(Tensor::Vector<int64_t>(ids))}}))
      .Shuffle(100, input.seed)
      .Batch(kBatch);
}
const DataSource kRecords("counter/records", Records);
const DataSource kRecordsInParts("counter/records_in_parts", Records,
                                 InputOptions{AutoShardPolicy::kAuto});

absl::StatusOr<Metrics> VisitRecords(WorkerContext& worker, Iterator records) {
  ASSIGN_OR_RETURN(const PerReplica<Nest> batch, worker.Next(records));
  ASSIGN_OR_RETURN(const Tensor ids, batch[0]["id"].tensor());
  ASSIGN_OR_RETURN(const Variable visits, worker.strategy().FindVariable(Visits().name));
  const std::vector<int64_t> ones(static_cast<size_t>(ids.shape().num_elements()), 1);
  RETURN_IF_ERROR(visits.ScatterRows(
      Variable::Scatter::kAdd, {ids, Tensor::Vector<int64_t>(ones), absl::GetFlag(FLAGS_records)}));
  RETURN_IF_ERROR(AddOne(worker));
  return Metrics();
}
const Step kVisit("counter/visit", VisitRecords);

template <typename T>
absl::Status Check(const Variable& counter, int64_t wanted) {
  ASSIGN_OR_RETURN(const Tensor value, counter.Read());
  ASSIGN_OR_RETURN(const absl::Span<const T> elements, value.values<T>());
  for (size_t i = 0; i < elements.size(); ++i) {
    if (elements[i] != static_cast<T>(wanted))
      return absl::InternalError(
          absl::StrCat(counter.spec().name, "[", i, "] = ", elements[i], ", wanted ", wanted));
  }
  return absl::OkStatus();
}

// The changes that the program makes beside its steps in each round: it assigns a variable, and
// creates another with initial values of its own.
class Changes {
 public:
  absl::Status Declare() {
    ASSIGN_OR_RETURN(
        mark_,
        CreateVariable({"mark", {absl::GetFlag(FLAGS_elements)}, Zeros(), {}, DType::kInt64}));
    return absl::OkStatus();
  }
  // First checks that the values of earlier rounds are still there, whatever was lost since.
  absl::Status Make(int64_t round) {
    RETURN_IF_ERROR(CheckAll());
    RETURN_IF_ERROR(mark_->Assign(Filled(round)));
    assigned_ = round;
    if (brought_.size() == kMostBrought) return absl::OkStatus();
    const auto value = static_cast<int64_t>(brought_.size());
    ASSIGN_OR_RETURN(Variable brought, CreateVariable({absl::StrCat("brought/", value),
                                                       {absl::GetFlag(FLAGS_elements)},
                                                       Filled(value),
                                                       {},
                                                       DType::kInt64}));
    brought_.push_back(std::move(brought));
    return absl::OkStatus();
  }
  absl::Status CheckAll() const {
    if (assigned_) RETURN_IF_ERROR(Check<int64_t>(*mark_, *assigned_));
    for (size_t i = 0; i < brought_.size(); ++i)
      RETURN_IF_ERROR(Check<int64_t>(brought_[i], static_cast<int64_t>(i)));
    return absl::OkStatus();
  }

 private:
  static constexpr size_t kMostBrought = 20;

  std::optional<Variable> mark_;
  std::optional<int64_t> assigned_;  // in this life of the program
  std::vector<Variable> brought_;    // brought/i has the value i everywhere
};

bool IsAskedToStop() {
  const std::string file = absl::GetFlag(FLAGS_stop_file);
  return file.empty() || FileSystem::Real().Stat(file).ok();
}

int64_t StepsOfARound() {
  const int64_t records = absl::GetFlag(FLAGS_records);
  return records > 0 ? (records + kBatch - 1) / kBatch : absl::GetFlag(FLAGS_round);
}

// A checkpoint has all rounds that had ended when the program state was set, and at most a part of
// the next round.
absl::Status CheckState(const std::string& state, int64_t restored) {
  int64_t counted = 0;
  if (!state.empty() && !absl::SimpleAtoi(state, &counted))
    return absl::InternalError(absl::StrCat("the program's state is \"", state, "\""));
  if (counted <= restored && restored <= counted + StepsOfARound()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the checkpoint holds ", restored,
                                          " steps, but its program state is that of ", counted));
}

// Returns the number of scheduled steps, including those of the restored checkpoint.
absl::StatusOr<int64_t> Resume(Coordinator& coordinator) {
  ASSIGN_OR_RETURN(const int64_t restored, coordinator.RestoreLatest());
  RETURN_IF_ERROR(CheckState(coordinator.program_state(), restored));
  coordinator.SetProgramState(absl::StrCat(restored));
  if (restored > 0) std::printf("restored %lld\n", static_cast<long long>(restored));
  return restored;
}

void EndRound(Coordinator& coordinator, int64_t asked) {
  coordinator.SetProgramState(absl::StrCat(asked));
  std::printf("counted %lld\n", static_cast<long long>(asked));
  std::fflush(stdout);
}

absl::StatusOr<int64_t> Count(Coordinator& coordinator) {
  Changes changes;
  if (absl::GetFlag(FLAGS_changes)) RETURN_IF_ERROR(changes.Declare());
  ASSIGN_OR_RETURN(int64_t asked, Resume(coordinator));
  while (asked < absl::GetFlag(FLAGS_steps) || !IsAskedToStop()) {
    for (int64_t i = 0; i < absl::GetFlag(FLAGS_round); ++i, ++asked)
      RETURN_IF_ERROR(coordinator.Schedule(kAddOne).status());
    if (absl::GetFlag(FLAGS_changes)) RETURN_IF_ERROR(changes.Make(asked));
    RETURN_IF_ERROR(coordinator.Join());
    EndRound(coordinator, asked);
  }
  RETURN_IF_ERROR(changes.CheckAll());
  return asked;
}

// The same in passes over data.
absl::StatusOr<int64_t> CountPasses(Coordinator& coordinator) {
  RETURN_IF_ERROR(Resume(coordinator).status());
  while (coordinator.step() < absl::GetFlag(FLAGS_steps) || !IsAskedToStop()) {
    RETURN_IF_ERROR(
        coordinator.RunEpoch(kVisit, absl::GetFlag(FLAGS_in_parts) ? kRecordsInParts() : kRecords())
            .status());
    EndRound(coordinator, coordinator.step());
  }
  const int64_t wanted = coordinator.epoch() * StepsOfARound();
  if (coordinator.step() == wanted) return wanted;
  return absl::InternalError(absl::StrCat(coordinator.epoch(), " passes had ", coordinator.step(),
                                          " steps, wanted ", wanted));
}

// Constructs a step where it is used, a mistake: no other process has this step.
absl::Status ScheduleLateStep(Coordinator& coordinator) {
  const Step late("counter/late", AddOne);
  return coordinator.Schedule(late).status();
}

absl::Status Train(Coordinator& coordinator) {
  if (absl::GetFlag(FLAGS_late_step)) return ScheduleLateStep(coordinator);
  auto scope = coordinator.strategy().Scope();
  std::vector<Variable> counters, descents;
  for (int i = 0; i < absl::GetFlag(FLAGS_counters); ++i) {
    ASSIGN_OR_RETURN(Variable counter, CreateVariable(Counter(i)));
    counters.push_back(std::move(counter));
  }
  for (int i = 0; i < absl::GetFlag(FLAGS_descents); ++i) {
    ASSIGN_OR_RETURN(Variable descent, CreateVariable(Descent(i)));
    descents.push_back(std::move(descent));
  }
  std::optional<Variable> visits;
  if (absl::GetFlag(FLAGS_records) > 0) {
    ASSIGN_OR_RETURN(visits, CreateVariable(Visits()));
  }
  std::puts("counting");
  std::fflush(stdout);
  ASSIGN_OR_RETURN(const int64_t steps, visits ? CountPasses(coordinator) : Count(coordinator));
  if (!descents.empty() && steps > kExactInFloat)
    return absl::OutOfRangeError(
        absl::StrCat("--descents count exactly only up to ", kExactInFloat, " steps"));
  for (const Variable& counter : counters) RETURN_IF_ERROR(Check<int64_t>(counter, steps));
  for (const Variable& descent : descents) RETURN_IF_ERROR(Check<float>(descent, steps));
  if (visits) RETURN_IF_ERROR(Check<int64_t>(*visits, coordinator.epoch()));
  std::printf("counter = %lld\n", static_cast<long long>(steps));
  std::fflush(stdout);
  return absl::OkStatus();
}
DIVVY_PROGRAM(Train);
