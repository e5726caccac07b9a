// Fuzzes decompression with any bytes. The result must never exceed the limit.
#include <string>

#include "absl/strings/string_view.h"
#include "base/testing/fuzz.h"
#include "formats/inflate.h"

namespace divvy {
namespace {

constexpr int64_t kMost = 1 << 20;

void Try(absl::string_view bytes) {
  const auto whole = Inflate(std::string(bytes), kMost);
  if (!whole.ok()) return;
  const bool is_plain = DetectCompression(bytes) == Compression::kNone;
  fuzz::Require(is_plain ? *whole == bytes : static_cast<int64_t>(whole->size()) <= kMost,
                "more than the limit, or changed");
}

}  // namespace
}  // namespace divvy

DIVVY_FUZZ(divvy::Try)
