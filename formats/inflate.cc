#include "formats/inflate.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

constexpr absl::string_view kGzipMagic = "\x1f\x8b\x08";
constexpr size_t kChunkBytes = 1 << 16;

// Whether some byte cannot occur in a text: a control character other than tab, LF, FF and CR.
bool HasBinaryByte(absl::string_view bytes) {
  return std::any_of(bytes.begin(), bytes.end(), [](char c) {
    return static_cast<uint8_t>(c) < 0x20 && c != '\t' && c != '\n' && c != '\f' && c != '\r';
  });
}

class Inflater {
 public:
  Inflater(absl::string_view bytes, int64_t max_bytes)
      : bytes_(bytes), max_bytes_(static_cast<size_t>(std::max<int64_t>(max_bytes, 0))) {
    constexpr int kWindowBitsGzipOrZlib = 15 + 32;
    ready_ = inflateInit2(&stream_, kWindowBitsGzipOrZlib) == Z_OK;
  }
  ~Inflater() {
    if (ready_) inflateEnd(&stream_);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  absl::StatusOr<std::string> Run(Compression compression) {
    if (!ready_) return absl::ResourceExhaustedError("no memory to decompress");
    do {
      RETURN_IF_ERROR(InflateMember());
    } while (compression == Compression::kGzip && offset_ < bytes_.size() &&
             absl::StartsWith(bytes_.substr(offset_), kGzipMagic) &&
             inflateReset(&stream_) == Z_OK);
    if (offset_ < bytes_.size())
      return Error("there are bytes after the end of the compressed data");
    return std::move(out_);
  }

 private:
  absl::Status Error(absl::string_view what) const {
    return absl::DataLossError(absl::StrCat("offset ", offset_, ": ", what));
  }

  // Decompresses one chunk. Returns zlib's code.
  int Step() {
    const size_t filled = out_.size();
    // The output doubles each time, up to one byte past the limit. That byte shows that the limit
    // is exceeded.
    const size_t room = std::min(std::max(kChunkBytes, filled), max_bytes_ + 1 - filled);
    out_.resize(filled + room);
    const size_t given =
        std::min<size_t>(bytes_.size() - offset_, std::numeric_limits<uInt>::max());
    const size_t asked = std::min<size_t>(room, std::numeric_limits<uInt>::max());
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes_.data() + offset_));
    stream_.avail_in = static_cast<uInt>(given);
    stream_.next_out = reinterpret_cast<Bytef*>(&out_[filled]);
    stream_.avail_out = static_cast<uInt>(asked);
    const int code = inflate(&stream_, Z_NO_FLUSH);
    offset_ += given - stream_.avail_in;
    out_.resize(filled + asked - stream_.avail_out);
    return code;
  }

  absl::Status InflateMember() {
    while (true) {
      const int code = Step();
      if (out_.size() > max_bytes_)
        return absl::ResourceExhaustedError(absl::StrCat(
            "decompressed, the data have more than the allowed ", max_bytes_, " bytes"));
      if (code == Z_STREAM_END) return absl::OkStatus();
      if (code == Z_BUF_ERROR ||
          (code == Z_OK && offset_ == bytes_.size() && stream_.avail_out > 0))
        return Error("the compressed data end too early");
      if (code == Z_MEM_ERROR) return absl::ResourceExhaustedError("no memory to decompress");
      if (code != Z_OK)
        return Error(absl::StrCat("the compressed data are damaged: ",
                                  stream_.msg == nullptr ? "bad head" : stream_.msg));
    }
  }

  absl::string_view bytes_;
  size_t max_bytes_;
  z_stream stream_ = {};
  bool ready_ = false;
  size_t offset_ = 0;  // the number of consumed bytes of bytes_
  std::string out_;
};

}  // namespace

Compression DetectCompression(absl::string_view bytes) {
  constexpr size_t kLookedAt = 512;
  if (absl::StartsWith(bytes, kGzipMagic)) return Compression::kGzip;
  if (bytes.size() < 2 || bytes[0] != 0x78) return Compression::kNone;
  switch (static_cast<uint8_t>(bytes[1])) {
    case 0x01:
    case 0x9c:
    case 0xda: return Compression::kZlib;
    case 0x5e:
      return HasBinaryByte(bytes.substr(2, kLookedAt)) ? Compression::kZlib : Compression::kNone;
    default: return Compression::kNone;
  }
}

absl::StatusOr<std::string> Inflate(std::string bytes, int64_t max_bytes) {
  const Compression compression = DetectCompression(bytes);
  if (compression != Compression::kNone) return Inflater(bytes, max_bytes).Run(compression);
  if (static_cast<int64_t>(bytes.size()) > max_bytes)
    return absl::ResourceExhaustedError(
        absl::StrCat(bytes.size(), " bytes are more than the allowed ", max_bytes));
  return bytes;
}

int64_t MostUnpacked(int64_t packed, int64_t most) {
  constexpr int64_t kAnyway = int64_t{1} << 30, kTimes = 200;
  return std::min(most, std::max(kAnyway, packed > most / kTimes ? most : kTimes * packed));
}

}  // namespace divvy
