// The program of bench/rebalance: steps read and change random rows of a variable of 8 shards. The
// rows of shard 0 are drawn --hot times as often as those of another shard; within a shard by
// Zipf's law, its most frequent rows scattered over the shard. Prints the rate of each second,
// until
// --stop_file exists. At the end the sum of all changes must be exact.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "divvy.h"

ABSL_FLAG(double, hot, 5, "how much more often than another shard shard 0 is used");
ABSL_FLAG(double, zipf, 1.2, "the exponent of Zipf's law");
ABSL_FLAG(int64_t, rows, 800'000, "rows of the variable");
ABSL_FLAG(int64_t, rows_of_step, 2'000, "rows of a step, before repeats are dropped");
ABSL_FLAG(std::string, stop_file, "", "the program runs until this file exists");

namespace divvy::bench {
namespace {

constexpr int64_t kShards = 8, kWidth = 16;

VariableSpec Table() {
  VariableSpec spec{"table", {absl::GetFlag(FLAGS_rows), kWidth}, Zeros()};
  spec.partitioner = FixedShardsPartitioner{kShards};
  return spec;
}
const VariableSpec kRows{"rows", {}, Zeros(), {}, DType::kInt64};

// Ranks by Zipf's law, by rejection from the continuous law (an integral of x^-s).
int64_t ZipfRank(Random& random, int64_t n, double s) {
  const double most = std::pow(static_cast<double>(n) + 1, 1 - s);
  for (;;) {
    const double u = static_cast<double>(random.Next() >> 11) * 0x1p-53;
    const double x = std::pow(1 + u * (most - 1), 1 / (1 - s));
    const auto rank = static_cast<int64_t>(x);
    const double accepted = std::pow(static_cast<double>(rank), -s) / std::pow(x, -s);
    const double v = static_cast<double>(random.Next() >> 11) * 0x1p-53;
    // The ratio is at least 1 for x above rank, so it is scaled by its largest value, 2^s.
    if (rank >= 1 && rank <= n && v * std::pow(2, s) < accepted) return rank - 1;
  }
}

std::vector<int64_t> DrawRows(uint64_t seed) {
  Random random(seed);
  const int64_t rows = absl::GetFlag(FLAGS_rows), of_shard = rows / kShards;
  const double hot = absl::GetFlag(FLAGS_hot);
  std::vector<int64_t> drawn;
  for (int64_t i = 0; i < absl::GetFlag(FLAGS_rows_of_step); ++i) {
    const double place = static_cast<double>(random.Next() >> 11) * 0x1p-53 * (hot + kShards - 1);
    const int64_t shard = place < hot ? 0 : 1 + static_cast<int64_t>(place - hot);
    const int64_t rank = ZipfRank(random, of_shard, absl::GetFlag(FLAGS_zipf));
    // A prime that is larger than the shard: each rank has its own row, far from its neighbours'.
    drawn.push_back(std::min<int64_t>(shard, kShards - 1) * of_shard +
                    rank * 2'654'435'761 % of_shard);
  }
  std::sort(drawn.begin(), drawn.end());
  drawn.erase(std::unique(drawn.begin(), drawn.end()), drawn.end());
  return drawn;
}

absl::Status Change(WorkerContext& worker, int64_t number) {
  const std::vector<int64_t> rows = DrawRows(static_cast<uint64_t>(number));
  const auto n = static_cast<int64_t>(rows.size());
  const Tensor ids = Tensor::Vector<int64_t>(rows);
  ASSIGN_OR_RETURN(Variable table, worker.strategy().FindVariable("table"));
  ASSIGN_OR_RETURN(Variable count, worker.strategy().FindVariable("rows"));
  RETURN_IF_ERROR(table.Rows(ids).status());
  const Tensor ones =
      *Tensor::Copy<float>({n, kWidth}, std::vector<float>(rows.size() * kWidth, 1));
  RETURN_IF_ERROR(
      table.ScatterRows(Variable::Scatter::kAdd, {ids, ones, absl::GetFlag(FLAGS_rows)}));
  return count.AssignAdd(Tensor::Scalar<int64_t>(n));
}
const Step kChange("hot_shard/change", Change);

absl::Status Run(Coordinator& coordinator) {
  RETURN_IF_ERROR(coordinator.strategy().CreateVariable(Table()).status());
  RETURN_IF_ERROR(coordinator.strategy().CreateVariable(kRows).status());
  int64_t number = 0;
  while (!FileSystem::Real().Stat(absl::GetFlag(FLAGS_stop_file)).ok()) {
    const absl::Duration began = Clock::Real().Elapsed();
    int64_t steps = 0;
    do {
      for (int i = 0; i < 20; ++i, ++steps)
        RETURN_IF_ERROR(coordinator.Schedule(kChange, number++).status());
      RETURN_IF_ERROR(coordinator.Join());
      std::puts("round");
      std::fflush(stdout);
    } while (Clock::Real().Elapsed() - began < absl::Seconds(1));
    std::printf("rate %.1f\n", static_cast<double>(steps) /
                                   absl::ToDoubleSeconds(Clock::Real().Elapsed() - began));
    std::fflush(stdout);
  }
  ASSIGN_OR_RETURN(Variable table, coordinator.strategy().FindVariable("table"));
  ASSIGN_OR_RETURN(Variable count, coordinator.strategy().FindVariable("rows"));
  ASSIGN_OR_RETURN(const Tensor values, table.Read());
  ASSIGN_OR_RETURN(const Tensor counted, count.Read());
  double sum = 0;
  for (const float value : *values.values<float>()) sum += value;
  const auto rows = static_cast<double>((*counted.values<int64_t>())[0]);
  std::printf("%s: the changes add up to %.0f, and %.0f rows were changed\n",
              sum == rows * kWidth ? "exact" : "WRONG", sum / kWidth, rows);
  return sum == rows * kWidth ? absl::OkStatus() : absl::InternalError("the sums differ");
}

}  // namespace
}  // namespace divvy::bench

DIVVY_PROGRAM(divvy::bench::Run);
