// The program of `tools/operations_test faults`: steps that read and change rows of a table, round
// by round, until --stop_file exists. Flags plant faults of the program itself: a hot shard, memory
// that grows, input that is slow, a step that never returns. At the end the table must hold exactly
// what the steps added.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "divvy.h"

ABSL_FLAG(std::string, stop_file, "", "the program runs until this file exists");
ABSL_FLAG(absl::Duration, round, absl::Milliseconds(100),
          "a round begins so long after the last one began, or when that has ended");
ABSL_FLAG(int64_t, steps_of_round, 12, "steps of a round");
ABSL_FLAG(int64_t, rows_of_step, 500, "rows that a step reads and changes");
ABSL_FLAG(absl::Duration, step_time, absl::ZeroDuration(),
          "a step waits so long, as for a GPU, before it changes its rows");
ABSL_FLAG(bool, hot, false, "steps use the rows of the first shard alone");
ABSL_FLAG(int64_t, grow_bytes, 0, "size of a variable that is created with each round");
ABSL_FLAG(absl::Duration, input_wait, absl::ZeroDuration(),
          "steps read data, and an element of it takes so long. 0: they read none");
ABSL_FLAG(std::string, stuck_file, "", "a step that begins while this file exists never returns");

namespace divvy {
namespace {

constexpr int64_t kShards = 6, kWidth = 64, kRows = 24'000;

VariableSpec Table() {
  VariableSpec spec{"table", {kRows, kWidth}, Zeros()};
  spec.partitioner = FixedShardsPartitioner{kShards};
  return spec;
}
const VariableSpec kAdded{"added", {}, Zeros(), {}, DType::kInt64};

bool Exists(const std::string& file) { return !file.empty() && FileSystem::Real().Stat(file).ok(); }

// Blocks for that long, as a slow disk does.
void Wait(absl::Duration time) {
  Mutex mu;
  CondVar never;
  MutexLock lock(mu);
  never.WaitFor(mu, time, [] { return false; });
}

// Rows that are evenly spread over the table, or over its first shard.
Tensor RowsOf(int64_t number) {
  const int64_t n = absl::GetFlag(FLAGS_rows_of_step);
  const int64_t among = absl::GetFlag(FLAGS_hot) ? kRows / kShards : kRows;
  std::vector<int64_t> rows(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) rows[static_cast<size_t>(i)] = (i * (among / n) + number) % among;
  std::sort(rows.begin(), rows.end());
  return Tensor::Vector<int64_t>(rows);
}

// Made once, so that the parameter servers have more to do than the workers.
Tensor Ones(int64_t rows) {
  static const Tensor& ones = *new Tensor(*Tensor::Copy<float>(
      {rows, kWidth}, std::vector<float>(static_cast<size_t>(rows * kWidth), 1)));
  return ones;
}

absl::Status Change(WorkerContext& worker, int64_t number) {
  while (Exists(absl::GetFlag(FLAGS_stuck_file))) pause();
  const int64_t n = absl::GetFlag(FLAGS_rows_of_step);
  const Tensor rows = RowsOf(number);
  ASSIGN_OR_RETURN(Variable table, worker.strategy().FindVariable(Table().name));
  ASSIGN_OR_RETURN(Variable added, worker.strategy().FindVariable(kAdded.name));
  RETURN_IF_ERROR(table.Rows(rows).status());
  Wait(absl::GetFlag(FLAGS_step_time));
  RETURN_IF_ERROR(table.ScatterRows(Variable::Scatter::kAdd, {rows, Ones(n), kRows}));
  return added.AssignAdd(Tensor::Scalar<int64_t>(n));
}
const Step kChange("faulty/change", Change);

// As many elements as a round has steps.
absl::StatusOr<Dataset> Numbers(const InputContext& /*input*/) {
  const auto element = [](int64_t i) -> absl::StatusOr<std::optional<Nest>> {
    Wait(absl::GetFlag(FLAGS_input_wait));
    return Nest(Tensor::Scalar<int64_t>(i));
  };
  return Dataset::Generator(element, absl::GetFlag(FLAGS_steps_of_round)).Batch(1);
}
const DataSource kNumbers("faulty/numbers", Numbers);

absl::StatusOr<Metrics> ChangeByData(WorkerContext& worker, Iterator numbers) {
  ASSIGN_OR_RETURN(const PerReplica<Nest> batch, worker.Next(numbers));
  ASSIGN_OR_RETURN(const Tensor number, batch[0].tensor());
  ASSIGN_OR_RETURN(const absl::Span<const int64_t> values, number.values<int64_t>());
  RETURN_IF_ERROR(Change(worker, values[0]));
  return Metrics{};
}
const Step kChangeByData("faulty/change_by_data", ChangeByData);

absl::Status RunRound(Coordinator& coordinator, int64_t round) {
  if (absl::GetFlag(FLAGS_input_wait) > absl::ZeroDuration())
    return coordinator.RunEpoch(kChangeByData, kNumbers()).status();
  const int64_t steps = absl::GetFlag(FLAGS_steps_of_round);
  for (int64_t i = 0; i < steps; ++i)
    RETURN_IF_ERROR(coordinator.Schedule(kChange, round * steps + i).status());
  return coordinator.Join();
}

absl::Status Grow(int64_t round) {
  const int64_t elements = absl::GetFlag(FLAGS_grow_bytes) / static_cast<int64_t>(sizeof(float));
  if (elements == 0) return absl::OkStatus();
  return CreateVariable({absl::StrCat("grown/", round), {elements}, Zeros()}).status();
}

absl::Status CheckSum(const Variable& table, const Variable& added) {
  ASSIGN_OR_RETURN(const Tensor all, table.Read());
  ASSIGN_OR_RETURN(const Tensor counted, added.Read());
  ASSIGN_OR_RETURN(const absl::Span<const float> values, all.values<float>());
  ASSIGN_OR_RETURN(const absl::Span<const int64_t> rows, counted.values<int64_t>());
  double sum = 0;
  for (const float value : values) sum += value;
  if (sum != static_cast<double>(rows[0] * kWidth))
    return absl::InternalError(
        absl::StrCat("the table's sum is ", sum, ", wanted ", rows[0] * kWidth));
  std::printf("exact: %lld rows were changed\n", static_cast<long long>(rows[0]));
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status Train(Coordinator& coordinator) {
  auto scope = coordinator.strategy().Scope();
  ASSIGN_OR_RETURN(const Variable table, CreateVariable(Table()));
  ASSIGN_OR_RETURN(const Variable added, CreateVariable(kAdded));
  RETURN_IF_ERROR(coordinator.RestoreLatest().status());
  for (int64_t round = 0; !Exists(absl::GetFlag(FLAGS_stop_file)); ++round) {
    const absl::Duration next = Clock::Real().Elapsed() + absl::GetFlag(FLAGS_round);
    RETURN_IF_ERROR(RunRound(coordinator, round));
    RETURN_IF_ERROR(Grow(round));
    if (round == 0) std::puts("trains");
    std::fflush(stdout);
    Wait(next - Clock::Real().Elapsed());
  }
  return CheckSum(table, added);
}

}  // namespace
}  // namespace divvy

DIVVY_PROGRAM(divvy::Train);
