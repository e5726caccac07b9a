// A coordinator that a task can register with.
#ifndef DIVVY_PROTOCOL_TESTING_FAKE_COORDINATOR_H_
#define DIVVY_PROTOCOL_TESTING_FAKE_COORDINATOR_H_

#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/testing/sim_executor.h"
#include "protocol/clients.h"

namespace divvy {

// Keeps each registration. Answers it with the value that `answer` has when the reply is sent. Not
// thread-safe: for one SimExecutor, which must outlive it.
class FakeCoordinator : public CoordinatorClient {
 public:
  explicit FakeCoordinator(SimExecutor& executor) : executor_(executor) {}

  void Call(RegisterRequest request, ResultCallback<RegisterReply> done) override {
    seen.push_back(std::move(request));
    sent_at.push_back(absl::ToDoubleSeconds(executor_.clock().Elapsed()));
    executor_.PostAfter(answers_after, [this, done = std::move(done)] { done(answer); });
  }

  absl::StatusOr<RegisterReply> answer = RegisterReply{JobId(1), Epoch(1), std::nullopt};
  absl::Duration answers_after = absl::ZeroDuration();
  std::vector<RegisterRequest> seen;
  // when each registration was sent, in seconds
  std::vector<double> sent_at;

 private:
  SimExecutor& executor_;
};

}  // namespace divvy

#endif  // DIVVY_PROTOCOL_TESTING_FAKE_COORDINATOR_H_
