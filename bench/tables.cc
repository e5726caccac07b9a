// bazel run //bench:tables [-- --format=json --rows=10000000]
//
// Dynamic tables on a parameter server's core, on one thread: commits and pulls of 65,536 keys out
// of --rows, and the same with every key new. The ceiling, in turns: the same rows of a variable
// that has all keys as rows, so without an index. Then the memory of a row beyond its value and
// slots, and the longest time that one commit takes in a segment while the table grows.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/random.h"
#include "bench/rounds.h"
#include "optimizers/apply.h"
#include "optimizers/denormals.h"
#include "ps_server/core/table/table_shard.h"

ABSL_FLAG(int64_t, rows, 2'000'000, "rows of the table");
ABSL_FLAG(int64_t, keys, 65'536, "keys of a request");

namespace divvy::bench {
namespace {

const Adagrad kOptimizer{0.01};

TableFormat FormatOf(int64_t width) {
  return TableFormat({1, "bench", Shape({kTableBuckets, width})}, RandomNormal{0, 0.01f}, {}, width,
                     SlotsOf(kOptimizer));
}

// Distinct random row numbers below `rows`.
std::vector<int64_t> RandomRows(int64_t rows, int64_t count, Random& random) {
  std::vector<int64_t> drawn(static_cast<size_t>(count));
  for (int64_t& row : drawn) row = static_cast<int64_t>(random.Below(static_cast<uint64_t>(rows)));
  std::sort(drawn.begin(), drawn.end());
  drawn.erase(std::unique(drawn.begin(), drawn.end()), drawn.end());
  return drawn;
}

// The key of a row: hashed ids are spread over all numbers.
int64_t KeyOfRow(int64_t row) {
  return static_cast<int64_t>(MixSeeds(9, static_cast<uint64_t>(row)));
}

std::vector<TableKey> KeysOf(const std::vector<int64_t>& rows) {
  std::vector<TableKey> keys;
  for (const int64_t row : rows) keys.push_back({KeyOfRow(row), MixKey(KeyOfRow(row))});
  std::sort(keys.begin(), keys.end(), [](const TableKey& a, const TableKey& b) {
    return TableOrder(a.mixed) < TableOrder(b.mixed);
  });
  return keys;
}

// A variable with all rows, and the accumulator of its optimizer.
class Variable {
 public:
  Variable(int64_t rows, int64_t width)
      : width_(width),
        values_(static_cast<size_t>(rows * width)),
        accumulator_(static_cast<size_t>(rows * width), 0.1f) {}
  void Apply(const std::vector<int64_t>& rows, const std::vector<float>& gradients) {
    ParameterBlock block{absl::MakeSpan(values_), width_};
    block.slots[0].values = absl::MakeSpan(accumulator_);
    ApplySparse(StepOf(kOptimizer, 0), block, rows,
                absl::MakeConstSpan(gradients).first(rows.size() * static_cast<size_t>(width_)));
  }
  void Read(const std::vector<int64_t>& rows, float* out) const {
    constexpr size_t kAhead = 8;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i + kAhead < rows.size()) __builtin_prefetch(values_.data() + rows[i + kAhead] * width_);
      std::memcpy(out + i * static_cast<size_t>(width_), values_.data() + rows[i] * width_,
                  static_cast<size_t>(width_) * sizeof(float));
    }
  }

 private:
  const int64_t width_;
  std::vector<float> values_, accumulator_;
};

// Applies the gradients, and returns the longest time in one segment.
absl::Duration Apply(TableShard& table, const std::vector<TableKey>& keys,
                     const std::vector<float>& gradients) {
  const OptimizerStep step = StepOf(kOptimizer, 0);
  const std::vector<TableShard::Piece> pieces = table.PiecesOf(keys);
  absl::Duration longest;
  absl::Duration before = Clock::Real().Elapsed();
  for (const TableShard::Piece& piece : pieces) {
    table.ApplyGradients(piece, keys, gradients.data(), step, {1, 1});
    const absl::Duration now = Clock::Real().Elapsed();
    longest = std::max(longest, now - before);
    before = now;
  }
  return longest;
}

void Measure(int64_t width) {
  const int64_t rows = absl::GetFlag(FLAGS_rows), keys_of_request = absl::GetFlag(FLAGS_keys);
  Random random(5);
  const std::vector<float> gradients(static_cast<size_t>(keys_of_request * width), 0.01f);
  auto table = std::make_unique<TableShard>(FormatOf(width), 0, kTableBuckets);
  Variable variable(rows, width);
  // Every row is made, in the order in which ids would come.
  absl::Duration longest;
  double seconds = 0;
  for (int64_t first = 0; first < rows; first += keys_of_request) {
    std::vector<int64_t> some;
    for (int64_t row = first; row < std::min(rows, first + keys_of_request); ++row)
      some.push_back(row);
    const std::vector<TableKey> keys = KeysOf(some);
    const absl::Duration before = Clock::Real().Elapsed();
    longest = std::max(longest, Apply(*table, keys, gradients));
    seconds += absl::ToDoubleSeconds(Clock::Real().Elapsed() - before);
  }
  const TableShard::Size size = table->size();
  const int64_t of_values = 2 * width * static_cast<int64_t>(sizeof(float));
  const std::string name = absl::StrCat("width ", width);

  std::vector<std::vector<int64_t>> requests;
  std::vector<std::vector<TableKey>> requests_keys;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(RandomRows(rows, keys_of_request, random));
    requests_keys.push_back(KeysOf(requests.back()));
  }
  std::vector<float> out(static_cast<size_t>(keys_of_request * width));
  double units = 0;
  for (const auto& request : requests) units += static_cast<double>(request.size());
  const Comparison commit = Compare({absl::StrCat("find and apply Adagrad, ", name),
                                     [&] {
                                       for (const auto& keys : requests_keys)
                                         Apply(*table, keys, gradients);
                                     }},
                                    {"the rows of a variable",
                                     [&] {
                                       for (const auto& request : requests)
                                         variable.Apply(request, gradients);
                                     }},
                                    units);
  Show("tables", commit, {"M rows/s", 1e6},
       {{"made_m_rows_per_s", static_cast<double>(size.rows) / seconds / 1e6},
        {"extra_bytes_of_row", static_cast<double>(size.bytes) / static_cast<double>(size.rows) -
                                   static_cast<double>(of_values)},
        {"longest_in_segment_ms", absl::ToDoubleMilliseconds(longest)}});
  const Comparison pull = Compare({absl::StrCat("read, ", name),
                                   [&] {
                                     for (const auto& keys : requests_keys) {
                                       for (const TableShard::Piece& piece : table->PiecesOf(keys))
                                         table->Read(piece, keys, out.data());
                                     }
                                   }},
                                  {"the rows of a variable",
                                   [&] {
                                     for (const auto& request : requests)
                                       variable.Read(request, out.data());
                                   }},
                                  units);
  Show("tables", pull, {"M rows/s", 1e6});
}

}  // namespace
}  // namespace divvy::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const divvy::FlushDenormals flush;
  for (const int64_t width : {16, 64}) divvy::bench::Measure(width);
  divvy::bench::ShowPeakMemory();
}
