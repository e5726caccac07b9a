// What has gone wrong on a device. CUDA tells the error of a launch to the thread that launched,
// once; whoever waits for the values may be another thread, later.
#ifndef DIVVY_OPS_CUDA_FIRST_ERROR_H_
#define DIVVY_OPS_CUDA_FIRST_ERROR_H_

#include <atomic>

namespace divvy::cuda {

// The first error since it was last taken. Thread-safe.
class FirstError {
 public:
  // `text` lives as long as the process; null: nothing.
  void Note(const char* text) {
    const char* none = nullptr;
    if (text != nullptr) text_.compare_exchange_strong(none, text);
  }
  // Null: none. Whoever takes it has to tell it.
  const char* Take() { return text_.exchange(nullptr); }

 private:
  std::atomic<const char*> text_{nullptr};
};

// An error after which nothing works any more: the first stays. Thread-safe.
class LastingError {
 public:
  // `text` lives as long as the process.
  void Set(const char* text) {
    const char* none = nullptr;
    text_.compare_exchange_strong(none, text);
  }
  const char* text() const { return text_; }  // null: none

 private:
  std::atomic<const char*> text_{nullptr};
};

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_FIRST_ERROR_H_
