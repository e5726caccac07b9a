#include "strategy/program.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"

namespace divvy {

extern "C" const char divvy_program_api_1 = 1;

namespace {

struct Registry {
  Mutex mu;
  std::vector<std::unique_ptr<RegisteredProgram>> programs DIVVY_GUARDED_BY(mu);
};

Registry& TheRegistry() {
  static Registry* const registry = new Registry();  // never destroyed
  return *registry;
}

}  // namespace

Program::Program(TrainFunction* train, StrategyOptions options, const char& api)
    : Program(train, nullptr, std::move(options), api) {}

Program::Program(TrainFunction* train, EvaluateFunction* evaluate, StrategyOptions options,
                 const char&) {
  Registry& registry = TheRegistry();
  MutexLock lock(registry.mu);
  registry.programs.push_back(
      std::make_unique<RegisteredProgram>(RegisteredProgram{train, evaluate, std::move(options)}));
}

absl::StatusOr<const RegisteredProgram*> FindProgram() {
  Registry& registry = TheRegistry();
  MutexLock lock(registry.mu);
  if (registry.programs.empty())
    return absl::FailedPreconditionError(
        "there is no program: put DIVVY_PROGRAM(Train); at the end of a source file");
  if (registry.programs.size() > 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("there are ", registry.programs.size(),
                     " programs; DIVVY_PROGRAM may be used only once in a process"));
  }
  const RegisteredProgram* program = registry.programs.front().get();
  RETURN_IF_ERROR(program->options.problem);
  return program;
}

}  // namespace divvy
