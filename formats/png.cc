// The format: https://www.w3.org/TR/png. A file is a signature and chunks; each chunk is its
// length, its kind, its data, and the CRC-32 of kind and data. Numbers are big endian.
#include "formats/png.h"

#include <zlib.h>

namespace divvy {
namespace {

void AppendBigEndian(uint64_t number, std::string& out) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(number >> shift));
}

void AppendChunk(absl::string_view kind, absl::string_view data, std::string& file) {
  AppendBigEndian(data.size(), file);
  const size_t begin = file.size();
  file.append(kind.data(), kind.size());
  file.append(data.data(), data.size());
  AppendBigEndian(crc32(0, reinterpret_cast<const Bytef*>(file.data() + begin),
                        static_cast<uInt>(file.size() - begin)),
                  file);
}

// By zlib. It can only fail for want of memory, as any allocation.
std::string Compressed(const std::string& bytes) {
  std::string out(compressBound(bytes.size()), 0);
  uLongf size = out.size();
  compress(reinterpret_cast<Bytef*>(&out[0]), &size, reinterpret_cast<const Bytef*>(bytes.data()),
           bytes.size());
  out.resize(size);
  return out;
}

}  // namespace

std::string WritePng(int64_t width, int64_t height, int channels, absl::string_view pixels) {
  constexpr char kColorTypes[] = {0, 4, 2, 6};  // by the number of channels
  std::string head;
  AppendBigEndian(static_cast<uint64_t>(width), head);
  AppendBigEndian(static_cast<uint64_t>(height), head);
  head.push_back(8);  // bits
  head.push_back(kColorTypes[channels - 1]);
  head.append(3, 0);  // deflate, the standard filters, not interlaced
  const size_t row_bytes = static_cast<size_t>(width) * static_cast<size_t>(channels);
  std::string rows;
  rows.reserve(static_cast<size_t>(height) * (row_bytes + 1));
  for (; !pixels.empty(); pixels.remove_prefix(row_bytes)) {
    rows.push_back(0);  // the row has no filter
    rows.append(pixels.data(), row_bytes);
  }
  std::string file = "\x89PNG\r\n\x1a\n";
  AppendChunk("IHDR", head, file);
  AppendChunk("IDAT", Compressed(rows), file);
  AppendChunk("IEND", "", file);
  return file;
}

}  // namespace divvy
