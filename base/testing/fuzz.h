// Helpers of fuzz targets.
#ifndef DIVVY_BASE_TESTING_FUZZ_H_
#define DIVVY_BASE_TESTING_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/string_view.h"

namespace divvy::fuzz {

// Aborts the process if `holds` is false. The fuzzer and the replay of its corpus count this as a
// finding.
inline void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

inline absl::string_view Text(const uint8_t* data, size_t size) {
  return absl::string_view(reinterpret_cast<const char*>(data), size);
}

}  // namespace divvy::fuzz

// Defines the function that a fuzzer calls. `Try` gets the bytes as a string_view.
#define DIVVY_FUZZ(Try)                                                     \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { \
    Try(divvy::fuzz::Text(data, size));                                     \
    return 0;                                                               \
  }

#endif  // DIVVY_BASE_TESTING_FUZZ_H_
