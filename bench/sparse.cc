// bazel run //bench:sparse [-- --format=json]
//
// Requests for 4,096 different rows of 64 floats, of a table of 2^20 rows. The rows are pulled from
// a parameter server in another process, and their gradients are pushed and applied with SGD,
// through a worker's client, the data streams and the whole server. Ids are uniform or follow
// Zipf's law (the n-th most frequent row has a probability proportional to 1/n; the rows are
// scattered over the table like hashed ids). A worker requests a row once, however often a batch
// names it, so ids are drawn until 4,096 are different. The ceiling, which takes turns with that: a
// dense variable of as many rows, through the same client.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/process.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "bench/parameter_server.h"
#include "bench/rounds.h"
#include "protocol/clients.h"
#include "rpc/dialer.h"

ABSL_FLAG(int, requests, 300, "requests of one run");
ABSL_FLAG(std::string, role, "", "set by the benchmark for its child process: ps");

namespace divvy::bench {
namespace {

constexpr int64_t kTableRows = 1 << 20, kWidth = 64, kIds = 4096;
constexpr uint32_t kTable = 1, kDense = 2;
// Different requests, used in turn. Together they have more rows than the processor's caches hold.
constexpr int kBatches = 32;
constexpr int kOutstanding = 2;

// ---- ids ----------------------------------------------------------------------------------------

int64_t UniformId(Random& random) { return static_cast<int64_t>(random.Below(kTableRows)); }

int64_t ZipfId(Random& random) {
  constexpr int64_t kScatter = 0x9E3779B1;  // odd, so this permutes the rows
  const auto rank =
      static_cast<int64_t>(std::exp(random.Uniform() * std::log(static_cast<double>(kTableRows))));
  return std::min(rank, kTableRows - 1) * kScatter % kTableRows;
}

// The ids of each batch are in ascending order, as a worker sends them.
std::vector<Tensor> Batches(int64_t (*draw)(Random&)) {
  Random random(3);
  std::vector<Tensor> batches;
  for (int i = 0; i < kBatches; ++i) {
    std::set<int64_t> ids;
    while (static_cast<int64_t>(ids.size()) < kIds) ids.insert(draw(random));
    batches.push_back(Tensor::Vector<int64_t>(std::vector<int64_t>(ids.begin(), ids.end())));
  }
  return batches;
}

// ---- requests -----------------------------------------------------------------------------------

class Parameters {
 public:
  explicit Parameters(std::shared_ptr<ParameterClient> ps) : ps_(std::move(ps)) {}

  absl::Status Prepare() {
    ASSIGN_OR_RETURN(fence_, BeginJob(*ps_, {WholeVariable(kTable, {kTableRows, kWidth}),
                                             WholeVariable(kDense, {kIds, kWidth})}));
    for (Tensor& gradient : gradients_) {
      ASSIGN_OR_RETURN(gradient, Tensor::Zeros(DType::kFloat32, {kIds, kWidth}));
      for (int64_t i = 0; i < kIds * kWidth; ++i) gradient.fresh_data<float>()[i] = 1e-3f;
    }
    return absl::OkStatus();
  }

  const Fence& fence() const { return fence_; }  // REQUIRES: prepared

  // Pulls `rows` of the table, or without rows the dense variable.
  void Pull(const std::optional<Tensor>& rows, Window& window) {
    window.Enter();
    ps_->Call({fence_, {{KeyOf(rows), rows}}},
              [&window](absl::StatusOr<PullReply> reply) { window.Leave(reply.status()); });
  }
  void Push(const std::optional<Tensor>& rows, Window& window) {
    window.Enter();
    CommitPart part;
    part.shard = KeyOf(rows);
    part.op = WriteOp::kGradient;
    part.rows = rows;
    part.values = gradients_[++entry_ % 2];
    part.optimizer = StepOf(Sgd{0.1}, 0);
    CommitRequest request;
    request.fence = fence_;
    request.entry = EntryId(entry_);
    request.parts.push_back(std::move(part));
    ps_->Call(std::move(request),
              [&window](absl::StatusOr<CommitReply> reply) { window.Leave(reply.status()); });
  }

 private:
  static ShardKey KeyOf(const std::optional<Tensor>& rows) {
    return {VariableId(rows ? kTable : kDense), 0, 0};
  }

  const std::shared_ptr<ParameterClient> ps_;
  Fence fence_;
  Tensor gradients_[2];
  uint64_t entry_ = 0;
};

// ---- measuring ----------------------------------------------------------------------------------

enum class What { kPull, kPush, kPullThenPush };

// Requests `batches` in turn, or without batches the dense variable.
absl::Status RunOnce(Parameters& parameters, What what, const std::vector<Tensor>& batches) {
  Window window(kOutstanding);
  const int requests = absl::GetFlag(FLAGS_requests);
  for (int i = 0; i < requests; ++i) {
    const std::optional<Tensor> rows =
        batches.empty() ? std::nullopt
                        : std::optional<Tensor>(batches[static_cast<size_t>(i) % batches.size()]);
    if (what == What::kPull) parameters.Pull(rows, window);
    if (what == What::kPush) parameters.Push(rows, window);
    if (what != What::kPullThenPush) continue;
    parameters.Pull(rows, window);  // as in a step, the push follows the pull
    RETURN_IF_ERROR(window.Wait());
    parameters.Push(rows, window);
    RETURN_IF_ERROR(window.Wait());
  }
  return window.Wait();
}

// ---- figures ------------------------------------------------------------------------------------

absl::Status Measure(Parameters& parameters, const std::string& ids,
                     const std::vector<Tensor>& batches) {
  for (const auto& [what, name] : {std::pair(What::kPull, "pull"), std::pair(What::kPush, "push"),
                                   std::pair(What::kPullThenPush, "pull, then push")}) {
    absl::Status status;
    const Contender figure{absl::StrCat(name, ", ", ids),
                           [&, what = what] { status.Update(RunOnce(parameters, what, batches)); }};
    const Contender ceiling{"as many dense rows",
                            [&, what = what] { status.Update(RunOnce(parameters, what, {})); }};
    const double rows = static_cast<double>(kIds) * absl::GetFlag(FLAGS_requests) *
                        (what == What::kPullThenPush ? 2 : 1);
    const Comparison comparison = Compare(figure, ceiling, rows);
    RETURN_IF_ERROR(status);
    Show("sparse", comparison, {"k rows/s", 1e3},
         {{"gb_per_s", comparison.rate * kWidth * sizeof(float) / 1e9}});
  }
  return absl::OkStatus();
}

absl::Status Run() {
  ASSIGN_OR_RETURN(const std::unique_ptr<Child> ps, Child::Start("ps"));
  ThreadPoolExecutor executor(NumCores());
  RpcDialer dialer(executor, std::nullopt);
  const std::shared_ptr<ParameterClient> client =
      dialer.ParameterServer(absl::StrCat("127.0.0.1:", ps->port()));
  Parameters parameters(client);
  RETURN_IF_ERROR(parameters.Prepare());
  RETURN_IF_ERROR(Measure(parameters, "uniform", Batches(UniformId)));
  return Measure(parameters, "Zipf", Batches(ZipfId));
}

int Main() {
  const absl::Status status = absl::GetFlag(FLAGS_role) == "ps" ? ServeParameters() : Run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace divvy::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return divvy::bench::Main();
}
