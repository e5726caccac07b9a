// Whether a sanitizer that reports crashes by itself is compiled in.
#ifndef DIVVY_BASE_SANITIZER_H_
#define DIVVY_BASE_SANITIZER_H_

// DIVVY_SANITIZER is defined under AddressSanitizer, ThreadSanitizer and MemorySanitizer. g++ and
// clang have different macros for them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DIVVY_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define DIVVY_SANITIZER
#endif
#endif

#endif  // DIVVY_BASE_SANITIZER_H_
