// What the steps of the tests do, by name: as functions where steps run on threads, as scripts in
// the simulation (simulated_cluster.cc). All that change "counter" add the same to each of its
// elements.
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

// (int64 n): counter += n
inline constexpr char kAdd[] = "rules/add";
// (text message): counter += 1,000,000, then InvalidArgument
inline constexpr char kFail[] = "rules/fail";
// (any nest): returns it
inline constexpr char kEcho[] = "rules/echo";
// (int64 n): passes the gate, then as kAdd
inline constexpr char kAddAtGate[] = "rules/add_at_gate";
// (text message): passes the gate, then as kFail
inline constexpr char kFailAtGate[] = "rules/fail_at_gate";
// (iterator): counter += 1; returns {worker's index, the element}
inline constexpr char kNext[] = "rules/next";
// (iterator): passes the gate, then as kNext
inline constexpr char kNextAtGate[] = "rules/next_at_gate";

VariableSpec CounterSpec(int num_ps);
// What all elements of the counter are. Internal: they differ.
absl::StatusOr<int64_t> CommonElement(const Tensor& counter);

// 0, 1, ... n - 1, one by one, all of them on each worker.
BoundDataSource Numbers(int64_t n);
// Cannot be opened: DataLoss "the file is broken".
BoundDataSource BrokenData();
// Lives of iterators so far, of all workers together, by the name of the source.
int64_t TimesOpened(const BoundDataSource& source);

// Holds steps until a test lets them go. Thread-safe. One for all: tests run one after another.
class Gate {
 public:
  void Close();
  void Open();
  bool open() const;
  int arrived() const;  // since it was closed
  void Arrive();
  // Blocks until it is open. False: `given_up` came to hold first, which is looked at now and then.
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
