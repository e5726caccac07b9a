#include "python/native/coordinator.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "python/native/errors.h"
#include "python/native/forks.h"
#include "python/native/step_scope.h"
#include "python/native/values.h"
#include "strategy/metrics.h"

namespace divvy::python {
namespace {

using py::arg;

// A Python step has no C++ type, so its calls are made by name, as the templates of Coordinator
// make them.
class ByName : public Coordinator {
 public:
  using Coordinator::RunSteps;
  using Coordinator::ScheduleStep;
  using Coordinator::ScheduleStepOnce;
};

StepKind KindOf(bool read_only) { return read_only ? StepKind::kReadOnly : StepKind::kTraining; }

absl::Duration TimeoutOf(const std::optional<double>& seconds) {
  return seconds ? absl::Seconds(*seconds) : absl::InfiniteDuration();
}

// How long a call blocks before it looks for Python's signals.
constexpr absl::Duration kBetweenSignals = absl::Milliseconds(100);

// Whether the error is of a step, and not of a wait whose time is over: a step's error names it.
bool IsOfAStep(const absl::Status& error) { return absl::StartsWith(error.message(), "step "); }

inline const absl::Status& StatusIn(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusIn(const absl::StatusOr<T>& value) {
  return value.status();
}

// Calls wait(at most so long) until it answers something else than that this time is over, or
// `timeout` has passed. Between the calls a Ctrl-C raises KeyboardInterrupt, where Python handles
// it.
template <typename Wait>
auto WaitInTurns(absl::Duration timeout, Wait&& wait) {
  const absl::Duration end = Clock::Real().Elapsed() + timeout;
  for (;;) {
    const absl::Duration turn = std::min(internal::Left(end), kBetweenSignals);
    auto answer = WithoutGil([&] { return wait(turn); });
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    const absl::Status& status = StatusIn(answer);
    if (!absl::IsDeadlineExceeded(status) || IsOfAStep(status) ||
        internal::Left(end) <= absl::ZeroDuration()) {
      return answer;
    }
  }
}

class RemoteValueHandle {
 public:
  explicit RemoteValueHandle(std::shared_ptr<const internal::RemoteResult> result)
      : result_(std::move(result)) {}
  const char* state() const {
    switch (result_->state()) {
      case RemoteState::kNotReady: return "not_ready";
      case RemoteState::kReady: return "ready";
      case RemoteState::kFailed: return "failed";
      case RemoteState::kCancelled: return "cancelled";
    }
    return "unknown";
  }
  py::object Fetch(const std::optional<double>& timeout) const {
    const Nest value = ValueOf(WaitInTurns(
        TimeoutOf(timeout), [this](absl::Duration turn) { return result_->Fetch(turn); }));
    if (value.kind() == Nest::Kind::kList && value.size() == 0) return py::none();
    return ObjectOf(value);
  }

 private:
  const std::shared_ptr<const internal::RemoteResult> result_;
};

// The arguments of a step, encoded, with `in_loop` if they are complete.
Nest::List ArgsOf(const py::list& args, const py::list& names) {
  Nest::List nests;
  for (size_t i = 0; i < args.size(); ++i) {
    const py::object one = args[i];
    if (py::isinstance<Iterator>(one)) {
      nests.push_back(NestCodec<Iterator>::Encode(one.cast<Iterator&>()));
    } else {
      nests.push_back(NestOf(one, absl::StrCat("argument '", names[i].cast<std::string>(), "'")));
    }
  }
  return nests;
}

Nest CompleteArgs(const py::list& args, const py::list& names) {
  Nest::List nests = ArgsOf(args, names);
  nests.push_back(NestCodec<bool>::Encode(false));
  return Nest(std::move(nests));
}

RemoteValueHandle Schedule(const CoordinatorHandle& self, const std::string& step, bool read_only,
                           const py::list& args, const py::list& names) {
  Coordinator& coordinator = self.Get("schedule");
  Nest nest = CompleteArgs(args, names);
  return RemoteValueHandle(ValueOf(WithoutGil([&] {
    return (coordinator.*&ByName::ScheduleStep)(step, KindOf(read_only), std::move(nest));
  })));
}

std::optional<RemoteValueHandle> ScheduleOnce(const CoordinatorHandle& self,
                                              const std::string& series, int64_t number,
                                              const std::string& step, bool read_only,
                                              const py::list& args, const py::list& names) {
  Coordinator& coordinator = self.Get("schedule_once");
  Nest nest = CompleteArgs(args, names);
  auto result = ValueOf(WithoutGil([&] {
    return (coordinator.*&ByName::ScheduleStepOnce)(series, number, step, KindOf(read_only),
                                                    std::move(nest));
  }));
  if (result == nullptr) return std::nullopt;
  return RemoteValueHandle(std::move(result));
}

py::dict DictOf(const Metrics& metrics) {
  py::dict dict;
  for (const auto& [name, metric] : metrics) dict[py::str(name)] = py::cast(metric);
  return dict;
}

// What a loop says to its observer. An exception ends the loop, which then raises it.
class Observer {
 public:
  explicit Observer(py::object function) : function_(std::move(function)) {}
  LoopObserver AsFunction() {
    return [this](const Metrics& recent) { return Call(recent); };
  }
  // Throws the exception of the observer or of a signal handler, if there was one. REQUIRES: the
  // GIL is held.
  void ThrowIfRaised() {
    if (!raised_) return;
    raised_->restore();
    throw py::error_already_set();
  }

 private:
  bool Call(const Metrics& recent) {
    const py::gil_scoped_acquire gil;
    const ForkGuard fork("an observer");
    if (raised_) return false;
    try {
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (function_.is_none()) return true;
      const py::object answer = function_(DictOf(recent));
      return answer.is_none() || py::bool_(answer).cast<bool>();
    } catch (py::error_already_set& error) {
      fork.EndChild(error.what());
      raised_.emplace(std::move(error));
      return false;
    }
  }

  const py::object function_;
  std::optional<py::error_already_set> raised_;
};

py::dict RunLoop(const CoordinatorHandle& self, const std::string& step, bool read_only,
                 const std::string& source, const py::object& recipe, const py::list& args,
                 const py::list& names, std::optional<int64_t> last_step, py::object observer,
                 const std::optional<double>& timeout) {
  Coordinator& coordinator = self.Get("run_epoch");
  Observer watch(std::move(observer));
  internal::StepLoop loop{
      step,
      KindOf(read_only),
      BoundDataSource(absl::StrCat("python/", source),
                      Nest(Nest::List{NestOf(recipe, "the dataset")})),
      ArgsOf(args, names),
      last_step,
      {watch.AsFunction(), TimeoutOf(timeout)},
  };
  loop.args.push_back(NestCodec<bool>::Encode(true));
  const absl::StatusOr<Metrics> metrics =
      WithoutGil([&] { return (coordinator.*&ByName::RunSteps)(loop); });
  watch.ThrowIfRaised();
  return DictOf(ValueOf(metrics));
}

using HandleClass = py::class_<CoordinatorHandle, std::shared_ptr<CoordinatorHandle>>;

void DefineCalls(HandleClass& handle) {
  handle.def("schedule", &Schedule)
      .def("schedule_once", &ScheduleOnce)
      .def("run_loop", &RunLoop)
      .def("join",
           [](const CoordinatorHandle& self, const std::optional<double>& timeout) {
             Coordinator& coordinator = self.Get("join");
             Check(WaitInTurns(TimeoutOf(timeout), [&coordinator](absl::Duration turn) {
               return coordinator.Join(turn);
             }));
           })
      .def("done",
           [](const CoordinatorHandle& self) {
             Coordinator& coordinator = self.Get("done");
             return ValueOf(WithoutGil([&] { return coordinator.Done(); }));
           })
      .def("iterator",
           [](const CoordinatorHandle& self, const std::string& source, const py::object& recipe) {
             Coordinator& coordinator = self.Get("create_per_worker_dataset");
             const BoundDataSource bound(absl::StrCat("python/", source),
                                         Nest(Nest::List{NestOf(recipe, "the dataset")}));
             return ValueOf(WithoutGil([&] { return coordinator.CreatePerWorkerDataset(bound); }))
                 .MakeIterator();
           })
      .def("set_learning_rate_scale",
           [](const CoordinatorHandle& self, double scale) {
             self.Get("set_learning_rate_scale").SetLearningRateScale(scale);
           })
      .def("report", [](const CoordinatorHandle& self, const std::string& run, int64_t step,
                        const std::map<std::string, Metric>& metrics) {
        Check(self.Get("report").Report(run, step, metrics));
      });
}

void DefineState(HandleClass& handle) {
  handle
      .def_property_readonly(
          "epoch", [](const CoordinatorHandle& self) { return self.Get("epoch").epoch(); })
      .def_property_readonly("step",
                             [](const CoordinatorHandle& self) { return self.Get("step").step(); })
      .def_property_readonly(
          "durable_steps",
          [](const CoordinatorHandle& self) { return self.Get("durable_steps").durable_steps(); })
      .def_property(
          "program_state",
          [](const CoordinatorHandle& self) {
            return py::bytes(self.Get("program_state").program_state());
          },
          [](const CoordinatorHandle& self, const py::bytes& bytes) {
            Coordinator& coordinator = self.Get("program_state");
            std::string state = bytes;
            WithoutGil([&] { coordinator.SetProgramState(std::move(state)); });
          })
      .def("restore_latest",
           [](const CoordinatorHandle& self, const std::optional<double>& timeout) {
             Coordinator& coordinator = self.Get("restore_latest");
             return ValueOf(
                 WithoutGil([&] { return coordinator.RestoreLatest(TimeoutOf(timeout)); }));
           })
      .def("save_checkpoint",
           [](const CoordinatorHandle& self, const std::optional<double>& timeout) {
             Coordinator& coordinator = self.Get("save_checkpoint");
             return ValueOf(
                 WithoutGil([&] { return coordinator.SaveCheckpoint(TimeoutOf(timeout)); }));
           })
      .def("export", [](const CoordinatorHandle& self, const std::string& path, bool slots,
                        const std::optional<double>& timeout) {
        Coordinator& coordinator = self.Get("export");
        Check(WithoutGil([&] {
          return coordinator.Export(path, ExportOptions{slots, TimeoutOf(timeout)});
        }));
      });
}

}  // namespace

Coordinator& CoordinatorHandle::Get(const char* call) const {
  if (StepScope::Current() != nullptr)
    Raise(absl::FailedPreconditionError(absl::StrCat(
        call,
        ": a step has no coordinator, since it may run in another process. Return what the "
        "program needs, and call this in main")));
  if (coordinator_ == nullptr)
    Raise(absl::FailedPreconditionError(absl::StrCat(call, ": the job has ended")));
  if (process_ != getpid())
    Raise(absl::FailedPreconditionError(absl::StrCat(
        call, ": this process was forked by the program, and has no part in the job")));
  return *coordinator_;
}

void DefineCoordinator(py::module_& module) {
  py::class_<Iterator>(module, "Iterator",
                       "An iterator over a dataset on every worker. As an argument of a step it "
                       "arrives there as the next element.");
  py::class_<RemoteValueHandle>(module, "RemoteValue")
      .def_property_readonly("state", &RemoteValueHandle::state)
      .def("fetch", &RemoteValueHandle::Fetch, arg("timeout") = py::none());
  HandleClass handle(module, "Coordinator");
  DefineCalls(handle);
  DefineState(handle);
}

}  // namespace divvy::python
