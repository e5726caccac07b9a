// bazel run //bench:steps [-- --format=json]
//
// The cost of a step's round trip in a cluster of real processes: steps that do nothing, and steps
// that add 1 to a counter on a parameter server. Run by `divvyctl launch`, with 1 and with 2
// workers. The ceiling, which the coordinator's process measures in turn with the steps: unary gRPC
// calls that do almost nothing (Admin.GetStatus of ps 0), one at a time and 32 at a time.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "divvy.h"
#include "grpc/support/time.h"
#include "grpcpp/grpcpp.h"
#include "proto/divvy.grpc.pb.h"

ABSL_FLAG(std::string, format, "table", "table or json");
ABSL_FLAG(int, steps, 5000, "steps of a run");
ABSL_FLAG(int, latencies, 500, "latencies of single steps measured in a run");
ABSL_FLAG(int, rounds, 5, "rounds; every contender runs once in each");

namespace divvy::bench {
namespace {

const VariableSpec kCounter{"bench/counter", {}, Zeros(), {}, DType::kInt64};

absl::Status DoNothing(WorkerContext&) { return absl::OkStatus(); }
const Step kNothing("bench/nothing", DoNothing);

absl::StatusOr<int64_t> ReturnOne(WorkerContext&) { return 1; }
const Step kReturnOne("bench/return_one", ReturnOne);

absl::Status Count(WorkerContext& worker) {
  ASSIGN_OR_RETURN(const Variable counter, worker.strategy().FindVariable(kCounter));
  return counter.AssignAdd(Tensor::Scalar<int64_t>(1));
}
const Step kCount("bench/count", Count);

// The samples of one contender: rates, or latencies of single calls.
struct Samples {
  std::vector<double> rates;      // per second, one for each round
  std::vector<double> latencies;  // microseconds, of all rounds
};

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

// ---- the ceiling: gRPC calls that do almost nothing ---------------------------------------------

class EmptyCalls {
 public:
  explicit EmptyCalls(const std::string& address)
      : stub_(
            v1::Admin::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))) {}

  absl::Status One() {
    grpc::ClientContext context;
    SetDeadline(context);
    v1::TaskStatus reply;
    const grpc::Status status = stub_->GetStatus(&context, v1::GetStatusRequest(), &reply);
    return status.ok() ? absl::OkStatus() : absl::UnavailableError(status.error_message());
  }

  // `count` calls, 32 at a time.
  absl::Status Many(int count) {
    {
      MutexLock lock(mu_);
      left_ = count;
      ended_ = 0;
      failed_ = false;
    }
    for (int i = 0; i < std::min(count, 32); ++i) Next();
    MutexLock lock(mu_);
    all_ended_.Wait(mu_, [&]() DIVVY_REQUIRES(mu_) { return ended_ == count; });
    return failed_ ? absl::UnavailableError("a GetStatus call failed") : absl::OkStatus();
  }

 private:
  struct Call {
    grpc::ClientContext context;
    v1::GetStatusRequest request;
    v1::TaskStatus reply;
  };

  static void SetDeadline(grpc::ClientContext& context) {
    context.set_deadline(
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(5, GPR_TIMESPAN)));
  }

  void Next() {
    {
      MutexLock lock(mu_);
      if (left_ == 0) return;
      --left_;
    }
    auto call = std::make_shared<Call>();
    SetDeadline(call->context);
    stub_->async()->GetStatus(&call->context, &call->request, &call->reply,
                              [this, call](const grpc::Status& status) {
                                Next();
                                MutexLock lock(mu_);
                                failed_ = failed_ || !status.ok();
                                ++ended_;
                                all_ended_.NotifyAll();
                              });
  }

  const std::unique_ptr<v1::Admin::Stub> stub_;
  Mutex mu_;
  CondVar all_ended_;
  int left_ DIVVY_GUARDED_BY(mu_) = 0, ended_ DIVVY_GUARDED_BY(mu_) = 0;
  bool failed_ DIVVY_GUARDED_BY(mu_) = false;
};

// ---- measuring ----------------------------------------------------------------------------------

using Work = std::function<absl::Status()>;

absl::Status MeasureRate(const Work& work, int units, Samples& samples) {
  const absl::Duration begin = Clock::Real().Elapsed();
  RETURN_IF_ERROR(work());
  samples.rates.push_back(units / absl::ToDoubleSeconds(Clock::Real().Elapsed() - begin));
  return absl::OkStatus();
}

absl::Status MeasureLatencies(const Work& one, Samples& samples) {
  for (int i = 0; i < absl::GetFlag(FLAGS_latencies); ++i) {
    const absl::Duration begin = Clock::Real().Elapsed();
    RETURN_IF_ERROR(one());
    samples.latencies.push_back(absl::ToDoubleMicroseconds(Clock::Real().Elapsed() - begin));
  }
  return absl::OkStatus();
}

template <typename StepType>
absl::Status ScheduleMany(Coordinator& coordinator, const StepType& step, int count) {
  for (int i = 0; i < count; ++i) RETURN_IF_ERROR(coordinator.Schedule(step).status());
  return coordinator.Join();
}

absl::Status FetchOne(Coordinator& coordinator) {
  ASSIGN_OR_RETURN(RemoteValue<int64_t> value, coordinator.Schedule(kReturnOne));
  return value.Fetch().status();
}

struct Results {
  Samples empty, counter, single, call, calls;
};

absl::Status Round(Coordinator& coordinator, EmptyCalls& calls, Results& results) {
  const int steps = absl::GetFlag(FLAGS_steps);
  RETURN_IF_ERROR(MeasureRate([&] { return ScheduleMany(coordinator, kNothing, steps); }, steps,
                              results.empty));
  RETURN_IF_ERROR(MeasureRate([&] { return calls.Many(steps); }, steps, results.calls));
  RETURN_IF_ERROR(MeasureRate([&] { return ScheduleMany(coordinator, kCount, steps); }, steps,
                              results.counter));
  RETURN_IF_ERROR(MeasureLatencies([&] { return FetchOne(coordinator); }, results.single));
  return MeasureLatencies([&] { return calls.One(); }, results.call);
}

void PrintTable(int workers, const Results& r) {
  const double calls = Quantile(r.calls.rates, 0.5), call = Quantile(r.call.latencies, 0.5);
  absl::PrintF("workers %d, %d steps a run; medians of %d rounds in turns\n", workers,
               absl::GetFlag(FLAGS_steps), absl::GetFlag(FLAGS_rounds));
  absl::PrintF(
      "  empty steps              %9.0f per s     %.2f of unary calls, 32 at a time (%.0f per s)\n",
      Quantile(r.empty.rates, 0.5), Quantile(r.empty.rates, 0.5) / calls, calls);
  absl::PrintF("  counter steps            %9.0f per s     %.2f of the same\n",
               Quantile(r.counter.rates, 0.5), Quantile(r.counter.rates, 0.5) / calls);
  absl::PrintF("  one step and its value   %9.0f us p50    %.0f us p99     %.2f x a unary call\n",
               Quantile(r.single.latencies, 0.5), Quantile(r.single.latencies, 0.99),
               Quantile(r.single.latencies, 0.5) / call);
  absl::PrintF("  a unary call             %9.0f us p50    %.0f us p99\n", call,
               Quantile(r.call.latencies, 0.99));
}

void PrintJson(int workers, const Results& r) {
  absl::PrintF(
      "{\"bench\": \"steps\", \"workers\": %d, \"empty_steps_per_s\": %.0f, "
      "\"counter_steps_per_s\": %.0f, \"calls_per_s\": %.0f, \"step_p50_us\": %.1f, "
      "\"step_p99_us\": %.1f, \"call_p50_us\": %.1f, \"call_p99_us\": %.1f}\n",
      workers, Quantile(r.empty.rates, 0.5), Quantile(r.counter.rates, 0.5),
      Quantile(r.calls.rates, 0.5), Quantile(r.single.latencies, 0.5),
      Quantile(r.single.latencies, 0.99), Quantile(r.call.latencies, 0.5),
      Quantile(r.call.latencies, 0.99));
}

absl::Status Train(Coordinator& coordinator) {
  RETURN_IF_ERROR(coordinator.strategy().CreateVariable(kCounter).status());
  ASSIGN_OR_RETURN(const std::string ps,
                   coordinator.strategy().cluster_resolver()->master("ps", 0));
  const size_t scheme = ps.find("://");
  EmptyCalls calls(scheme == std::string::npos ? ps : ps.substr(scheme + 3));
  Results warm_up, results;
  RETURN_IF_ERROR(Round(coordinator, calls, warm_up));
  for (int i = 0; i < absl::GetFlag(FLAGS_rounds); ++i)
    RETURN_IF_ERROR(Round(coordinator, calls, results));
  ASSIGN_OR_RETURN(const ClusterSpec cluster,
                   coordinator.strategy().cluster_resolver()->cluster_spec());
  const int workers = cluster.num_tasks("worker");
  absl::GetFlag(FLAGS_format) == "json" ? PrintJson(workers, results)
                                        : PrintTable(workers, results);
  std::fflush(stdout);
  return absl::OkStatus();
}

}  // namespace
}  // namespace divvy::bench

DIVVY_PROGRAM(divvy::bench::Train);
