// A program whose result is known, whatever dies while it runs. Each step adds 1 to every element
// of every counter, and the counters lie on all parameter servers. To the counters of --descents it
// adds 1 by a gradient of -1 and an optimizer. With --records the steps are those of passes over
// data, and each record counts its visits. With --changes the program assigns and creates variables
// while its steps run. With --keys the steps have numbers, and write to rows of dynamic tables.
// What each row must be follows from the steps that have finished, and some rows go. At the end the
// program prints "counter = N" if every element of every counter is N, the number of scheduled
// steps, and if every record was visited once in each pass.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
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
ABSL_FLAG(bool, keys, false, "each step writes to rows of dynamic tables, which grow and forget");
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

// ---- keys of dynamic tables

// A row begins with kFirst, and so reads a key without one. The second step that names a key makes
// its row, and is the first that writes to it.
constexpr float kFirst = 5;
DynamicTable TableOf(std::string name, Eviction eviction) {
  return DynamicTable(std::move(name), {.width = 1,
                                        .initializer = Constant{kFirst},
                                        .admission = AdmitAfter{2},
                                        .eviction = eviction});
}
// Rows go that have become 0, and rows that no step has named for two minutes.
DynamicTable Small() { return TableOf("keys/small", EvictBelowNorm{1}); }
DynamicTable Old() { return TableOf("keys/old", EvictUnusedFor{absl::Minutes(2)}); }

// Step i names the busy key i % kBusy, whose row stays in both tables.
constexpr int64_t kBusy = 50;
int64_t BusyKey(int64_t i) {
  constexpr int64_t kCorners[] = {0, -1, std::numeric_limits<int64_t>::min(),
                                  std::numeric_limits<int64_t>::max()};
  const int64_t n = i % kBusy;
  return n < 4 ? kCorners[n] : n << 40;
}
// Step i alone names this key, so it gets no row.
int64_t LonelyKey(int64_t i) { return -1'000'000 - i; }
// Steps 2 j and 2 j + 1 name key j. The later one of them makes a row that goes sooner or later.
int64_t PassingKey(int64_t j) { return 1'000'000 + j; }

absl::Status AddToKeys(WorkerContext& worker, const std::string& table, int64_t i, float passing) {
  ASSIGN_OR_RETURN(const Variable rows, worker.strategy().FindVariable(table));
  return rows.ScatterRows(
      Variable::Scatter::kAdd,
      {Tensor::Vector<int64_t>({BusyKey(i), LonelyKey(i), PassingKey(i / 2)}),
       *Tensor::Copy<float>(Shape{3, 1}, {1, 1, passing}), IndexedSlices::kAnyId});
}

absl::Status NameKeys(WorkerContext& worker, int64_t i) {
  RETURN_IF_ERROR(AddToKeys(worker, Small().name, i, -kFirst));
  RETURN_IF_ERROR(AddToKeys(worker, Old().name, i, 1));
  return AddOne(worker);
}
const Step kNameKeys("counter/name_keys", NameKeys);

// What the rows of one table must be after steps [0, n), n even.
class Keys {
 public:
  // `passing`: what the row of a passing key holds until it goes.
  Keys(Variable table, float passing) : table_(std::move(table)), passing_(passing) {}

  // Checks the busy keys, the latest of the others, and a sample of the earlier ones.
  absl::Status Check(int64_t n) {
    for (int64_t i = 0; i < std::min(kBusy, n); ++i) {
      const int64_t named = (n - i + kBusy - 1) / kBusy;
      RETURN_IF_ERROR(Expect(BusyKey(i), kFirst + static_cast<float>(named - 1)));
    }
    for (int64_t i = std::max<int64_t>(0, n - 100); i < n; ++i)
      RETURN_IF_ERROR(Expect(LonelyKey(i), kFirst));
    for (int64_t j = 0; j < n / 2; ++j) {
      if (j % kSample == 0 || j > n / 2 - 100) RETURN_IF_ERROR(LookAtPassing(j));
    }
    return Compare();
  }
  absl::Status CheckAll(int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      RETURN_IF_ERROR(Expect(LonelyKey(i), kFirst));
      if (i % 2 == 0) RETURN_IF_ERROR(LookAtPassing(i / 2));
    }
    RETURN_IF_ERROR(Compare());
    return Check(n);
  }
  // Passing keys whose rows this life of the program has seen to be gone.
  int64_t num_gone() const { return static_cast<int64_t>(gone_.size()); }

 private:
  static constexpr int64_t kSample = 64;
  static constexpr size_t kAtOnce = 10'000;

  absl::Status Expect(int64_t key, float value) {
    wanted_.push_back({key, value, std::nullopt});
    return wanted_.size() < kAtOnce ? absl::OkStatus() : Compare();
  }
  // A row that is gone does not come back, whatever is lost: an eviction counts as a step does.
  absl::Status LookAtPassing(int64_t j) {
    const bool is_gone = gone_.count(j) > 0;
    wanted_.push_back({PassingKey(j), is_gone ? kFirst : passing_,
                       is_gone ? std::nullopt : std::optional<int64_t>(j)});
    return wanted_.size() < kAtOnce ? absl::OkStatus() : Compare();
  }
  absl::Status Compare() {
    std::vector<int64_t> keys;
    for (const Wanted& wanted : wanted_) keys.push_back(wanted.key);
    ASSIGN_OR_RETURN(const Tensor rows, table_.Rows(Tensor::Vector<int64_t>(keys)));
    ASSIGN_OR_RETURN(const absl::Span<const float> values, rows.values<float>());
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto& [key, value, may_go] = wanted_[i];
      if (may_go && values[i] == kFirst) gone_.insert(*may_go);
      if (values[i] != value && !(may_go && values[i] == kFirst))
        return absl::InternalError(absl::StrCat("the row of key ", key, " of ", table_.spec().name,
                                                " is ", values[i], ", wanted ", value));
    }
    wanted_.clear();
    return absl::OkStatus();
  }

  struct Wanted {
    int64_t key = 0;
    float value = 0;
    // The passing key that may also have lost its row.
    std::optional<int64_t> may_go;
  };
  const Variable table_;
  const float passing_;
  std::vector<Wanted> wanted_;
  std::set<int64_t> gone_;
};

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
  // Not a loss, but a number that differs from step to step.
  ASSIGN_OR_RETURN(const absl::Span<const int64_t> numbers, ids.values<int64_t>());
  const auto sum = static_cast<double>(std::accumulate(numbers.begin(), numbers.end(), int64_t{0}));
  return Metrics{{"loss", Metric::Mean(sum, static_cast<double>(numbers.size()))}};
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

// The same by numbered steps, which name keys. Goes on until some rows have gone.
absl::StatusOr<int64_t> CountKeys(Coordinator& coordinator) {
  ASSIGN_OR_RETURN(const Variable small, CreateVariable(Small()));
  ASSIGN_OR_RETURN(const Variable old, CreateVariable(Old()));
  Keys small_keys(small, 0), old_keys(old, kFirst + 1);
  RETURN_IF_ERROR(coordinator.RestoreLatest().status());
  int64_t asked = 0;
  if (!coordinator.program_state().empty() &&
      !absl::SimpleAtoi(coordinator.program_state(), &asked))
    return absl::InternalError("the program's state is no number");
  while (asked < absl::GetFlag(FLAGS_steps) || !IsAskedToStop() || small_keys.num_gone() == 0) {
    const int64_t end = asked + absl::GetFlag(FLAGS_round);
    for (; asked < end; ++asked)
      RETURN_IF_ERROR(coordinator.ScheduleOnce("keys", asked, kNameKeys, asked).status());
    RETURN_IF_ERROR(coordinator.Join());
    for (Keys* const keys : {&small_keys, &old_keys}) RETURN_IF_ERROR(keys->Check(asked));
    EndRound(coordinator, asked);
  }
  for (Keys* const keys : {&small_keys, &old_keys}) RETURN_IF_ERROR(keys->CheckAll(asked));
  std::printf("gone = %lld small, %lld old\n", static_cast<long long>(small_keys.num_gone()),
              static_cast<long long>(old_keys.num_gone()));
  if (coordinator.step() == asked) return asked;
  return absl::InternalError(absl::StrCat(coordinator.step(), " steps, wanted ", asked));
}

// Counts in the way that the flags choose.
absl::StatusOr<int64_t> CountAll(Coordinator& coordinator) {
  if (absl::GetFlag(FLAGS_keys)) return CountKeys(coordinator);
  return absl::GetFlag(FLAGS_records) > 0 ? CountPasses(coordinator) : Count(coordinator);
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
  ASSIGN_OR_RETURN(const int64_t steps, CountAll(coordinator));
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
