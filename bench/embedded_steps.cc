// bazel run //bench:embedded_steps [-- --format=json]
//
// Steps that do nothing, through the embedded coordinator and workers: the total cost of
// scheduling, dispatch, the step's thread, the commit's bookkeeping and the report. The ceiling is
// the cost of threads alone: as many threads as there are workers post the same number of empty
// tasks to a ThreadPoolExecutor and wait for each.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "bench/rounds.h"
#include "program/main.h"
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
  ShowPeakMemory();
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace divvy::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return divvy::bench::Main();
}
