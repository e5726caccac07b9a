// The program of bench/rebalance: each step reads and changes --rows_of_step rows of a variable of
// 8 shards. --hot times as many of them are in shard 0 as in another shard. Within a shard, rows
// are drawn by Zipf's law, and the most frequent ones are scattered over the shard. Prints the rate
// of each second until --stop_file exists. At the end the sum of all changes must be exact.
#include <cmath>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/flags/flag.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "divvy.h"

ABSL_FLAG(double, hot, 5, "how much more often than another shard shard 0 is used");
ABSL_FLAG(double, zipf, 1.2, "the exponent of Zipf's law");
ABSL_FLAG(int64_t, rows, 800'000, "rows of the variable");
ABSL_FLAG(int64_t, rows_of_step, 12'000, "different rows of a step");
ABSL_FLAG(std::string, stop_file, "", "the program runs until this file exists");

namespace divvy::bench {
namespace {

constexpr int64_t kShards = 8, kWidth = 64;

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

// Sorted, each row once. Whatever --hot is, a step has the same number of rows, up to rounding, so
// rates can be compared.
std::vector<int64_t> DrawRows(uint64_t seed) {
  Random random(seed);
  const int64_t of_shard = absl::GetFlag(FLAGS_rows) / kShards;
  const double hot = absl::GetFlag(FLAGS_hot);
  const double cold_rows =
      static_cast<double>(absl::GetFlag(FLAGS_rows_of_step)) / (hot + kShards - 1);
  std::vector<int64_t> rows;
  for (int64_t shard = 0; shard < kShards; ++shard) {
    absl::btree_set<int64_t> drawn;
    const auto wanted = static_cast<size_t>(std::lround(shard == 0 ? hot * cold_rows : cold_rows));
    while (drawn.size() < wanted) {
      const int64_t rank = ZipfRank(random, of_shard, absl::GetFlag(FLAGS_zipf));
      // A prime that is larger than the shard: each rank has its own row, far from its neighbours'.
      drawn.insert(shard * of_shard + rank * 2'654'435'761 % of_shard);
    }
    rows.insert(rows.end(), drawn.begin(), drawn.end());
  }
  return rows;
}

// Drawing takes longer than a step, so a worker draws some sets of rows once.
struct RowSets {
  std::vector<int64_t> sets[16];
};

absl::Status Change(WorkerContext& worker, int64_t number) {
  auto& drawn = worker.Local<RowSets>("rows", [] {
    auto made = std::make_unique<RowSets>();
    for (size_t i = 0; i < std::size(made->sets); ++i) made->sets[i] = DrawRows(i);
    return made;
  });
  const std::vector<int64_t>& rows =
      drawn.sets[static_cast<size_t>(number) % std::size(drawn.sets)];
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
      for (int i = 0; i < 4; ++i, ++steps)
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
