// The steps of bench/python/figures in C++. Prints a line "NAME SECONDS" for each kind of step: the
// time of one, over many that are scheduled at once on one worker and one parameter server, in one
// process.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "divvy.h"
#include "program/main.h"

namespace divvy::bench {
namespace {

constexpr int64_t kFloats = 1 << 18;  // 1 MiB
constexpr int64_t kIds = 4096, kWidth = 64, kKeys = 100'000;

absl::Status Nothing(WorkerContext&) { return absl::OkStatus(); }
const Step kNothing("nothing", Nothing);

absl::Status InReplica(WorkerContext& worker, absl::Status (*fn)(ReplicaContext&)) {
  return worker.strategy()
      .Run([fn](ReplicaContext& replica) -> absl::StatusOr<Nest> {
        RETURN_IF_ERROR(fn(replica));
        return Nest();
      })
      .status();
}

absl::Status ReadAndWrite(WorkerContext& worker) {
  ASSIGN_OR_RETURN(const Variable large, worker.strategy().FindVariable("large"));
  ASSIGN_OR_RETURN(const Tensor value, large.Read());
  return large.Assign(value);
}
const Step kReadAndWrite("variable", ReadAndWrite);

// A new tensor, as a batch has one: what is known of another tensor's duplicates does not help.
Tensor Ids() {
  static const std::vector<int64_t>& drawn = *[] {
    auto* const ids = new std::vector<int64_t>();
    for (int64_t i = 0; i < kIds; ++i)
      ids->push_back(static_cast<int64_t>(MixSeeds(1, static_cast<uint64_t>(i)) % kKeys));
    return ids;
  }();
  return Tensor::Vector<int64_t>(drawn);
}

absl::Status LookUp(WorkerContext& worker) {
  return InReplica(worker, [](ReplicaContext& replica) -> absl::Status {
    GradientTape tape(replica);
    const Var rows = tape.Lookup("rows", Ids());
    return replica.ApplyGradients(tape.Gradient(ReduceSum(rows)));
  });
}
const Step kLookUp("lookup", LookUp);

absl::Status Time(Coordinator& coordinator, const char* name, const Step<void()>& step, int count) {
  absl::Duration begin;
  for (const int steps : {count / 10, count}) {  // the first ones warm up
    begin = Clock::Real().Elapsed();
    for (int i = 0; i < steps; ++i) RETURN_IF_ERROR(coordinator.Schedule(step).status());
    RETURN_IF_ERROR(coordinator.Join());
  }
  std::printf("%s %.9f\n", name, absl::ToDoubleSeconds(Clock::Real().Elapsed() - begin) / count);
  return absl::OkStatus();
}

absl::Status Measure() {
  EmbeddedOptions options;
  options.num_ps = 1;
  options.num_workers = 1;
  ASSIGN_OR_RETURN(std::unique_ptr<Coordinator> coordinator, StartEmbedded(options));
  RETURN_IF_ERROR(
      coordinator->strategy().CreateVariable(VariableSpec{"large", {kFloats}}).status());
  DynamicTableOptions table;
  table.width = kWidth;
  table.optimizer = RowwiseAdagrad{0.1};
  RETURN_IF_ERROR(coordinator->strategy().CreateVariable(DynamicTable("rows", table)).status());
  RETURN_IF_ERROR(Time(*coordinator, "nothing", kNothing, 2000));
  RETURN_IF_ERROR(Time(*coordinator, "variable", kReadAndWrite, 500));
  return Time(*coordinator, "lookup", kLookUp, 200);
}

}  // namespace
}  // namespace divvy::bench

int main() {
  const absl::Status status = divvy::bench::Measure();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? EXIT_SUCCESS : EXIT_FAILURE;
}
