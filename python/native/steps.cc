#include "python/native/steps.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "python/native/call_python.h"
#include "python/native/errors.h"
#include "python/native/modules.h"
#include "python/native/step_scope.h"
#include "python/native/values.h"
#include "strategy/step.h"

namespace divvy::python {
namespace {

// Calls the Python function and returns what it returned. The GIL is held inside only.
absl::StatusOr<Nest> CallFunction(const std::string& name, const Nest::List& args, bool in_loop) {
  const std::string what = absl::StrCat("step \"", name, "\"");
  return CallPython<Nest>(what, [&] {
    py::list values;
    for (const Nest& arg : args) values.append(ObjectOf(arg));
    const py::object result = Module("_steps").attr("call")(name, values, in_loop);
    return result.is_none() ? Nest() : NestOf(result, absl::StrCat("the result of ", what));
  });
}

// The arguments, with the next element of each iterator in its place.
absl::StatusOr<Nest::List> Resolved(WorkerContext& worker, const Nest::List& args) {
  Nest::List resolved;
  for (const Nest& arg : args) {
    if (arg.kind() != Nest::Kind::kHandle) {
      resolved.push_back(arg);
      continue;
    }
    ASSIGN_OR_RETURN(const Iterator iterator, NestCodec<Iterator>::Decode(arg));
    ASSIGN_OR_RETURN(const PerReplica<Nest> batches, worker.Next(iterator));
    resolved.push_back(batches[0]);
  }
  return resolved;
}

absl::StatusOr<Nest> RunOnReplica(const RegisteredStep& step, WorkerContext& worker,
                                  ReplicaContext& replica, const Nest::List& args, bool in_loop) {
  StepScope scope(worker, replica, step.name, step.kind == StepKind::kReadOnly);
  ASSIGN_OR_RETURN(Nest result, CallFunction(step.name, args, in_loop));
  if (!scope.gradients().empty()) {
    RETURN_IF_ERROR(replica.ApplyGradients(std::move(scope.gradients()).Take()));
  }
  return result;
}

absl::StatusOr<Nest> RunPythonStep(const RegisteredStep& step, WorkerContext& worker,
                                   const Nest& args) {
  if (worker.strategy().num_replicas_in_sync() != 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this worker has ", worker.strategy().num_replicas_in_sync(),
        " replicas, and a worker of a Python program has one, because its steps hold Python's "
        "lock: start more workers instead (--replicas_per_worker=1)"));
  }
  Nest::List own(args.list()->begin(), args.list()->end() - 1);
  ASSIGN_OR_RETURN(const bool in_loop, NestCodec<bool>::Decode(args.list()->back()));
  ASSIGN_OR_RETURN(own, Resolved(worker, own));
  ASSIGN_OR_RETURN(const PerReplica<Nest> results,
                   worker.strategy().Run([&](ReplicaContext& replica) {
                     return RunOnReplica(step, worker, replica, own, in_loop);
                   }));
  return results[0];
}

void Register(const std::string& name, int num_args, const std::string& signature, bool read_only) {
  RegisteredStep step;
  step.name = name;
  step.kind = read_only ? StepKind::kReadOnly : StepKind::kTraining;
  step.num_args = num_args + 1;
  step.signature = signature;
  step.body = [step](WorkerContext& worker, const Nest& args) {
    return RunPythonStep(step, worker, args);
  };
  StepRegistry::Add(std::move(step));
}

// Lets chief and workers compare more than steps. What it registers is never scheduled.
void RegisterForComparison(const std::string& name, const std::string& signature) {
  RegisteredStep step;
  step.name = name;
  step.signature = signature;
  step.body = [name](WorkerContext&, const Nest&) -> absl::StatusOr<Nest> {
    return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" is no step"));
  };
  StepRegistry::Add(std::move(step));
}

StepScope& Current(const char* call) {
  StepScope* const step = StepScope::Current();
  if (step == nullptr)
    Raise(
        absl::FailedPreconditionError(absl::StrCat(call, " is for steps: this thread runs none")));
  return *step;
}

}  // namespace

void DefineSteps(py::module_& module) {
  module.def("register_step", &Register);
  module.def("register_for_comparison", &RegisterForComparison);
  module.def("in_step", [] { return StepScope::Current() != nullptr; });
  module.def("step_name", [] { return Current("step_name").name(); });
  module.def("step_number", [] { return Current("step_number()").worker().step(); });
  module.def("step_seed", [] { return Current("step_seed()").worker().seed(); });
  module.def("worker_index", [] { return Current("worker_index()").worker().worker_index(); });
  module.def("cancelled", [] { return Current("cancelled()").worker().cancelled(); });
}

}  // namespace divvy::python
