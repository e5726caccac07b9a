// bazel run //bench:optimizers [-- --format=json]
//
// Elements that each optimizer applies in a second on one core, dense and sparse, compared with
// memcpy of as many bytes as the optimizer reads and writes, because memory limits these loops. The
// parameter and its slots are larger than the caches.
#include <cstring>
#include <string>
#include <vector>

#include "absl/flags/parse.h"
#include "absl/strings/str_format.h"
#include "base/random.h"
#include "bench/rounds.h"
#include "optimizers/apply.h"
#include "optimizers/denormals.h"
#include "optimizers/optimizer.h"

namespace divvy::bench {
namespace {

constexpr int64_t kRows = 1 << 17, kWidth = 64;
constexpr int64_t kRowsOfSparse = kRows / 4;  // every fourth row on average

std::vector<float> RandomValues(int64_t size, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(random.Uniform() - 0.5);
  return values;
}

// Distinct rows in ascending order, as in a commit.
std::vector<int64_t> SparseRows() {
  Random random(3);
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < kRows; row += 4)
    rows.push_back(row + static_cast<int64_t>(random.Below(4)));
  return rows;
}

int64_t WidthOf(const SlotSpec& slot) { return slot.kind == SlotSpec::Kind::kValues ? kWidth : 1; }

// A parameter [kRows, kWidth] with the slots of one optimizer.
class Parameter {
 public:
  explicit Parameter(const Optimizer& optimizer)
      : step_(StepOf(optimizer, 0)),
        values_(RandomValues(kRows * kWidth, 1)),
        slots_(SlotsOf(optimizer)) {
    for (const SlotSpec& slot : slots_) {
      const bool counts = slot.kind == SlotSpec::Kind::kRowCounts;
      slot_values_.emplace_back(counts ? 0 : kRows * WidthOf(slot), slot.initial_value);
      slot_counts_.emplace_back(counts ? kRows : 0);
    }
  }

  void Dense(const std::vector<float>& gradient) { ApplyDense(step_, Block(), gradient); }
  void Sparse(const std::vector<int64_t>& rows, const std::vector<float>& gradient) {
    ApplySparse(step_, Block(), rows, gradient);
  }

  // Bytes that an update reads and writes in each row: the gradient once, the parameter and each
  // slot twice.
  int64_t BytesMovedPerRow() const {
    int64_t bytes = kWidth * 4 * 3;
    for (const SlotSpec& slot : slots_) bytes += 2 * 4 * WidthOf(slot);
    return bytes;
  }

 private:
  ParameterBlock Block() {
    ParameterBlock block{absl::MakeSpan(values_), kWidth};
    for (size_t i = 0; i < slots_.size(); ++i)
      block.slots[i] = {absl::MakeSpan(slot_values_[i]), absl::MakeSpan(slot_counts_[i])};
    return block;
  }

  OptimizerStep step_;
  std::vector<float> values_;
  std::vector<SlotSpec> slots_;
  std::vector<std::vector<float>> slot_values_;
  std::vector<std::vector<int32_t>> slot_counts_;
};

// memcpy of as many bytes as an update moves, half of them read and half written. Dense copies all
// at once, Sparse copies the named rows one after another. An update that prefetches rows may be
// faster than Sparse.
class Copy {
 public:
  explicit Copy(int64_t bytes_per_row)
      : chunk_(bytes_per_row / 2), from_(kRows * chunk_, 1), to_(kRows * chunk_) {}
  void Dense() { std::memcpy(to_.data(), from_.data(), from_.size()); }
  void Sparse(const std::vector<int64_t>& rows) {
    for (const int64_t row : rows)
      std::memcpy(to_.data() + row * chunk_, from_.data() + row * chunk_, chunk_);
  }

 private:
  int64_t chunk_;
  std::vector<char> from_, to_;
};

void Measure(const Optimizer& optimizer, const std::vector<float>& gradient,
             const std::vector<int64_t>& rows, const std::vector<float>& sparse_gradient) {
  Parameter parameter(optimizer);
  Copy copy(parameter.BytesMovedPerRow());
  const std::string name(OptimizerName(optimizer));
  const Comparison dense =
      Compare({name + ", dense", [&] { parameter.Dense(gradient); }},
              {"memcpy of the same bytes", [&] { copy.Dense(); }}, kRows * kWidth);
  const Comparison sparse =
      Compare({name + ", sparse", [&] { parameter.Sparse(rows, sparse_gradient); }},
              {"memcpy of the same rows", [&] { copy.Sparse(rows); }}, kRowsOfSparse * kWidth);
  for (const Comparison& comparison : {dense, sparse})
    Show("optimizers", comparison, {"M elements/s", 1e6});
}

void MeasureAll() {
  const FlushDenormals flush;
  const std::vector<float> gradient = RandomValues(kRows * kWidth, 2),
                           sparse_gradient = RandomValues(kRowsOfSparse * kWidth, 2);
  const std::vector<int64_t> rows = SparseRows();
  ShowText(absl::StrFormat(
      "%d rows of %d elements, one thread; sparse: %d of the rows; medians of %d rounds in turns",
      kRows, kWidth, kRowsOfSparse, Rounds()));
  for (const Optimizer& optimizer :
       {Optimizer(Sgd{0.01}), Optimizer(Momentum{0.01}), Optimizer(Adagrad{0.01}),
        Optimizer(RowwiseAdagrad{0.01}), Optimizer(Adam{0.01}), Optimizer(RmsProp{0.01}),
        Optimizer(Ftrl{0.01})}) {
    Measure(optimizer, gradient, rows, sparse_gradient);
  }
  ShowPeakMemory();
}

}  // namespace
}  // namespace divvy::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  divvy::bench::MeasureAll();
}
