// Dynamic tables through a worker's client, the data streams and the whole server. Beside them, in
// turns: a variable that has all keys as rows, with the same optimizer.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "bench/parameter_server.h"
#include "bench/rounds.h"
#include "bench/tables.h"
#include "protocol/clients.h"
#include "rpc/dialer.h"

ABSL_FLAG(int, requests, 60, "requests of one run, over gRPC");
ABSL_DECLARE_FLAG(int64_t, rows);

namespace divvy::bench {
namespace {

constexpr uint32_t kTable = 1, kVariable = 2;
constexpr int64_t kKeysOfRequest = 16'384;
// Used in turn. Together they have more rows than the processor's caches hold.
constexpr int kBatches = 16;
constexpr int kOutstanding = 2;

class Parameters {
 public:
  Parameters(std::shared_ptr<ParameterClient> ps, int64_t width)
      : ps_(std::move(ps)), width_(width) {}

  absl::Status Prepare() {
    const int64_t rows = absl::GetFlag(FLAGS_rows);
    ShardSpec table = WholeVariable(kTable, {kTableBuckets, width_});
    table.table = TableOptions();
    table.optimizer = kTableOptimizer;
    const ShardSpec variable = WholeVariable(kVariable, {rows, width_});
    ShardSpec slot = variable;
    slot.key.slot = 1;
    slot.name += "/Adagrad/accumulator";
    slot.initializer = Constant{kTableOptimizer.initial_accumulator};
    ASSIGN_OR_RETURN(fence_, BeginJob(*ps_, {table, variable, slot}));
    ASSIGN_OR_RETURN(gradients_, Tensor::Zeros(DType::kFloat32, {kKeysOfRequest, width_}));
    std::fill_n(gradients_.fresh_data<float>(), kKeysOfRequest * width_, 1e-3f);
    for (int batch = 0; batch < kBatches; ++batch) {
      const std::vector<int64_t> drawn = RandomRows(rows, kKeysOfRequest, 7 + batch);
      rows_.push_back(Tensor::Vector<int64_t>(drawn));
      keys_.push_back(KeysOfRequest(drawn));
    }
    return MakeRows(rows);
  }

  enum class Side { kTable, kVariable };
  enum class What { kPull, kPush, kPullThenPush };
  absl::Status RunOnce(Side side, What what) {
    Window window(kOutstanding);
    for (int i = 0; i < absl::GetFlag(FLAGS_requests); ++i) {
      const size_t batch = static_cast<size_t>(i) % kBatches;
      const Tensor& rows = side == Side::kTable ? keys_[batch] : rows_[batch];
      if (what != What::kPush) Pull(side, rows, window);
      if (what == What::kPullThenPush) RETURN_IF_ERROR(window.Wait());
      if (what != What::kPull) Push(side, rows, window);
      // As in a step, the push follows the pull.
      if (what == What::kPullThenPush) RETURN_IF_ERROR(window.Wait());
    }
    return window.Wait();
  }

 private:
  static Tensor KeysOfRequest(const std::vector<int64_t>& rows) {
    std::vector<int64_t> keys;
    for (const TableKey& key : KeysOf(rows)) keys.push_back(key.key);
    return Tensor::Vector<int64_t>(keys);
  }
  static ShardKey KeyOf(Side side) {
    return {VariableId(side == Side::kTable ? kTable : kVariable), 0, 0};
  }
  // Every row of the table is made, in the order in which ids would come.
  absl::Status MakeRows(int64_t rows) {
    Window window(kOutstanding);
    for (int64_t first = 0; first < rows; first += kKeysOfRequest) {
      std::vector<int64_t> some;
      for (int64_t row = first; row < std::min(rows, first + kKeysOfRequest); ++row)
        some.push_back(row);
      Push(Side::kTable, KeysOfRequest(some), window);
    }
    return window.Wait();
  }
  void Pull(Side side, const Tensor& rows, Window& window) {
    window.Enter();
    ps_->Call({fence_, {{KeyOf(side), rows}}},
              [&window](absl::StatusOr<PullReply> reply) { window.Leave(reply.status()); });
  }
  void Push(Side side, const Tensor& rows, Window& window) {
    window.Enter();
    CommitPart part;
    part.shard = KeyOf(side);
    part.op = WriteOp::kGradient;
    part.rows = rows;
    part.values = *gradients_.Rows(0, rows.shape().dim(0));
    part.optimizer = StepOf(kTableOptimizer, 0);
    if (side == Side::kVariable) part.slots = {1};
    CommitRequest request;
    request.fence = fence_;
    request.entry = EntryId(++entry_);
    request.parts.push_back(std::move(part));
    ps_->Call(std::move(request),
              [&window](absl::StatusOr<CommitReply> reply) { window.Leave(reply.status()); });
  }

  const std::shared_ptr<ParameterClient> ps_;
  const int64_t width_;
  Fence fence_;
  std::vector<Tensor> rows_, keys_;
  Tensor gradients_;
  uint64_t entry_ = 0;
};

}  // namespace

absl::Status MeasureRequests(int64_t width) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Child> ps, Child::Start("ps"));
  ThreadPoolExecutor executor(NumCores());
  RpcDialer dialer(executor, std::nullopt);
  Parameters parameters(dialer.ParameterServer(absl::StrCat("127.0.0.1:", ps->port())), width);
  RETURN_IF_ERROR(parameters.Prepare());
  using What = Parameters::What;
  using Side = Parameters::Side;
  for (const auto& [what, name] : {std::pair(What::kPull, "pull"), std::pair(What::kPush, "push"),
                                   std::pair(What::kPullThenPush, "pull, then push")}) {
    absl::Status status;
    const auto run = [&, what = what](Side side) {
      return [&, what, side] { status.Update(parameters.RunOnce(side, what)); };
    };
    const double rows = static_cast<double>(kKeysOfRequest) * absl::GetFlag(FLAGS_requests) *
                        (what == What::kPullThenPush ? 2 : 1);
    const Comparison comparison =
        Compare({absl::StrCat("gRPC, ", name, ", width ", width), run(Side::kTable)},
                {"the rows of a variable", run(Side::kVariable)}, rows);
    RETURN_IF_ERROR(status);
    Show("tables", comparison, {"k rows/s", 1e3});
  }
  return absl::OkStatus();
}

}  // namespace divvy::bench
