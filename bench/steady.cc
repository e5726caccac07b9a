// bazel run //bench:steady [-- --minutes=10 --redo_log_bytes=1048576 --format=json DIRECTORY]
//
// The memory of a long run besides its variables, compared with its bounds. An embedded cluster of
// two parameter servers and two workers trains at durability `replay` with a small redo log, so
// that checkpoints are made all the time, in DIRECTORY (default: the working directory; the files
// are removed at the end). Prints the largest redo log, the largest number of applied ids that a
// parameter server remembered, and the process' largest resident memory after a tenth of the time
// and at the end. Exits with 1 if a bound was exceeded.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "program/embedded.h"
#include "strategy/step.h"

ABSL_FLAG(double, minutes, 1, "duration of the run");
ABSL_FLAG(int64_t, redo_log_bytes, 1 << 20, "as the coordinator's flag of this name");
ABSL_FLAG(std::string, format, "table", "table or json");

namespace divvy::bench {
namespace {

constexpr int kServers = 2, kWorkers = 2, kStepsAtATime = 50;
// The size of a step's argument, which is most of its entry in the redo log.
constexpr int64_t kArgumentBytes = 1000;
// The bound of docs/internals/protocol.md, plus a margin for the steps in flight.
constexpr size_t kRemembered = 32'768 + 100;

absl::Status TrainStep(WorkerContext& worker, const Tensor& amount) {
  ASSIGN_OR_RETURN(Variable sum, worker.strategy().FindVariable("sum"));
  return sum.AssignAdd(amount);
}
const Step kTrain("bench/steady/train", TrainStep);

// The largest values of all samples.
struct Largest {
  int64_t log_bytes = 0, log_entries = 0;
  size_t remembered = 0;
  void Look(EmbeddedCluster& cluster) {
    const CoordinatorSnapshot snapshot = cluster.coordinator().Snapshot();
    log_bytes = std::max(log_bytes, snapshot.redo_log_bytes);
    log_entries = std::max(log_entries, snapshot.redo_log_entries);
    for (int ps = 0; ps < kServers; ++ps)
      remembered = std::max(remembered, cluster.InspectPs(ps).remembered.size());
  }
};

absl::StatusOr<std::unique_ptr<EmbeddedCluster>> StartCluster(const std::string& directory) {
  EmbeddedSetup setup;
  setup.options.num_ps = kServers;
  setup.options.num_workers = kWorkers;
  setup.options.checkpoint_dir = directory;
  setup.coordinator.core.redo_log_bytes = absl::GetFlag(FLAGS_redo_log_bytes);
  ASSIGN_OR_RETURN(std::unique_ptr<EmbeddedCluster> cluster, EmbeddedCluster::Start(setup));
  VariableSpec sum{"sum", {kArgumentBytes / 4}};
  sum.partitioner = FixedShardsPartitioner{kServers};
  RETURN_IF_ERROR(cluster->coordinator().strategy().CreateVariable(sum).status());
  return cluster;
}

struct Run {
  Largest largest;
  int64_t steps = 0, durable_steps = 0;
  int64_t early_memory_bytes = 0, memory_bytes = 0;
  bool within_bounds() const {
    // A log that is below the bound takes one more entry, even if it then exceeds the bound. An
    // entry holds an argument and some names.
    return largest.log_bytes <= absl::GetFlag(FLAGS_redo_log_bytes) + 2 * kArgumentBytes &&
           largest.remembered <= kRemembered;
  }
};

absl::StatusOr<Run> TrainFor(absl::Duration time, const std::string& directory) {
  ASSIGN_OR_RETURN(const std::unique_ptr<EmbeddedCluster> cluster, StartCluster(directory));
  Coordinator& coordinator = cluster->coordinator();
  ASSIGN_OR_RETURN(
      const Tensor amount,
      Tensor::Copy<float>({kArgumentBytes / 4}, std::vector<float>(kArgumentBytes / 4, 1.0f)));
  Run run;
  const absl::Duration began = Clock::Real().Elapsed();
  for (absl::Duration passed; passed < time; passed = Clock::Real().Elapsed() - began) {
    for (int i = 0; i < kStepsAtATime; ++i)
      RETURN_IF_ERROR(coordinator.Schedule(kTrain, amount).status());
    run.largest.Look(*cluster);
    RETURN_IF_ERROR(coordinator.Join());
    run.largest.Look(*cluster);
    if (run.early_memory_bytes == 0 && passed > time / 10)
      run.early_memory_bytes = PeakMemoryBytes();
  }
  run.steps = coordinator.step();
  run.durable_steps = coordinator.durable_steps();
  run.memory_bytes = PeakMemoryBytes();
  return run;
}

double Mebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

void Print(const Run& run) {
  if (absl::GetFlag(FLAGS_format) == "json") {
    std::printf(
        "{\"bench\": \"steady\", \"steps\": %lld, \"redo_log_bytes\": %lld, \"remembered\": %zu, "
        "\"early_memory_bytes\": %lld, \"memory_bytes\": %lld}\n",
        static_cast<long long>(run.steps), static_cast<long long>(run.largest.log_bytes),
        run.largest.remembered, static_cast<long long>(run.early_memory_bytes),
        static_cast<long long>(run.memory_bytes));
    return;
  }
  std::printf("%lld steps in %g min, %lld of them covered by checkpoints\n",
              static_cast<long long>(run.steps), absl::GetFlag(FLAGS_minutes),
              static_cast<long long>(run.durable_steps));
  std::printf("redo log            %.3f MiB, %lld entries at most   bound %.3f MiB\n",
              Mebibytes(run.largest.log_bytes), static_cast<long long>(run.largest.log_entries),
              Mebibytes(absl::GetFlag(FLAGS_redo_log_bytes)));
  std::printf("remembered at a ps  %zu entries at most   bound %zu\n", run.largest.remembered,
              kRemembered);
  std::printf(
      "resident memory     %.1f MiB at most after a tenth of the time, %.1f MiB at the end\n",
      Mebibytes(run.early_memory_bytes), Mebibytes(run.memory_bytes));
}

absl::StatusOr<Run> RunIn(const std::string& directory) {
  FileSystem& files = FileSystem::Real();
  RETURN_IF_ERROR(files.CreateDirectory(directory));
  const absl::StatusOr<Run> run =
      TrainFor(absl::Minutes(1) * absl::GetFlag(FLAGS_minutes), directory);
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files.ListDirectory(directory));
  for (const std::string& name : names)
    RETURN_IF_ERROR(files.Remove(absl::StrCat(directory, "/", name)));
  RETURN_IF_ERROR(files.Remove(directory));
  return run;
}

}  // namespace
}  // namespace divvy::bench

int main(int argc, char** argv) {
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  const auto run =
      divvy::bench::RunIn(absl::StrCat(arguments.size() > 1 ? arguments[1] : ".", "/bench_steady"));
  if (!run.ok()) std::fprintf(stderr, "%s\n", run.status().ToString().c_str());
  if (!run.ok()) return EXIT_FAILURE;
  divvy::bench::Print(*run);
  if (!run->within_bounds())
    std::fprintf(stderr, "the redo log or the remembered entries exceeded their bound\n");
  return run->within_bounds() ? EXIT_SUCCESS : EXIT_FAILURE;
}
