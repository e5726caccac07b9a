// bazel run //bench:soak [-- --empty_steps=10000000 --steps=100000 --format=json DIRECTORY]
//
// What a job holds after millions of steps: an embedded cluster of two parameter servers and two
// workers runs steps that do nothing, then small training steps, each of which looks up and trains
// rows of a table, in passes over leased data. The redo log is small, so that checkpoints are made
// all the time, in DIRECTORY (default: the working directory; what is made is removed). Ends with 1
// if, after a fifth of the steps of a kind, memory grew by more than 5 % and 16 MiB, or a structure
// holds more entries at rest than it did then. Prints the size of every structure.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "data/dataset.h"
#include "ops/gradients.h"
#include "program/embedded.h"
#include "strategy/replica_context.h"
#include "strategy/step.h"
#include "strategy/strategy.h"

ABSL_FLAG(int64_t, empty_steps, 10'000'000, "steps that do nothing");
ABSL_FLAG(int64_t, steps, 100'000, "training steps, behind them");
ABSL_FLAG(std::string, format, "table", "table or json");

namespace divvy::bench {
namespace {

constexpr int64_t kStepsAtATime = 1'000, kRows = 1'000, kWidth = 8, kBatch = 16;
// entries: what is at rest is not counted to the last one
constexpr int64_t kRoom = 64;
// Beside 5 %.
constexpr int64_t kMemoryRoomBytes = 16 << 20;
// The bound of docs/internals/protocol.md, and more slots than these workers have.
constexpr int64_t kMostRemembered = 32'768 + 100;
constexpr int64_t kRedoLogBytes = 1 << 20;

absl::Status DoNothing(WorkerContext&) { return absl::OkStatus(); }
const Step kNothing("bench/soak/nothing", DoNothing);

absl::StatusOr<Dataset> Batches(const InputContext& input) {
  std::vector<int64_t> ids(static_cast<size_t>(kStepsAtATime * kBatch));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * 7919) % kRows;
  return Dataset::FromTensorSlices({{"id", Tensor::Vector<int64_t>(absl::MakeConstSpan(ids))}})
      .Shuffle(1'000, input.seed)
      .Batch(kBatch);
}
const DataSource kBatches("bench/soak/batches", Batches);

absl::Status Descend(ReplicaContext& replica, const Nest& batch) {
  IndexedSlices rows;
  ASSIGN_OR_RETURN(rows.ids, batch["id"].tensor());
  ASSIGN_OR_RETURN(rows.rows,
                   Tensor::Zeros(DType::kFloat32, {rows.ids.shape().num_elements(), kWidth}));
  rows.num_rows = kRows;
  Gradients gradients;
  gradients.Set("table", rows);
  return replica.ApplyGradients(gradients);
}
absl::StatusOr<Metrics> Train(WorkerContext& worker, Iterator batches) {
  ASSIGN_OR_RETURN(PerReplica<Nest> batch, worker.Next(batches));
  ASSIGN_OR_RETURN(Variable table, worker.strategy().FindVariable("table"));
  ASSIGN_OR_RETURN(const Tensor ids, batch[0]["id"].tensor());
  RETURN_IF_ERROR(table.Rows(ids).status());
  RETURN_IF_ERROR(worker.strategy().Run(Descend, batch).status());
  return Metrics{{"examples", Metric::Mean(1, static_cast<double>(ids.shape().num_elements()))}};
}
const Step kTrain("bench/soak/train", Train);

using Sizes = std::map<std::string, int64_t>;

// Of one kind of step.
struct Phase {
  std::string name;
  int64_t steps = 0;
  double seconds = 0;
  int64_t early_memory_bytes = 0, memory_bytes = 0;
  Sizes early, late;

  // What may not grow and did.
  std::vector<std::string> Grown() const {
    std::vector<std::string> grown;
    if (memory_bytes > early_memory_bytes + early_memory_bytes / 20 + kMemoryRoomBytes)
      grown.push_back("resident memory");
    for (const auto& [structure, size] : late) {
      const auto before = early.find(structure);
      const bool bounded = structure == "redo log" || structure == "ps: remembered entries";
      const int64_t most =
          bounded ? kMostRemembered : (before == early.end() ? 0 : before->second) + kRoom;
      if (size > most) grown.push_back(structure);
    }
    return grown;
  }
};

absl::StatusOr<std::unique_ptr<EmbeddedCluster>> StartCluster(const std::string& directory) {
  EmbeddedSetup setup;
  setup.options.num_ps = 2;
  setup.options.num_workers = 2;
  setup.options.checkpoint_dir = directory;
  setup.coordinator.core.redo_log_bytes = kRedoLogBytes;
  ASSIGN_OR_RETURN(std::unique_ptr<EmbeddedCluster> cluster, EmbeddedCluster::Start(setup));
  VariableSpec table{"table", {kRows, kWidth}, Zeros(), Adam{0.01}};
  table.partitioner = FixedShardsPartitioner{2};
  RETURN_IF_ERROR(cluster->coordinator().strategy().CreateVariable(table).status());
  return cluster;
}

absl::Status RunNothing(Coordinator& coordinator) {
  for (int64_t i = 0; i < kStepsAtATime; ++i)
    RETURN_IF_ERROR(coordinator.Schedule(kNothing).status());
  const absl::Status polled = coordinator.Join(absl::Milliseconds(1));
  if (!polled.ok() && !absl::IsDeadlineExceeded(polled)) return polled;
  return coordinator.Join();
}

absl::StatusOr<Phase> RunPhase(EmbeddedCluster& cluster, const std::string& name, int64_t steps,
                               const std::function<absl::Status(Coordinator&)>& some) {
  Phase phase{name, 0, 0, 0, 0, {}, {}};
  const absl::Duration began = Clock::Real().Elapsed();
  while (phase.steps < steps) {
    RETURN_IF_ERROR(some(cluster.coordinator()));
    phase.steps += kStepsAtATime;
    if (phase.early.empty() && phase.steps >= steps / 5) {
      phase.early = cluster.Sizes();
      phase.early_memory_bytes = PeakMemoryBytes();
    }
  }
  phase.seconds = absl::ToDoubleSeconds(Clock::Real().Elapsed() - began);
  phase.late = cluster.Sizes();
  phase.memory_bytes = PeakMemoryBytes();
  return phase;
}

absl::StatusOr<std::vector<Phase>> Run(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::unique_ptr<EmbeddedCluster> cluster, StartCluster(directory));
  std::vector<Phase> phases;
  ASSIGN_OR_RETURN(Phase empty,
                   RunPhase(*cluster, "empty", absl::GetFlag(FLAGS_empty_steps), RunNothing));
  phases.push_back(std::move(empty));
  const auto train = [](Coordinator& coordinator) {
    return coordinator.RunEpoch(kTrain, kBatches()).status();
  };
  ASSIGN_OR_RETURN(Phase training,
                   RunPhase(*cluster, "training", absl::GetFlag(FLAGS_steps), train));
  phases.push_back(std::move(training));
  return phases;
}

absl::StatusOr<std::vector<Phase>> RunIn(const std::string& directory) {
  FileSystem& files = FileSystem::Real();
  RETURN_IF_ERROR(files.CreateDirectory(directory));
  auto phases = Run(directory);
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files.ListDirectory(directory));
  for (const std::string& name : names)
    RETURN_IF_ERROR(files.Remove(absl::StrCat(directory, "/", name)));
  RETURN_IF_ERROR(files.Remove(directory));
  return phases;
}

void PrintJson(const Phase& phase) {
  std::string sizes;
  for (const auto& [structure, size] : phase.late)
    absl::StrAppend(&sizes, ", \"", structure, "\": ", size);
  std::printf(
      "{\"bench\": \"soak\", \"phase\": \"%s\", \"steps\": %lld, \"seconds\": %.1f, "
      "\"early_memory_bytes\": %lld, \"memory_bytes\": %lld%s}\n",
      phase.name.c_str(), static_cast<long long>(phase.steps), phase.seconds,
      static_cast<long long>(phase.early_memory_bytes), static_cast<long long>(phase.memory_bytes),
      sizes.c_str());
}

void Print(const Phase& phase) {
  if (absl::GetFlag(FLAGS_format) == "json") return PrintJson(phase);
  const auto mebibytes = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  std::printf(
      "%lld %s steps in %.1f s (%.0f a second); resident memory at most %.1f MiB after a fifth, "
      "%.1f MiB at the end\n",
      static_cast<long long>(phase.steps), phase.name.c_str(), phase.seconds,
      static_cast<double>(phase.steps) / phase.seconds, mebibytes(phase.early_memory_bytes),
      mebibytes(phase.memory_bytes));
  for (const auto& [structure, size] : phase.late) {
    const auto before = phase.early.find(structure);
    std::printf("  %-32s %8lld   %8lld at the end\n", structure.c_str(),
                static_cast<long long>(before == phase.early.end() ? 0 : before->second),
                static_cast<long long>(size));
  }
}

}  // namespace
}  // namespace divvy::bench

int main(int argc, char** argv) {
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  const auto phases =
      divvy::bench::RunIn(absl::StrCat(arguments.size() > 1 ? arguments[1] : ".", "/bench_soak"));
  if (!phases.ok()) std::fprintf(stderr, "%s\n", phases.status().ToString().c_str());
  if (!phases.ok()) return EXIT_FAILURE;
  bool flat = true;
  for (const auto& phase : *phases) {
    divvy::bench::Print(phase);
    for (const std::string& grown : phase.Grown()) {
      std::fprintf(stderr, "%s steps: %s grew\n", phase.name.c_str(), grown.c_str());
      flat = false;
    }
  }
  return flat ? EXIT_SUCCESS : EXIT_FAILURE;
}
