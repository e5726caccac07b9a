// Fuzzes an IDX file with any bytes. An accepted file must have as many elements as bytes after its
// header.
#include "absl/strings/string_view.h"
#include "base/testing/fuzz.h"
#include "formats/idx.h"

namespace divvy {
namespace {

void Try(absl::string_view bytes) {
  const auto array = ParseIdx(bytes);
  if (!array.ok()) return;
  fuzz::Require(array->shape().num_elements() <= static_cast<int64_t>(bytes.size()),
                "more elements than bytes");
}

}  // namespace
}  // namespace divvy

DIVVY_FUZZ(divvy::Try)
