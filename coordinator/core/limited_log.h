// What the coordinator logs because a peer said something: each text once a minute, at most 100
// texts a minute. The coordinator has three of these, each with its own 100: for what tasks say as
// they register, for what workers say of steps, and for what workers say of data. So one kind
// cannot keep another from being logged. The coordinator's other log lines tell what it has
// decided, or come once in its life.
#ifndef DIVVY_COORDINATOR_CORE_LIMITED_LOG_H_
#define DIVVY_COORDINATOR_CORE_LIMITED_LOG_H_

#include <string>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "base/outbox.h"

namespace divvy {

// Logs by the outbox, once the coordinator's lock is gone. Does not block.
class LimitedLog {
 public:
  // REQUIRES: the references outlive it.
  LimitedLog(const Clock& clock, Outbox& outbox) : limit_(clock), outbox_(outbox) {}

  void Info(std::string text) {
    if (!limit_.Admit(text)) return;
    outbox_.Add([text = std::move(text)] { DIVVY_LOG(INFO) << text; });
  }
  void Warning(std::string text) {
    if (!limit_.Admit(text)) return;
    outbox_.Add([text = std::move(text)] { DIVVY_LOG(WARNING) << text; });
  }

 private:
  LogLimit limit_;
  Outbox& outbox_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_LIMITED_LOG_H_
