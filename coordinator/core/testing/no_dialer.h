// A Dialer for tests that call nobody.
#ifndef DIVVY_COORDINATOR_CORE_TESTING_NO_DIALER_H_
#define DIVVY_COORDINATOR_CORE_TESTING_NO_DIALER_H_

#include <memory>
#include <string>

#include "protocol/clients.h"

namespace divvy {

// Reaches no task: both methods return null.
class NoDialer : public Dialer {
 public:
  std::shared_ptr<ParameterClient> ParameterServer(const std::string&) override { return nullptr; }
  std::shared_ptr<WorkerClient> Worker(const std::string&) override { return nullptr; }
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_TESTING_NO_DIALER_H_
