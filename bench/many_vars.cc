// bazel run //bench:many_vars [-- --format=json]
//
// 16 MB of parameters in 1, 8, 64 and 256 variables on 2 parameter servers. The steps of a worker
// read all variables, apply a gradient to each (SGD), and compute nothing. All tasks are processes
// of this machine, run by `divvyctl launch`. The cost of a step should depend on its bytes, not on
// the number of variables. The ceiling, which takes turns with the steps: a plain TCP socket
// between two threads of the coordinator's process that moves the same bytes in both directions.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/status_macros.h"
#include "bench/raw_tcp.h"
#include "bench/rounds.h"
#include "divvy.h"

ABSL_FLAG(int, steps, 20, "steps of one run");

namespace divvy::bench {
namespace {

constexpr int64_t kBytes = int64_t{16} << 20;
constexpr int64_t kCounts[] = {1, 8, 64, 256};

// ---- the step -----------------------------------------------------------------------------------

// The variables and gradients of a step.
struct Work {
  std::vector<VariableSpec> variables;
  Gradients gradients;
};

std::vector<VariableSpec> Variables(int64_t count) {
  std::vector<VariableSpec> variables(static_cast<size_t>(count));
  for (size_t i = 0; i < variables.size(); ++i) {
    variables[i].name = absl::StrCat("many_vars/", count, "/", i);
    variables[i].shape = {kBytes / count / 256, 64};
    variables[i].optimizer = Sgd{0.1};
  }
  return variables;
}

std::unique_ptr<Work> MakeWork(int64_t count) {
  auto work = std::make_unique<Work>(Work{Variables(count), {}});
  for (const VariableSpec& variable : work->variables) {
    const std::vector<float> values(static_cast<size_t>(variable.shape.num_elements()), 1e-3f);
    work->gradients.Set(variable.name, Tensor::Copy<float>(variable.shape, values).value());
  }
  return work;
}

absl::Status TouchAll(WorkerContext& worker, int64_t count) {
  const auto in_replica = [count](ReplicaContext& replica) -> absl::Status {
    const Work& work =
        replica.Local<Work>(absl::StrCat("work/", count), [count] { return MakeWork(count); });
    RETURN_IF_ERROR(replica.ReadAll(work.variables).status());
    return replica.ApplyGradients(work.gradients);
  };
  return worker.strategy().Run(in_replica).status();
}
const Step kTouchAll("many_vars/touch_all", TouchAll);

absl::Status RunSteps(Coordinator& coordinator, int64_t count) {
  for (int i = 0; i < absl::GetFlag(FLAGS_steps); ++i)
    RETURN_IF_ERROR(coordinator.Schedule(kTouchAll, count).status());
  return coordinator.Join();
}

// ---- the ceiling --------------------------------------------------------------------------------

// The other end of the socket, on a thread of its own.
class Peer {
 public:
  explicit Peer(std::unique_ptr<RawTcpServer> server) : server_(std::move(server)), thread_(1) {
    thread_.PostBlocking("raw tcp", [this] { server_->Serve(kBytes).IgnoreError(); });
  }
  ~Peer() {
    server_->Stop();
    thread_.Stop();
  }

 private:
  const std::unique_ptr<RawTcpServer> server_;
  ThreadPoolExecutor thread_;
};

absl::Status MoveBytes(RawTcp& tcp) {
  for (int i = 0; i < absl::GetFlag(FLAGS_steps); ++i) {
    RETURN_IF_ERROR(tcp.Pull(kBytes, 1, 1));
    RETURN_IF_ERROR(tcp.Push(kBytes, 1, 1));
  }
  return absl::OkStatus();
}

// ---- measuring ----------------------------------------------------------------------------------

absl::Status Train(Coordinator& coordinator) {
  for (const int64_t count : kCounts) {
    for (const VariableSpec& variable : Variables(count))
      RETURN_IF_ERROR(coordinator.strategy().CreateVariable(variable).status());
  }
  ASSIGN_OR_RETURN(std::unique_ptr<RawTcpServer> server, RawTcpServer::Listen());
  const int port = server->port();
  const Peer peer(std::move(server));
  ASSIGN_OR_RETURN(const std::unique_ptr<RawTcp> tcp, RawTcp::Connect(port, kBytes));
  absl::Status status;
  std::vector<Contender> figures;
  for (const int64_t count : kCounts)
    figures.push_back({absl::StrCat("16 MB in ", count, count == 1 ? " variable" : " variables"),
                       [&, count] { status.Update(RunSteps(coordinator, count)); }});
  const Contender ceiling{"raw TCP", [&] { status.Update(MoveBytes(*tcp)); }};
  const std::vector<Comparison> comparisons =
      CompareAll(figures, ceiling, absl::GetFlag(FLAGS_steps));
  RETURN_IF_ERROR(status);
  for (const Comparison& comparison : comparisons) {
    Show("many_vars", comparison, {"steps/s"},
         {{"step_ms", 1e3 / comparison.rate},
          {"times_one_variable", TimesAsFast(comparison, comparisons[0])}});
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace divvy::bench

DIVVY_PROGRAM(divvy::bench::Train);
