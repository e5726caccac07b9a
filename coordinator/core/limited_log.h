// Limits the log lines that the messages of a task cause: each text at most once a minute, and at
// most 100 texts a minute. The coordinator has three of these logs: one for registrations, one for
// workers' reports about steps, one for workers' reports about data. Each has its own limit, so
// that one kind of line cannot suppress another. Other log lines of the coordinator are about its
// own decisions, or appear once in its life.
#ifndef DIVVY_COORDINATOR_CORE_LIMITED_LOG_H_
#define DIVVY_COORDINATOR_CORE_LIMITED_LOG_H_

#include <string>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "base/outbox.h"

namespace divvy {

// Logs through the outbox, after the coordinator's lock is released. Does not block. Not
// thread-safe: the coordinator's lock guards it.
class LimitedLog {
 public:
  // REQUIRES: the references outlive it.
  LimitedLog(const Clock& clock, Outbox& outbox) : limit_(clock), outbox_(outbox) {}

  // Logs `text`, or drops it when the limit is reached.
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
