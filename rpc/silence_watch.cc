#include "rpc/silence_watch.h"

#include <utility>

namespace divvy {

std::shared_ptr<SilenceWatch> SilenceWatch::Start(Executor& executor, absl::Duration limit,
                                                  std::function<void()> on_silence,
                                                  std::function<bool()> owed) {
  std::shared_ptr<SilenceWatch> watch(
      new SilenceWatch(executor, limit, std::move(on_silence), std::move(owed)));
  watch->Schedule();
  return watch;
}

void SilenceWatch::Heard() {
  MutexLock lock(mu_);
  silent_ticks_ = 0;
}

void SilenceWatch::Stop() {
  // destroyed without the lock
  std::function<void()> released;
  MutexLock lock(mu_);
  std::swap(released, on_silence_);
}

void SilenceWatch::Schedule() {
  executor_.PostAfter(tick_, [watch = weak_from_this()] {
    if (const std::shared_ptr<SilenceWatch> alive = watch.lock()) alive->Tick();
  });
}

void SilenceWatch::Tick() {
  if (owed_ && !owed_()) Heard();
  std::function<void()> on_silence;
  {
    MutexLock lock(mu_);
    if (on_silence_ == nullptr) return;
    if (++silent_ticks_ > kTicks) std::swap(on_silence, on_silence_);
  }
  if (on_silence) return on_silence();
  Schedule();
}

}  // namespace divvy
