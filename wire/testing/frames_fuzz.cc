#include <cstdio>
#include <cstdlib>

#include "wire/testing/frames.h"

// A message of a data stream; the first byte says which request it is taken for.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace divvy;
  if (size == 0) return 0;
  const absl::string_view message(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string fault = data[0] % 2 == 0 ? wire::testing::FrameFault<PullRequest>(message) : wire::testing::FrameFault<CommitRequest>(message);
  if (fault.empty()) return 0;
  std::fprintf(stderr, "%s\n", fault.c_str());
  std::abort();
}
