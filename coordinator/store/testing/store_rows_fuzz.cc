// Decodes any values as rows of a coordinator's store. They are refused as InvalidArgument, or they
// give rows that can be encoded again. The first byte selects the table. Then each value has one
// byte, with its type and the length of what follows.
#include <algorithm>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/testing/fuzz.h"
#include "coordinator/store/store_rows.h"

namespace divvy {
namespace {

SqlRow RowOf(absl::string_view bytes) {
  SqlRow row;
  while (!bytes.empty() && row.size() < 40) {
    const auto head = static_cast<unsigned char>(bytes[0]);
    const absl::string_view content = bytes.substr(1, head >> 2);
    bytes.remove_prefix(1 + content.size());
    int64_t number = 0;
    std::memcpy(&number, content.data(), std::min(content.size(), sizeof(number)));
    switch (head & 3) {
      case 0: row.emplace_back(); break;
      case 1: row.emplace_back(number); break;
      case 2: row.emplace_back(std::string(content)); break;
      default: row.emplace_back(Blob{std::string(content)}); break;
    }
  }
  return row;
}

template <typename Row>
void Check(const absl::StatusOr<Row>& row) {
  if (!row.ok())
    return fuzz::Require(absl::IsInvalidArgument(row.status()),
                         "refused otherwise than as InvalidArgument");
  (void)Encode(*row);
}

void Try(absl::string_view bytes) {
  if (bytes.empty()) return;
  const SqlRow row = RowOf(bytes.substr(1));
  switch (bytes[0] & 3) {
    case 0: return Check(DecodeJob(row));
    case 1: return Check(DecodeVariable(row));
    case 2: return Check(DecodeCheckpoint(row));
    default: return Check(DecodeState(row));
  }
}

}  // namespace
}  // namespace divvy

DIVVY_FUZZ(divvy::Try)
