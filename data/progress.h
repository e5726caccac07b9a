// Log lines about an element that takes long. Internal to data/.
#ifndef DIVVY_DATA_PROGRESS_H_
#define DIVVY_DATA_PROGRESS_H_

#include <cstdint>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"
#include "data/dataset.h"

namespace divvy::data_internal {

// Logs the progress of one call every 10 s (kEvery). A shorter call logs nothing. Make one object
// for each call. Not thread-safe.
//
//   Progress progress(clock);
//   while (...) {
//     ...
//     progress.Tick([&] { return absl::StrCat("read ", read, " elements"); });
//   }
class Progress {
 public:
  static constexpr absl::Duration kEvery = absl::Seconds(10);

  // The clock is read once in `ticks_per_look` ticks. Raise it for fast loops.
  explicit Progress(const Clock& clock, int64_t ticks_per_look = 1)
      : clock_(clock),
        ticks_per_look_(ticks_per_look),
        begun_(clock.Elapsed()),
        next_(begun_ + kEvery) {}

  // `tell()` returns a text about the progress so far. It is called only when a line is due.
  template <typename Tell>
  void Tick(const Tell& tell) {
    if (++ticks_ % ticks_per_look_ != 0) return;
    const absl::Duration now = clock_.Elapsed();
    if (now < next_) return;
    next_ = now + kEvery;
    DIVVY_LOG(INFO) << "data: " << tell() << " in " << absl::Trunc(now - begun_, absl::Seconds(1));
  }

 private:
  const Clock& clock_;
  const int64_t ticks_per_look_;
  const absl::Duration begun_;
  absl::Duration next_;
  int64_t ticks_ = 0;
};

// The environment's clock; if it has none, the machine's.
inline const Clock& ClockOf(const DataEnvironment& environment) {
  return environment.clock == nullptr ? Clock::Real() : *environment.clock;
}

}  // namespace divvy::data_internal

#endif  // DIVVY_DATA_PROGRESS_H_
