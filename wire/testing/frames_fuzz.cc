#include <cstdio>
#include <cstdlib>

#include "wire/testing/frames.h"

namespace {

using namespace divvy;

constexpr int64_t kAskedBytes = 48;
// A read of no rows, one of some rows, and one of a whole shard: kAskedBytes in all.
PullRequest Asked() {
  PullRequest asked;
  asked.parts.resize(3);
  for (int i = 0; i < 3; ++i) asked.parts[i].reply_bytes = 16 * i;
  asked.parts[0].rows = Tensor::Vector<int64_t>({});
  asked.parts[1].rows = Tensor::Vector<int64_t>({5, 7});
  return asked;
}

std::string FaultOf(uint8_t kind, absl::string_view message) {
  switch (kind % 4) {
    case 0: return wire::testing::FrameFault<PullRequest>(message);
    case 1: return wire::testing::FrameFault<CommitRequest>(message);
    case 2: return wire::testing::ReplyFault(message, Asked(), kAskedBytes);
    default: {
      CommitRequest committed;
      committed.parts.resize(2);
      return wire::testing::ReplyFault(message, committed, 0);
    }
  }
}

}  // namespace

// A message of a data stream. The first byte chooses what it is decoded as.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string fault =
      FaultOf(data[0], absl::string_view(reinterpret_cast<const char*>(data) + 1, size - 1));
  if (fault.empty()) return 0;
  std::fprintf(stderr, "%s\n", fault.c_str());
  std::abort();
}
