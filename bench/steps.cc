// bazel run //bench:steps [-- --format=json]
//
// The cost of a step's round trip in a cluster of real processes: steps that do nothing, and steps
// that add 1 to a counter on a parameter server. Run by `divvyctl launch`, with 1 and with 2
// workers. The ceiling, which the coordinator's process measures in turn with the steps: unary gRPC
// calls that do almost nothing (Admin.GetStatus of ps 0), one at a time and 32 at a time.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "bench/rounds.h"
#include "divvy.h"
#include "grpc/support/time.h"
#include "grpcpp/grpcpp.h"
#include "proto/divvy.grpc.pb.h"

ABSL_FLAG(int, steps, 5000, "steps of a run");
ABSL_FLAG(int, latencies, 500, "latencies of single steps measured in a run");

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

template <typename StepType>
absl::Status ScheduleMany(Coordinator& coordinator, const StepType& step, int count) {
  for (int i = 0; i < count; ++i) RETURN_IF_ERROR(coordinator.Schedule(step).status());
  return coordinator.Join();
}

absl::Status FetchOne(Coordinator& coordinator) {
  ASSIGN_OR_RETURN(RemoteValue<int64_t> value, coordinator.Schedule(kReturnOne));
  return value.Fetch().status();
}

// The figures of a cluster with so many workers.
absl::Status Measure(Coordinator& coordinator, EmptyCalls& calls, const std::string& workers) {
  const int steps = absl::GetFlag(FLAGS_steps);
  absl::Status status;
  const std::vector<Contender> many = {
      {"empty steps, " + workers,
       [&] { status.Update(ScheduleMany(coordinator, kNothing, steps)); }},
      {"counter steps, " + workers,
       [&] { status.Update(ScheduleMany(coordinator, kCount, steps)); }}};
  const Contender many_calls{"unary calls, 32 at a time",
                             [&] { status.Update(calls.Many(steps)); }};
  for (const Comparison& comparison : CompareAll(many, many_calls, steps))
    Show("steps", comparison, {"/s"});
  Extras extras;
  const Comparison single = CompareLatencies(
      {"a step and its value, " + workers, [&] { status.Update(FetchOne(coordinator)); }},
      {"a unary call", [&] { status.Update(calls.One()); }}, absl::GetFlag(FLAGS_latencies),
      extras);
  Show("steps", single, {"/s"}, extras);
  return status;
}

absl::Status Train(Coordinator& coordinator) {
  RETURN_IF_ERROR(coordinator.strategy().CreateVariable(kCounter).status());
  ASSIGN_OR_RETURN(const std::string ps,
                   coordinator.strategy().cluster_resolver()->master("ps", 0));
  const size_t scheme = ps.find("://");
  EmptyCalls calls(scheme == std::string::npos ? ps : ps.substr(scheme + 3));
  ASSIGN_OR_RETURN(const ClusterSpec cluster,
                   coordinator.strategy().cluster_resolver()->cluster_spec());
  const int workers = cluster.num_tasks("worker");
  return Measure(coordinator, calls, absl::StrCat(workers, workers == 1 ? " worker" : " workers"));
}

}  // namespace
}  // namespace divvy::bench

DIVVY_PROGRAM(divvy::bench::Train);
