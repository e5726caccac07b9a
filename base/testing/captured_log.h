// Captures the log in tests.
#ifndef DIVVY_BASE_TESTING_CAPTURED_LOG_H_
#define DIVVY_BASE_TESTING_CAPTURED_LOG_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "base/mutex.h"

namespace divvy {

// Captures every log entry while it lives, and keeps the entries off stderr. Thread-safe; gRPC's
// threads may log for a moment after its end. Only one may live at a time.
//
//   const CapturedLog log;
//   ...
//   EXPECT_THAT(log.lines(), Contains(HasSubstr("worker 3 is lost")).Times(1));
class CapturedLog {
 public:
  CapturedLog()
      : before_(SetLogSink([kept = kept_](const LogEntry& entry) { kept->Add(entry); })) {}
  ~CapturedLog() { SetLogSink(before_); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  // The texts of all entries. Each begins with a letter for its severity: I, W or E.
  std::vector<std::string> lines() const {
    return Map(
        [](const LogEntry& entry) { return "IWE"[static_cast<int>(entry.severity)] + entry.text; });
  }
  // As lines(), without the letter.
  std::vector<std::string> texts() const {
    return Map([](const LogEntry& entry) { return entry.text; });
  }
  // All texts of this severity or more, each followed by a newline.
  std::string text(Severity least = Severity::kInfo) const {
    std::string all;
    MutexLock lock(kept_->mu);
    for (const LogEntry& entry : kept_->entries) {
      if (entry.severity >= least) absl::StrAppend(&all, entry.text, "\n");
    }
    return all;
  }
  // The number of entries whose text holds `part`.
  int Count(absl::string_view part) const {
    int count = 0;
    for (const std::string& text : texts()) count += absl::StrContains(text, part) ? 1 : 0;
    return count;
  }
  // Blocks until an entry contains `part`. False: there was none within 10 s.
  bool Await(absl::string_view part) const {
    Kept& kept = *kept_;
    MutexLock lock(kept.mu);
    return kept.more.WaitFor(kept.mu, absl::Seconds(10),
                             [&kept, part]() DIVVY_REQUIRES(kept.mu) { return kept.Has(part); });
  }

 private:
  struct Kept {
    void Add(const LogEntry& entry) {
      MutexLock lock(mu);
      entries.push_back(entry);
      more.NotifyAll();
    }
    bool Has(absl::string_view part) const DIVVY_REQUIRES(mu) {
      for (const LogEntry& entry : entries) {
        if (absl::StrContains(entry.text, part)) return true;
      }
      return false;
    }

    Mutex mu;
    CondVar more;
    std::vector<LogEntry> entries DIVVY_GUARDED_BY(mu);
  };

  std::vector<std::string> Map(const std::function<std::string(const LogEntry&)>& text_of) const {
    std::vector<std::string> mapped;
    MutexLock lock(kept_->mu);
    for (const LogEntry& entry : kept_->entries) mapped.push_back(text_of(entry));
    return mapped;
  }

  const std::shared_ptr<Kept> kept_ = std::make_shared<Kept>();
  const LogSink before_;
};

}  // namespace divvy

#endif  // DIVVY_BASE_TESTING_CAPTURED_LOG_H_
