// The errors of a device. CUDA reports the error of a launch once, to the launching thread. The
// thread that waits for the values may be another one, later.
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
  // Takes the error, or null. The caller that takes it must report it.
  const char* Take() { return text_.exchange(nullptr); }

 private:
  std::atomic<const char*> text_{nullptr};
};

// An error after which the device no longer works. The first one stays. Thread-safe.
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
