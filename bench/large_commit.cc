// bazel run //bench:large_commit [-- --mib=1024 --ps=4 --steps=3 --format=json]
//
// A step that commits a gigabyte of sparse rows, in an embedded cluster of one worker. Measures how
// long the step takes, and checks that the worker answers pings meanwhile. The coordinator sends
// one ping each second and gives up the worker after a silence of 2 s, instead of 5 s. So an answer
// that is more than a second late ends the benchmark with 1. It needs three to four times the
// memory of the commit.
#include <cstdint>
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
#include "base/process.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "ops/gradients.h"
#include "program/embedded.h"
#include "strategy/replica_context.h"
#include "strategy/step.h"
#include "strategy/strategy.h"

ABSL_FLAG(int64_t, mib, 1024, "MiB of rows that a step commits");
ABSL_FLAG(int, ps, 4, "number of parameter servers");
ABSL_FLAG(int, steps, 3, "number of steps, one after another");
ABSL_FLAG(std::string, format, "table", "table or json");

namespace divvy::bench {
namespace {

constexpr int64_t kWidth = 64, kIdsPerRow = 2;  // each row gets about two ids

int64_t Ids() { return absl::GetFlag(FLAGS_mib) * (1 << 20) / (kWidth * 4); }

absl::Status Descend(ReplicaContext& replica) {
  const int64_t table_rows = Ids() / kIdsPerRow;
  Random random(7);
  std::vector<int64_t> ids(static_cast<size_t>(Ids()));
  for (int64_t& id : ids)
    id = static_cast<int64_t>(random.Below(static_cast<uint64_t>(table_rows)));
  IndexedSlices rows;
  rows.ids = Tensor::Vector<int64_t>(absl::MakeConstSpan(ids));
  ASSIGN_OR_RETURN(rows.rows, Tensor::Zeros(DType::kFloat32, {Ids(), kWidth}));
  rows.num_rows = table_rows;
  Gradients gradients;
  gradients.Set("table", rows);
  return replica.ApplyGradients(gradients);
}
absl::Status Train(WorkerContext& worker) { return worker.strategy().Run(Descend).status(); }
const Step kTrain("bench/large_commit/train", Train);

struct Result {
  std::vector<double> seconds;  // of each step
  int64_t lost_workers = 0;
};

absl::StatusOr<Result> Run() {
  EmbeddedSetup setup;
  setup.options.num_ps = absl::GetFlag(FLAGS_ps);
  setup.options.num_workers = 1;
  setup.coordinator.core.worker_silence = absl::Seconds(2);
  ASSIGN_OR_RETURN(const std::unique_ptr<EmbeddedCluster> cluster, EmbeddedCluster::Start(setup));
  Coordinator& coordinator = cluster->coordinator();
  VariableSpec table{"table", {Ids() / kIdsPerRow, kWidth}, Zeros(), Sgd{0.1}};
  table.partitioner = FixedShardsPartitioner{2 * absl::GetFlag(FLAGS_ps)};
  RETURN_IF_ERROR(coordinator.strategy().CreateVariable(table).status());
  Result result;
  for (int i = 0; i < absl::GetFlag(FLAGS_steps); ++i) {
    const absl::Duration began = Clock::Real().Elapsed();
    RETURN_IF_ERROR(coordinator.Schedule(kTrain).status());
    RETURN_IF_ERROR(coordinator.Join());
    result.seconds.push_back(absl::ToDoubleSeconds(Clock::Real().Elapsed() - began));
  }
  result.lost_workers = coordinator.step() == absl::GetFlag(FLAGS_steps)
                            ? cluster->coordinator().Snapshot().lost_workers
                            : -1;
  return result;
}

void Print(const Result& result) {
  const bool json = absl::GetFlag(FLAGS_format) == "json";
  for (const double seconds : result.seconds) {
    std::printf(json ? "{\"bench\": \"large_commit\", \"mib\": %lld, \"seconds\": %.3f}\n"
                     : "a step that commits %lld MiB of rows: %.2f s\n",
                static_cast<long long>(absl::GetFlag(FLAGS_mib)), seconds);
  }
  std::printf(
      json ? "{\"bench\": \"large_commit\", \"lost_workers\": %lld, \"memory_bytes\": %lld}\n"
           : "the worker was lost %lld times; resident memory at most %lld bytes\n",
      static_cast<long long>(result.lost_workers), static_cast<long long>(PeakMemoryBytes()));
}

}  // namespace
}  // namespace divvy::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const auto result = divvy::bench::Run();
  if (!result.ok()) std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  if (!result.ok()) return EXIT_FAILURE;
  divvy::bench::Print(*result);
  return result->lost_workers == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
