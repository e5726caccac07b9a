#include "formats/protobuf_fields.h"

#include "absl/strings/str_cat.h"
#include "formats/little_endian.h"

namespace divvy {
namespace {

void AppendTag(int number, ProtobufType type, std::string& out) {
  AppendVarint(static_cast<uint64_t>(number) << 3 | static_cast<uint64_t>(type), out);
}

}  // namespace

absl::Status ProtobufReader::Error(absl::string_view what) const {
  return absl::DataLossError(absl::StrCat("not ", record_.kind, ": offset ",
                                          rest_.data() - record_.bytes.data(), ": ", what));
}

absl::Status ProtobufReader::ErrorOfType(int type) const {
  return Error(absl::StrCat("a field of wire type ", type, ", which is unknown or obsolete"));
}

absl::Status ProtobufReader::ErrorOfLength(uint64_t length) const {
  return Error(absl::StrCat("a field of ", length, " bytes, but only ", rest_.size(), " are left"));
}

void AppendVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void AppendVarintField(int number, uint64_t value, std::string& out) {
  AppendTag(number, ProtobufType::kVarint, out);
  AppendVarint(value, out);
}

void AppendDoubleField(int number, double value, std::string& out) {
  AppendTag(number, ProtobufType::kFixed64, out);
  AppendLittleEndian(value, out);
}

void AppendFixed32Field(int number, uint32_t value, std::string& out) {
  AppendTag(number, ProtobufType::kFixed32, out);
  AppendLittleEndian(value, out);
}

void AppendBytesField(int number, absl::string_view bytes, std::string& out) {
  AppendTag(number, ProtobufType::kBytes, out);
  AppendVarint(bytes.size(), out);
  out.append(bytes.data(), bytes.size());
}

}  // namespace divvy
