// Decodes arbitrary values as rows of a coordinator's store. A decoder must return InvalidArgument,
// or a row that can be encoded again. The first byte of the input selects the table. Each value
// begins with one byte that has its type and the length of its bytes.
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
                         "refused with another code than InvalidArgument");
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
