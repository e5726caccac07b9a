// The step that the calling thread runs, and what it has asked to be written.
#ifndef DIVVY_PYTHON_NATIVE_STEP_SCOPE_H_
#define DIVVY_PYTHON_NATIVE_STEP_SCOPE_H_

#include <pybind11/pybind11.h>

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "ops/gradients.h"
#include "strategy/replica_context.h"
#include "strategy/step.h"

namespace divvy::python {

namespace py = pybind11;

// Collects the gradients of one attempt of a step, so that each variable gets one gradient however
// often the function gives it one. Not thread-safe.
class PendingGradients {
 public:
  // Adds to the variable's gradient. InvalidArgument: a whole gradient and one of rows for the same
  // variable. REQUIRES: all gradients of one variable have the same shape and are float32.
  absl::Status AddWhole(const std::string& variable, Tensor gradient);
  absl::Status AddRows(const std::string& variable, IndexedSlices gradient);
  bool empty() const { return pending_.empty(); }
  bool Has(const std::string& variable) const { return pending_.count(variable) > 0; }
  // All of them, with the rows of a variable joined.
  absl::StatusOr<Gradients> Take() &&;

 private:
  // What AddRows was given, in order.
  using Rows = std::vector<IndexedSlices>;
  std::map<std::string, std::variant<Tensor, Rows>> pending_;
};

// Marks that this thread runs a Python step. Must be destroyed on the thread that made it.
class StepScope {
 public:
  StepScope(WorkerContext& worker, ReplicaContext& replica, std::string name, bool read_only);
  ~StepScope();
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

  // Null: this thread runs no step.
  static StepScope* Current();
  // This thread runs no step any more: it is that of a forked process.
  static void Forget();

  WorkerContext& worker() { return worker_; }
  ReplicaContext& replica() { return replica_; }
  const std::string& name() const { return name_; }
  bool read_only() const { return read_only_; }
  PendingGradients& gradients() { return gradients_; }

 private:
  WorkerContext& worker_;
  ReplicaContext& replica_;
  const std::string name_;
  const bool read_only_;
  StepScope* const outer_;
  PendingGradients gradients_;
};

}  // namespace divvy::python

#endif  // DIVVY_PYTHON_NATIVE_STEP_SCOPE_H_
