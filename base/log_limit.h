// LogLimit: keeps a peer that repeats its requests from filling the log.
#ifndef DIVVY_BASE_LOG_LIMIT_H_
#define DIVVY_BASE_LOG_LIMIT_H_

#include <map>
#include <string>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace divvy {

// Admits each text once a minute, and at most 100 texts a minute. It remembers a thousand texts;
// then it forgets all of them and starts anew. Thread-safe; does not block. REQUIRES: the clock
// outlives it.
//
//   if (limit.Admit(text)) DIVVY_LOG(WARNING) << text;
class LogLimit {
 public:
  explicit LogLimit(const Clock& clock = Clock::Real()) : clock_(clock) {}

  bool Admit(const std::string& text) {
    const absl::Duration now = clock_.Elapsed();
    MutexLock lock(mu_);
    if (said_.size() >= kRemembered) said_.clear();
    const auto [said, first] = said_.emplace(text, now);
    if (!first && now - said->second < kPause) return false;
    if (now - minute_ >= kPause) {
      minute_ = now;
      admitted_ = 0;
    }
    if (++admitted_ > kMostAMinute) return false;
    said->second = now;
    return true;
  }

 private:
  static constexpr size_t kRemembered = 1'000;
  // Limits also a peer whose text differs each time.
  static constexpr int kMostAMinute = 100;
  static constexpr absl::Duration kPause = absl::Minutes(1);
  const Clock& clock_;
  Mutex mu_;
  absl::Duration minute_ DIVVY_GUARDED_BY(mu_) = -absl::InfiniteDuration();
  int admitted_ DIVVY_GUARDED_BY(mu_) = 0;
  std::map<std::string, absl::Duration> said_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_BASE_LOG_LIMIT_H_
