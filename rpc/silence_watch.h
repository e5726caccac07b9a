// The progress timer of a stream.
#ifndef DIVVY_RPC_SILENCE_WATCH_H_
#define DIVVY_RPC_SILENCE_WATCH_H_

#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "base/executor.h"
#include "base/mutex.h"

namespace divvy {

// A Steps stream is broken if nothing arrives on it for this long (docs/internals/protocol.md). The
// coordinator sends something every second.
constexpr absl::Duration kStreamSilence = absl::Seconds(10);

// Reports once that nothing has been heard for a while. Thread-safe; no method blocks. It needs no
// clock: it counts ticks of an eighth of the limit, so the report may come that much late.
class SilenceWatch : public std::enable_shared_from_this<SilenceWatch> {
 public:
  // Calls `on_silence` as a task of the executor, without holding a lock. Time in which `owed`
  // returns false does not count; if `owed` is null, all time counts. The caller must keep the
  // result: destroying it stops the watch. REQUIRES: `executor` outlives the last tick of the
  // watch. A ThreadPoolExecutor does, because it drops its timers when it ends.
  static std::shared_ptr<SilenceWatch> Start(Executor& executor, absl::Duration limit,
                                             std::function<void()> on_silence,
                                             std::function<bool()> owed = nullptr);

  // Something has arrived: the limit starts anew.
  void Heard();
  // Starts no further call of on_silence, and destroys the function.
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
