// Names for the work of a thread, for a profiler's timeline. The library for GPUs sets a sink that
// passes the names on (NVTX). Without a sink a range costs one atomic load.
#ifndef DIVVY_BASE_TRACE_RANGE_H_
#define DIVVY_BASE_TRACE_RANGE_H_

#include <atomic>

namespace divvy {

// Receives the ranges. Each call comes on the thread that does the work. Thread-safe. An
// implementation does not block, and calls nothing that has ranges.
class TraceSink {
 public:
  virtual ~TraceSink() = default;
  virtual void Begin(const char* name) = 0;
  // Ends the innermost open range of this thread.
  virtual void End() = 0;
};

namespace internal {
inline std::atomic<TraceSink*> trace_sink{nullptr};
}  // namespace internal

// Sets the sink for ranges that begin from now on; null means none. A range that has already begun
// ends at the sink at which it began. REQUIRES: the sink lives as long as the process.
inline void SetTraceSink(TraceSink* sink) {
  internal::trace_sink.store(sink, std::memory_order_release);
}

// A range from its construction to the end of the scope, on this thread. REQUIRES: `name` lives as
// long.
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
