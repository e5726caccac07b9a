// Names for what a thread does, for a profiler's time line. Who profiles sets where they go (NVTX
// on machines with GPUs); until then a range costs one load.
#ifndef DIVVY_BASE_TRACE_RANGE_H_
#define DIVVY_BASE_TRACE_RANGE_H_

#include <atomic>

namespace divvy {

// Called on the thread that does it; thread-safe. Does not block, and calls nothing that has ranges
// of its own.
class TraceSink {
 public:
  virtual ~TraceSink() = default;
  virtual void Begin(const char* name) = 0;
  // Of the innermost range that has begun on this thread.
  virtual void End() = 0;
};

namespace internal {
inline std::atomic<TraceSink*> trace_sink{nullptr};
}  // namespace internal

// From now on; ranges that have begun end at the sink that they began at. REQUIRES: it lives as
// long as the process; null for none.
inline void SetTraceSink(TraceSink* sink) {
  internal::trace_sink.store(sink, std::memory_order_release);
}

// From here to the end of the scope, on this thread. REQUIRES: `name` lives as long.
//
//   const TraceRange range("pull");
class TraceRange {
 public:
  explicit TraceRange(const char* name)
      : sink_(internal::trace_sink.load(std::memory_order_acquire)) {
    if (sink_ != nullptr) sink_->Begin(name);
  }
  ~TraceRange() {
    if (sink_ != nullptr) sink_->End();
  }
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;

 private:
  TraceSink* const sink_;
};

}  // namespace divvy

#endif  // DIVVY_BASE_TRACE_RANGE_H_
