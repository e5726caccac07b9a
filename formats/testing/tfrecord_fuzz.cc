// Fuzzes a TFRecord file with any bytes. Reading must end, and a record that was read must be
// written again as the same bytes. The bytes are also taken as the data of one record, because a
// fuzzer cannot guess checksums.
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "base/testing/fuzz.h"
#include "formats/tfrecord.h"

namespace divvy {
namespace {

void ReadAll(absl::string_view file) {
  size_t offset = 0;
  while (true) {
    const size_t before = offset;
    const auto record = ReadTfRecord(file, offset);
    fuzz::Require(offset >= before && offset <= file.size(), "the offset leaves the file");
    if (record.ok() && !record->has_value()) return;
    fuzz::Require(offset > before, "reading does not go on");
    if (!record.ok()) continue;
    std::string again;
    AppendTfRecord(**record, again);
    fuzz::Require(again == file.substr(before, offset - before),
                  "a record that is written otherwise");
  }
}

void Try(absl::string_view bytes) {
  ReadAll(bytes);
  std::string file;
  AppendTfRecord(bytes, file);
  AppendTfRecord(bytes.substr(bytes.size() / 2), file);
  ReadAll(file);
  (void)BeginsTfRecord(bytes);
}

}  // namespace
}  // namespace divvy

DIVVY_FUZZ(divvy::Try)
