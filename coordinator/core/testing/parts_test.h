// Fixtures with the parts of a coordinator that other parts depend on.
#ifndef DIVVY_COORDINATOR_CORE_TESTING_PARTS_TEST_H_
#define DIVVY_COORDINATOR_CORE_TESTING_PARTS_TEST_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/outbox.h"
#include "base/testing/sim_executor.h"
#include "coordinator/core/passes.h"
#include "coordinator/core/redo_log.h"
#include "coordinator/core/step_queue.h"
#include "coordinator/core/worker_set.h"
#include "gtest/gtest.h"

namespace divvy {

// Workers and passes, in virtual time. The test calls them directly and drains the outbox itself.
class PartsTest : public testing::Test {
 protected:
  using Worker = coordinator_records::Worker;

  // With default options; a test may change options_ before it uses the parts.
  PartsTest() : workers_(options_, clock_, outbox_), passes_(options_, workers_, clock_, outbox_) {}

  // Moves the clock. Does not run any task.
  void Advance(absl::Duration time) { clock_.AdvanceTo(clock_.Elapsed() + time); }
  // A worker that is ready for steps. It has no session stream, so messages to it are dropped.
  Worker& AddWorker(int index) {
    Worker& worker = workers_.all()[index];
    worker.index = index;
    worker.incarnation = Incarnation(100 + index);
    workers_.SetReady(worker);
    return worker;
  }

  CoordinatorOptions options_;
  SimClock clock_;
  Outbox outbox_;
  WorkerSet workers_;
  Passes passes_;
};

// As PartsTest, with a queue of steps whose host is `Host`, such as FakeStepHost. Steps that are
// still in the queue at the end of a test fail.
template <typename Host>
class StepsTest : public PartsTest {
 protected:
  StepsTest() : log_(1 << 20), steps_(options_, clock_, outbox_, workers_, passes_, log_, host_) {}
  ~StepsTest() override {
    std::vector<Task> calls;
    steps_.FailAll(absl::CancelledError("the test is over"), calls);
  }

  RedoLog log_;
  Host host_;
  StepQueue steps_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_TESTING_PARTS_TEST_H_
