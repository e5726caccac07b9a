#include "formats/tfrecord.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "formats/little_endian.h"

namespace divvy {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kCrcBytes = 4;
constexpr size_t kHeadBytes = kLengthBytes + kCrcBytes;

// Whether `stored` begins with the masked checksum of `bytes`.
bool ChecksumFits(absl::string_view bytes, absl::string_view stored) {
  return UnmaskCrc32c(LoadLittleEndian<uint32_t>(stored)) == Crc32c(bytes);
}

absl::Status Damaged(size_t offset, absl::string_view what) {
  return absl::DataLossError(absl::StrCat("offset ", offset, ": ", what));
}

}  // namespace

absl::StatusOr<std::optional<absl::string_view>> ReadTfRecord(absl::string_view file,
                                                              size_t& offset) {
  const size_t start = offset;
  const absl::string_view rest = file.substr(start);
  if (rest.empty()) return std::nullopt;
  offset = file.size();
  if (rest.size() < kHeadBytes)
    return Damaged(start, "the file ends within the header of a record");
  if (!BeginsTfRecord(rest))
    return Damaged(start,
                   "the checksum of a record's length does not match: this is not a TFRecord file, "
                   "or it is damaged and later records cannot be found");
  const uint64_t length = LoadLittleEndian<uint64_t>(rest);
  const absl::string_view body = rest.substr(kHeadBytes);
  if (body.size() < kCrcBytes || length > body.size() - kCrcBytes)
    return Damaged(start, absl::StrCat("a record of ", length,
                                       " bytes and a checksum of 4, but the file has only ",
                                       body.size(), " bytes left"));
  const absl::string_view data = body.substr(0, length);
  offset = start + kHeadBytes + length + kCrcBytes;
  if (!ChecksumFits(data, body.substr(length)))
    return Damaged(start, "the checksum of a record does not match: it is damaged");
  return data;
}

bool BeginsTfRecord(absl::string_view file) {
  return file.size() >= kHeadBytes &&
         ChecksumFits(file.substr(0, kLengthBytes), file.substr(kLengthBytes));
}

void AppendTfRecord(absl::string_view record, std::string& file) {
  const size_t head = file.size();
  AppendLittleEndian<uint64_t>(record.size(), file);
  AppendLittleEndian<uint32_t>(MaskCrc32c(Crc32c(absl::string_view(file).substr(head))), file);
  file.append(record.data(), record.size());
  AppendLittleEndian<uint32_t>(MaskCrc32c(Crc32c(record)), file);
}

}  // namespace divvy
