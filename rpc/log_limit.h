// Keeps a peer that asks again and again from filling the log.
#ifndef DIVVY_RPC_LOG_LIMIT_H_
#define DIVVY_RPC_LOG_LIMIT_H_

#include <map>
#include <string>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace divvy {

// Admits each text once a minute. Thread-safe; does not block. Remembers a thousand texts: then every one is admitted again.
//
//   if (limit.Admit(text)) DIVVY_LOG(WARNING) << text;
class LogLimit {
 public:
  bool Admit(const std::string& text) {
    const absl::Duration now = Clock::Real().Elapsed();
    MutexLock lock(mu_);
    if (said_.size() >= kRemembered) said_.clear();
    const auto [said, first] = said_.emplace(text, now);
    if (!first && now - said->second < kPause) return false;
    said->second = now;
    return true;
  }

 private:
  static constexpr size_t kRemembered = 1'000;
  static constexpr absl::Duration kPause = absl::Minutes(1);
  Mutex mu_;
  std::map<std::string, absl::Duration> said_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_RPC_LOG_LIMIT_H_
