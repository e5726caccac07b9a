// The progress timer of a stream.
#ifndef DIVVY_RPC_SILENCE_WATCH_H_
#define DIVVY_RPC_SILENCE_WATCH_H_

#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "base/executor.h"
#include "base/mutex.h"

namespace divvy {

// A Steps stream on which nothing comes for so long is broken (docs/protocol.md): its coordinator
// says something every second.
constexpr absl::Duration kStreamSilence = absl::Seconds(10);

// Says once when nothing has been heard for a while. Thread-safe; needs no clock: it counts ticks
// of an eighth of the limit, so it may say so that much late.
class SilenceWatch : public std::enable_shared_from_this<SilenceWatch> {
 public:
  // `on_silence` is called as a task of the executor, without a lock. Time in which `owed` is false
  // does not count; null: all time counts. REQUIRES: `executor` outlives the watch's last tick, as
  // a ThreadPoolExecutor does, which drops its timers when it ends.
  static std::shared_ptr<SilenceWatch> Start(Executor& executor, absl::Duration limit,
                                             std::function<void()> on_silence,
                                             std::function<bool()> owed = nullptr);

  void Heard();
  // on_silence is not called from here on, and what it holds is let go.
  void Stop();

 private:
  static constexpr int kTicks = 8;
  SilenceWatch(Executor& executor, absl::Duration limit, std::function<void()> on_silence,
               std::function<bool()> owed)
      : executor_(executor),
        tick_(limit / kTicks),
        owed_(std::move(owed)),
        on_silence_(std::move(on_silence)) {}
  void Schedule();
  void Tick();

  Executor& executor_;
  const absl::Duration tick_;
  const std::function<bool()> owed_;
  Mutex mu_;
  int silent_ticks_ DIVVY_GUARDED_BY(mu_) = 0;
  std::function<void()> on_silence_ DIVVY_GUARDED_BY(mu_);  // null: stopped
};

}  // namespace divvy

#endif  // DIVVY_RPC_SILENCE_WATCH_H_
