#include "python/native/program.h"

#include <pybind11/stl.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "base/process.h"
#include "program/main.h"
#include "python/native/call_python.h"
#include "python/native/coordinator.h"
#include "python/native/errors.h"
#include "python/native/forks.h"
#include "python/native/job.h"
#include "strategy/program.h"
#include "train/evaluator.h"

namespace divvy::python {
namespace {

// The functions that divvy.run was given. Null outside of it.
struct Functions {
  py::object train, evaluate;
};
Functions* running = nullptr;

// Calls fn(coordinator) on this thread, as the program of that coordinator.
absl::Status CallProgram(const py::object& fn, Coordinator& coordinator) {
  const py::gil_scoped_acquire gil;
  const ProgramScope scope(coordinator);
  const auto handle = std::make_shared<CoordinatorHandle>(coordinator);
  const absl::StatusOr<bool> ended = CallPython<bool>("main", [&] {
    fn(py::cast(handle));
    return true;
  });
  handle->End();
  return ended.status();
}

absl::Status Train(Coordinator& coordinator) { return CallProgram(running->train, coordinator); }

absl::Status Evaluate(Evaluator& evaluator) {
  return evaluator.Watch(
      [](Coordinator& restored) { return CallProgram(running->evaluate, restored); });
}

StrategyOptions OptionsOf(std::optional<int64_t> min_shard_bytes, const std::string& placement) {
  StrategyOptions options = runner::ParameterServerStrategy(min_shard_bytes);
  if (placement == "balanced") {
    options.placement = StrategyOptions::Placement::kBalanced;
  } else if (placement != "round_robin") {
    throw py::value_error(
        absl::StrCat("placement is \"", placement, "\": wanted round_robin or balanced"));
  }
  return options;
}

// One worker unless the command line says otherwise: all steps of a process hold Python's lock.
void DefaultToOneWorker() {
  if (absl::CommandLineFlag* const flag = absl::FindCommandLineFlag("workers")) {
    std::string error;
    (void)flag->ParseFrom("1", &error);
  }
}

int Run(py::object train, py::object evaluate, std::vector<std::string> args,
        std::optional<int64_t> min_shard_bytes, const std::string& placement, bool one_worker) {
  if (running != nullptr)
    throw std::runtime_error("divvy.run runs already: call it once in a process");
  Functions functions{std::move(train), std::move(evaluate)};
  const StrategyOptions options = OptionsOf(min_shard_bytes, placement);
  const bool evaluates = !functions.evaluate.is_none();
  running = &functions;
  // A Program lives as long as the process, and is registered by its constructor.
  evaluates ? new Program(&Train, &Evaluate, options) : new Program(&Train, options);
  if (one_worker) DefaultToOneWorker();
  std::vector<char*> argv;
  for (std::string& word : args) argv.push_back(word.data());
  argv.push_back(nullptr);
  const KeptSignals signals;
  const int exit_code =
      WithoutGil([&] { return Main(static_cast<int>(args.size()), argv.data()); });
  // No step runs any more, and the program may have more to do than to end.
  CancelExit();
  return exit_code;
}

// ---- clusters of tests --------------------------------------------------------------------------

// The cluster of `with divvy.testing.cluster()`.
class TestCluster {
 public:
  TestCluster(int ps, int workers, uint64_t seed, std::string checkpoint_dir,
              std::optional<int64_t> min_shard_bytes, const std::string& placement) {
    options_.num_ps = ps;
    options_.num_workers = workers;
    options_.replicas_per_worker = 1;
    options_.seed = seed;
    options_.checkpoint_dir = std::move(checkpoint_dir);
    options_.strategy = OptionsOf(min_shard_bytes, placement);
  }
  ~TestCluster() {
    End();
    Stop();
  }

  std::shared_ptr<CoordinatorHandle> Start() {
    if (InProgram())
      Raise(absl::FailedPreconditionError("another cluster runs on this thread: leave it first"));
    coordinator_ = ValueOf(WithoutGil([&] { return StartEmbedded(options_); }));
    scope_ = std::make_unique<ProgramScope>(*coordinator_);
    handle_ = std::make_shared<CoordinatorHandle>(*coordinator_);
    return handle_;
  }
  // The program has ended. On the thread that called Start.
  void End() {
    if (handle_ == nullptr) return;
    handle_->End();
    handle_.reset();
    scope_.reset();
  }
  // Blocks until no step runs. On any thread, after End.
  void Stop() {
    if (coordinator_ == nullptr) return;
    // The threads of the cluster do not exist in a forked process.
    if (process_ != getpid()) return (void)coordinator_.release();
    WithoutGil([this] { coordinator_.reset(); });
  }

 private:
  const pid_t process_ = getpid();
  EmbeddedOptions options_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<ProgramScope> scope_;
  std::shared_ptr<CoordinatorHandle> handle_;
};

}  // namespace

void DefineProgram(py::module_& module) {
  module.def("run", &Run);
  py::class_<TestCluster>(module, "TestCluster")
      .def(py::init<int, int, uint64_t, std::string, std::optional<int64_t>, std::string>())
      .def("start", &TestCluster::Start)
      .def("end", &TestCluster::End)
      .def("stop", &TestCluster::Stop);
}

}  // namespace divvy::python
