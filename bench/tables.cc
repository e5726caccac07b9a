// bazel run //bench:tables [-- DIRECTORY --what=stalls --format=json --rows=10000000]
//
// Dynamic tables, by --what:
//
//   core        On a parameter server's core, on one thread: commits and pulls of 65,536 keys out
//               of --rows, and the same with every key new. The ceiling, in turns: the same rows of
//               a variable that has all keys as rows, so without an index. Then the memory of a row
//               beyond its value and slots.
//   stalls      The longest time that the lock of a segment is held, where a server has
//               --server_rows.
//   requests    Pulls and pushes through a server in another process. The ceiling as in core.
//   checkpoint  A checkpoint of --checkpoint_rows, written and restored in DIRECTORY ("."). The
//               ceiling: as many bytes in a plain file.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "bench/parameter_server.h"
#include "bench/rounds.h"
#include "bench/tables.h"
#include "optimizers/apply.h"
#include "optimizers/denormals.h"
#include "ps_server/core/table/table_shard.h"

ABSL_FLAG(int64_t, rows, 2'000'000, "rows of the table");
ABSL_FLAG(int64_t, keys, 65'536, "keys of a request on the core");
ABSL_FLAG(std::string, what, "core,stalls,requests,checkpoint", "what is measured");
ABSL_FLAG(std::string, role, "", "set by the benchmark for its child process: ps");

namespace divvy::bench {

TableFormat FormatOf(int64_t width, TableOptions options) {
  return TableFormat({1, "bench", Shape({kTableBuckets, width})}, RandomNormal{0, 0.01f},
                     std::move(options), width, SlotsOf(kTableOptimizer));
}

std::vector<int64_t> RandomRows(int64_t rows, int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<int64_t> drawn(static_cast<size_t>(count));
  for (int64_t& row : drawn) row = static_cast<int64_t>(random.Below(static_cast<uint64_t>(rows)));
  std::sort(drawn.begin(), drawn.end());
  drawn.erase(std::unique(drawn.begin(), drawn.end()), drawn.end());
  return drawn;
}

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

void ShowBounded(const std::string& what, double figure, const std::string& bound_name,
                 double bound, const std::string& unit) {
  Show("tables", {what, bound_name, figure, bound, figure / bound, {figure}, {bound}}, {unit});
}

namespace {

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
    ApplySparse(StepOf(kTableOptimizer, 0), block, rows,
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

void Apply(TableShard& table, const std::vector<TableKey>& keys,
           const std::vector<float>& gradients) {
  const OptimizerStep step = StepOf(kTableOptimizer, 0);
  const auto width = static_cast<size_t>(table.format().width);
  for (const TableShard::Piece& piece : table.PiecesOf(keys)) {
    table.With(piece.segment, [&](TableSegment& segment) {
      segment.ApplyGradients(piece.Of(keys), gradients.data() + piece.begin * width, step, {1, 1});
    });
  }
}

void Measure(int64_t width) {
  const int64_t rows = absl::GetFlag(FLAGS_rows), keys_of_request = absl::GetFlag(FLAGS_keys);
  const std::vector<float> gradients(static_cast<size_t>(keys_of_request * width), 0.01f);
  auto table = std::make_unique<TableShard>(FormatOf(width), 0, kTableBuckets);
  Variable variable(rows, width);
  // Every row is made, in the order in which ids would come.
  double seconds = 0;
  for (int64_t first = 0; first < rows; first += keys_of_request) {
    std::vector<int64_t> some;
    for (int64_t row = first; row < std::min(rows, first + keys_of_request); ++row)
      some.push_back(row);
    const std::vector<TableKey> keys = KeysOf(some);
    const absl::Duration before = Clock::Real().Elapsed();
    Apply(*table, keys, gradients);
    seconds += absl::ToDoubleSeconds(Clock::Real().Elapsed() - before);
  }
  const TablePartStats size = table->stats();
  const int64_t of_values = 2 * width * static_cast<int64_t>(sizeof(float));
  const std::string name = absl::StrCat("width ", width);

  std::vector<std::vector<int64_t>> requests;
  std::vector<std::vector<TableKey>> requests_keys;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(RandomRows(rows, keys_of_request, 5 + static_cast<uint64_t>(i)));
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
       {{"made_m_rows_per_s", static_cast<double>(size.rows) / seconds / 1e6}});
  ShowBounded(absl::StrCat("memory of a row beyond value and slots, ", name),
              static_cast<double>(size.bytes) / static_cast<double>(size.rows) -
                  static_cast<double>(of_values),
              "the bound", 32, "bytes");
  const Comparison pull = Compare(
      {absl::StrCat("read, ", name),
       [&] {
         for (const auto& keys : requests_keys) {
           for (const TableShard::Piece& piece : table->PiecesOf(keys))
             table->With(piece.segment, [&](TableSegment& segment) {
               segment.Read(piece.Of(keys), out.data() + piece.begin * static_cast<size_t>(width));
             });
         }
       }},
      {"the rows of a variable",
       [&] {
         for (const auto& request : requests) variable.Read(request, out.data());
       }},
      units);
  Show("tables", pull, {"M rows/s", 1e6});
}

absl::Status Run(const std::string& directory) {
  const std::vector<std::string> wanted = absl::StrSplit(absl::GetFlag(FLAGS_what), ',');
  const auto is_wanted = [&](const char* what) {
    return std::find(wanted.begin(), wanted.end(), what) != wanted.end();
  };
  if (is_wanted("core")) {
    for (const int64_t width : {16, 64}) Measure(width);
  }
  if (is_wanted("stalls")) MeasureStalls();
  if (is_wanted("requests")) {
    for (const int64_t width : {16, 64}) RETURN_IF_ERROR(MeasureRequests(width));
  }
  if (is_wanted("checkpoint")) RETURN_IF_ERROR(MeasureCheckpoint(directory));
  ShowPeakMemory();
  return absl::OkStatus();
}

}  // namespace
}  // namespace divvy::bench

int main(int argc, char** argv) {
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  const divvy::FlushDenormals flush;
  const absl::Status status = absl::GetFlag(FLAGS_role) == "ps"
                                  ? divvy::bench::ServeParameters()
                                  : divvy::bench::Run(arguments.size() > 1 ? arguments[1] : ".");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? EXIT_SUCCESS : EXIT_FAILURE;
}
