// Fuzzes a safetensors file with any bytes. The tensors of an accepted file must fill it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/string_view.h"
#include "formats/little_endian.h"
#include "formats/safetensors.h"

namespace divvy {
namespace {

void Try(absl::string_view file) {
  if (file.size() < sizeof(uint64_t)) return;
  const uint64_t length = LoadLittleEndian<uint64_t>(file);
  if (length > file.size() - sizeof length) return;
  const auto header = ParseSafetensorsHeader(file.substr(sizeof length, length), file.size());
  if (!header.ok()) return;
  uint64_t at = sizeof length + length;
  for (const SafetensorsTensor& tensor : header->tensors) {
    const bool is_sized =
        !tensor.dtype || !tensor.unreadable.empty() ||
        static_cast<uint64_t>(tensor.shape.num_elements() * DTypeSize(*tensor.dtype)) ==
            tensor.end - tensor.begin;
    if (tensor.begin == at && is_sized)
      at = tensor.end;
    else
      std::abort();
  }
  if (at != file.size()) std::abort();
}

}  // namespace
}  // namespace divvy

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  divvy::Try(absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
