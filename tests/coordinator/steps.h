// The names and effects of the tests' steps. They are functions where steps run on threads, and
// scripts in the simulation (simulated_cluster.cc). A step that changes "counter" adds the same to
// each of its elements.
#ifndef DIVVY_TESTS_COORDINATOR_STEPS_H_
#define DIVVY_TESTS_COORDINATOR_STEPS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "base/mutex.h"
#include "data/dataset.h"
#include "strategy/step.h"
#include "variables/variable_spec.h"

namespace divvy::rules {

// (int64 n): counter += n.
inline constexpr char kAdd[] = "rules/add";
// (text message): counter += 1,000,000, then fails with InvalidArgument.
inline constexpr char kFail[] = "rules/fail";
// (any nest): returns it.
inline constexpr char kEcho[] = "rules/echo";
// (int64 n): passes the gate, then acts like kAdd.
inline constexpr char kAddAtGate[] = "rules/add_at_gate";
// (text message): passes the gate, then acts like kFail.
inline constexpr char kFailAtGate[] = "rules/fail_at_gate";
// (iterator): counter += 1; returns {the worker's index, the element}.
inline constexpr char kNext[] = "rules/next";
// (iterator): passes the gate, then acts like kNext.
inline constexpr char kNextAtGate[] = "rules/next_at_gate";

VariableSpec CounterSpec(int num_ps);
// The value of all elements of the counter. Internal: they differ.
absl::StatusOr<int64_t> CommonElement(const Tensor& counter);

// The numbers 0, 1, ... n - 1, one by one. Each worker reads all of them.
BoundDataSource Numbers(int64_t n);
// Data that cannot be opened: DataLoss "the file is broken".
BoundDataSource BrokenData();
// How often all workers together have opened this source, by its name.
int64_t TimesOpened(const BoundDataSource& source);

// Holds steps until a test opens it. There is one gate for all tests, which run one after another.
// Thread-safe.
class Gate {
 public:
  void Close();
  void Open();
  bool open() const;
  int arrived() const;  // steps at the gate since it was closed
  void Arrive();
  // Blocks until the gate is open. Returns false if `given_up`, which is checked now and then,
  // holds first.
  bool Pass(const std::function<bool()>& given_up);

 private:
  mutable Mutex mu_;
  CondVar changed_;
  bool open_ DIVVY_GUARDED_BY(mu_) = true;
  int arrived_ DIVVY_GUARDED_BY(mu_) = 0;
};
Gate& gate();

}  // namespace divvy::rules

#endif  // DIVVY_TESTS_COORDINATOR_STEPS_H_
