// bazel run //bench:embedded_steps [-- --format=json]
//
// Steps that do nothing, through the embedded coordinator and workers: the total cost of
// scheduling, dispatch, the step's thread, the commit's bookkeeping and the report. The ceiling is
// the cost of threads alone: as many threads as there are workers post the same number of empty
// tasks to a ThreadPoolExecutor and wait for each.
//
// Then what traces cost (protocol/trace_log.h): the same steps, sampled as in a job, and with a
// trace of every step, which is the worst case. The ceiling is the same without traces. A figure is
// measured in a cluster of its own, and the clusters take turns.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "bench/rounds.h"
#include "program/embedded.h"
#include "program/main.h"
#include "protocol/trace_log.h"
#include "strategy/step.h"

namespace divvy::bench {
namespace {

constexpr int kSteps = 5'000;

absl::Status DoNothing(WorkerContext& worker) { return absl::OkStatus(); }
const Step kNothing("bench/nothing", DoNothing);

// Wait returns when Done was called `count` times.
class Countdown {
 public:
  explicit Countdown(int count) : left_(count) {}
  void Done() {
    MutexLock lock(mu_);
    if (--left_ == 0) zero_.NotifyAll();
  }
  void Wait() {
    MutexLock lock(mu_);
    zero_.Wait(mu_, [this]() DIVVY_REQUIRES(mu_) { return left_ <= 0; });
  }

 private:
  Mutex mu_;
  CondVar zero_;
  int left_ DIVVY_GUARDED_BY(mu_);
};

void PostAndWait(Executor& executor, int tasks) {
  for (int i = 0; i < tasks; ++i) {
    const auto done = std::make_shared<Countdown>(1);
    executor.Post([done] { done->Done(); });
    done->Wait();
  }
}

void PostAndWaitOnThreads(Executor& executor, int threads) {
  const auto done = std::make_shared<Countdown>(threads);
  for (int i = 0; i < threads; ++i) {
    executor.PostBlocking("poster", [&executor, done, tasks = kSteps / threads] {
      PostAndWait(executor, tasks);
      done->Done();
    });
  }
  done->Wait();
}

absl::Status RunSteps(Coordinator& coordinator) {
  for (int i = 0; i < kSteps; ++i) RETURN_IF_ERROR(coordinator.Schedule(kNothing).status());
  return coordinator.Join();
}

// A cluster with a trace log for each role, or none.
class TracedCluster {
 public:
  // `most_gap`: as TraceLog's. Nullopt: no traces.
  explicit TracedCluster(std::optional<absl::Duration> most_gap) {
    setup_.options.num_ps = 1;
    setup_.options.num_workers = 1;
    if (!most_gap) return;
    setup_.coordinator.core.traces = &of_coordinator_.emplace(*most_gap);
    setup_.worker.traces = &of_worker_.emplace();
  }
  absl::Status Start() {
    ASSIGN_OR_RETURN(cluster_, EmbeddedCluster::Start(setup_));
    return absl::OkStatus();
  }
  Coordinator& coordinator() { return cluster_->coordinator(); }
  size_t num_traced() const { return of_coordinator_ ? of_coordinator_->Last().size() : 0; }

 private:
  EmbeddedSetup setup_;
  std::optional<TraceLog> of_coordinator_, of_worker_;
  std::unique_ptr<EmbeddedCluster> cluster_;
};

absl::Status MeasureTraces() {
  TracedCluster without(std::nullopt), sampled(TraceLog::kMostGap), all(absl::ZeroDuration());
  absl::Status status;
  for (TracedCluster* const cluster : {&without, &sampled, &all}) RETURN_IF_ERROR(cluster->Start());
  const auto steps_of = [&status](TracedCluster& cluster) {
    return [&status, &cluster] { status.Update(RunSteps(cluster.coordinator())); };
  };
  for (const Comparison& comparison :
       CompareAll({{"empty steps, traced as in a job", steps_of(sampled)},
                   {"empty steps, each of them traced", steps_of(all)}},
                  {"without traces", steps_of(without)}, kSteps))
    Show("embedded_steps", comparison, {"/s"});
  if (status.ok() && (sampled.num_traced() == 0 || all.num_traced() == 0))
    return absl::InternalError("no step was traced");
  return status;
}

absl::Status Measure(int workers) {
  EmbeddedOptions options;
  options.num_ps = 1;
  options.num_workers = workers;
  ASSIGN_OR_RETURN(std::unique_ptr<Coordinator> coordinator, StartEmbedded(options));
  ThreadPoolExecutor executor(NumCores());
  absl::Status status;
  const Contender figure{
      absl::StrCat("empty steps, ", workers, workers == 1 ? " worker" : " workers"),
      [&] { status.Update(RunSteps(*coordinator)); }};
  const Contender ceiling{absl::StrCat("tasks posted and awaited by ", workers),
                          [&] { PostAndWaitOnThreads(executor, workers); }};
  const Comparison comparison = Compare(figure, ceiling, kSteps);
  RETURN_IF_ERROR(status);
  Show("embedded_steps", comparison, {"/s"});
  return absl::OkStatus();
}

int Main() {
  ShowText(absl::StrFormat("%d steps a run, %d cores; medians of %d rounds in turns", kSteps,
                           NumCores(), Rounds()));
  for (const int workers : {1, 2}) {
    if (const absl::Status status = Measure(workers); !status.ok()) {
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      return EXIT_FAILURE;
    }
  }
  if (const absl::Status status = MeasureTraces(); !status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return EXIT_FAILURE;
  }
  ShowPeakMemory();
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace divvy::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return divvy::bench::Main();
}
