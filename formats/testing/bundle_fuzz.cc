// Fuzzes the index of a checkpoint with any bytes. An accepted index must keep the promises of
// DecodeBundleIndex, and no tensor with a wrong checksum may be returned. Bytes that begin with 255
// are the rows of an index instead (length of key, length of value, key, value; ...), because a
// fuzzer cannot guess checksums.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/crc32c.h"
#include "base/testing/in_memory_file_system.h"
#include "formats/sorted_table.h"
#include "formats/tensor_bundle.h"

namespace divvy {
namespace {

constexpr char kPrefix[] = "/fuzz";
constexpr uint64_t kMostData = 1 << 20;

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

void Put(FileSystem& files, const std::string& name, absl::string_view bytes) {
  const auto file = files.OpenForWrite(name, WriteMode::kReplace);
  Require(file.ok() && (*file)->Append(bytes).ok() && (*file)->Close().ok(), "a file of the test");
}

// Creates data files of the lengths that the index requires. False: they would be too long for a
// test.
bool PutData(FileSystem& files, const BundleIndex& index) {
  for (const BundleTensor& tensor : index.tensors) {
    for (const BundlePart& part : tensor.parts) {
      const uint64_t end = part.offset + part.size_bytes;
      if (end > kMostData) return false;
      const std::string name = BundleDataFile(kPrefix, part.file, index.num_files);
      const auto info = files.Stat(name);
      if (!info.ok() || info->size_bytes < end) Put(files, name, std::string(end, 'x'));
    }
  }
  return true;
}

void ReadAll(const BundleReader& reader) {
  for (const BundleTensor& tensor : reader.index().tensors) {
    (void)reader.Verify(tensor.name);
    const auto value = reader.ReadTensor(tensor.name);
    if (!value.ok() || tensor.is_sliced || value->size_bytes() == 0) continue;
    const absl::string_view bytes(static_cast<const char*>(value->data()),
                                  static_cast<size_t>(value->size_bytes()));
    Require(MaskCrc32c(Crc32c(bytes)) == tensor.parts[0].masked_crc32c,
            "a tensor whose checksum does not fit");
  }
}

void Try(absl::string_view bytes) {
  const auto index = DecodeBundleIndex(bytes);
  if (!index.ok()) return;
  for (const BundleTensor& tensor : index->tensors)
    Require(!tensor.unreadable.empty() || CheckBundleTensor(tensor).ok(),
            "a tensor that is not tiled");
  InMemoryFileSystem files;
  if (!PutData(files, *index)) return;
  Put(files, BundleIndexFile(kPrefix), bytes);
  const auto reader = BundleReader::Open(files, kPrefix);
  if (reader.ok()) ReadAll(**reader);
}

std::string TableOf(absl::string_view rows) {
  std::map<std::string, std::string> sorted;
  while (rows.size() >= 2) {
    const size_t key = static_cast<uint8_t>(rows[0]), value = static_cast<uint8_t>(rows[1]);
    rows.remove_prefix(2);
    const absl::string_view name = rows.substr(0, key);
    rows.remove_prefix(name.size());
    sorted[std::string(name)] = std::string(rows.substr(0, value));
    rows.remove_prefix(std::min(value, rows.size()));
  }
  std::vector<TableEntry> table;
  for (const auto& [key, value] : sorted) table.push_back({key, value});
  return WriteSortedTable(table);
}

}  // namespace
}  // namespace divvy

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  divvy::Try(size > 0 && data[0] == 255 ? divvy::TableOf(bytes.substr(1)) : std::string(bytes));
  return 0;
}
