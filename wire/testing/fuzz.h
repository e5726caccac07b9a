// The body of the fuzz targets of this folder.
#ifndef DIVVY_WIRE_TESTING_FUZZ_H_
#define DIVVY_WIRE_TESTING_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "wire/testing/conversion.h"

namespace divvy::wire::testing {

// The first byte chooses the kind of message that the rest is decoded as. Aborts if Fault finds
// something wrong.
template <typename... Ts>
void FuzzOneOf(Kinds<Ts...>, const uint8_t* data, size_t size) {
  if (size == 0) return;
  using Check = std::string (*)(absl::string_view);
  constexpr Check kChecks[] = {Fault<Ts>...};
  const std::string fault = kChecks[data[0] % sizeof...(Ts)](
      absl::string_view(reinterpret_cast<const char*>(data) + 1, size - 1));
  if (fault.empty()) return;
  std::fprintf(stderr, "kind %zu: %s\n", data[0] % sizeof...(Ts), fault.c_str());
  std::abort();
}

}  // namespace divvy::wire::testing

#endif  // DIVVY_WIRE_TESTING_FUZZ_H_
