#include "formats/sorted_table.h"

#include <snappy.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/status_macros.h"
#include "formats/little_endian.h"
#include "formats/protobuf_fields.h"
#include "leveldb/env.h"
#include "leveldb/table_builder.h"

namespace divvy {
namespace {

constexpr size_t kFooterBytes = 48;
// The end of a block: its compression and its checksum.
constexpr size_t kTrailerBytes = 5;
constexpr uint64_t kMagic = 0xDB4775248B80FB57;
// Since keys share prefixes and blocks may be compressed, valid tables grow when they are read, but
// never by this much.
constexpr uint64_t kMostGrowth = 32;

struct Place {
  uint64_t offset = 0;
  uint64_t size = 0;
};

absl::Status Damage(uint64_t offset, absl::string_view what) {
  return absl::DataLossError(absl::StrCat("offset ", offset, ": ", what));
}

// Takes a varint from the front of `rest`. nullopt: it is truncated, or has more than 64 bits.
std::optional<uint64_t> TakeVarint(absl::string_view& rest) {
  ProtobufReader reader({"a table", rest}, rest);
  const absl::StatusOr<uint64_t> value = reader.Varint();
  if (!value.ok()) return std::nullopt;
  rest.remove_prefix(rest.size() - reader.rest().size());
  return *value;
}

std::optional<Place> TakePlace(absl::string_view& rest) {
  const std::optional<uint64_t> offset = TakeVarint(rest);
  const std::optional<uint64_t> size = offset ? TakeVarint(rest) : std::nullopt;
  if (!size) return std::nullopt;
  return Place{*offset, *size};
}

class TableReader {
 public:
  explicit TableReader(absl::string_view bytes)
      : bytes_(bytes), budget_(bytes.size() * kMostGrowth) {}

  absl::StatusOr<std::vector<TableEntry>> Read() {
    if (bytes_.size() < kFooterBytes)
      return Damage(0, absl::StrCat("not a table: it has ", bytes_.size(),
                                    " bytes, and a footer alone has ", kFooterBytes));
    const uint64_t footer_offset = bytes_.size() - kFooterBytes;
    absl::string_view footer = bytes_.substr(footer_offset);
    if (LoadLittleEndian<uint64_t>(footer.substr(kFooterBytes - sizeof kMagic)) != kMagic)
      return Damage(footer_offset, "not the footer of a table");
    const std::optional<Place> meta = TakePlace(footer);
    const std::optional<Place> index = meta ? TakePlace(footer) : std::nullopt;
    if (!index) return Damage(footer_offset, "the footer does not have the places of the blocks");
    RETURN_IF_ERROR(ReadBlock(*meta));
    ASSIGN_OR_RETURN(const std::string blocks, ReadBlock(*index));
    std::vector<TableEntry> entries;
    RETURN_IF_ERROR(ForEachEntry(*index, blocks, [&](absl::string_view, absl::string_view place) {
      return ReadEntries(*index, place, entries);
    }));
    return entries;
  }

 private:
  absl::Status ReadEntries(Place index, absl::string_view encoded,
                           std::vector<TableEntry>& entries) {
    const std::optional<Place> place = TakePlace(encoded);
    if (!place) return Damage(index.offset, "the place of a block is cut off");
    ASSIGN_OR_RETURN(const std::string block, ReadBlock(*place));
    return ForEachEntry(*place, block, [&](absl::string_view key, absl::string_view value) {
      if (!entries.empty() && key <= entries.back().key)
        return Damage(place->offset, "the keys of a block do not rise");
      RETURN_IF_ERROR(Spend(place->offset, sizeof(TableEntry) + key.size() + value.size()));
      entries.push_back({std::string(key), std::string(value)});
      return absl::OkStatus();
    });
  }

  // The contents of the block; its checksum is verified.
  absl::StatusOr<std::string> ReadBlock(Place place) {
    const uint64_t end = bytes_.size() - kFooterBytes;
    if (place.offset > end || place.size > end - place.offset ||
        kTrailerBytes > end - place.offset - place.size) {
      return Damage(place.offset, absl::StrCat("a block of ", place.size,
                                               " bytes extends beyond the end of the file"));
    }
    const absl::string_view content = bytes_.substr(place.offset, place.size);
    const absl::string_view checked = bytes_.substr(place.offset, place.size + 1);
    if (UnmaskCrc32c(LoadLittleEndian<uint32_t>(bytes_.substr(place.offset + place.size + 1))) !=
        Crc32c(checked)) {
      return Damage(place.offset, "the checksum of a block does not match");
    }
    switch (checked.back()) {
      case 0: RETURN_IF_ERROR(Spend(place.offset, content.size())); return std::string(content);
      case 1: return Uncompress(place.offset, content);
      default:
        return Damage(place.offset,
                      absl::StrCat("a block has the unknown compression ",
                                   static_cast<int>(static_cast<uint8_t>(checked.back()))));
    }
  }

  absl::StatusOr<std::string> Uncompress(uint64_t offset, absl::string_view content) {
    size_t length = 0;
    if (!snappy::GetUncompressedLength(content.data(), content.size(), &length))
      return Damage(offset, "a block is not valid Snappy data");
    RETURN_IF_ERROR(Spend(offset, length));
    std::string block(length, '\0');
    if (!snappy::RawUncompress(content.data(), content.size(), &block[0]))
      return Damage(offset, "a block is not valid Snappy data");
    return block;
  }

  // Calls `visit(key, value)`, which returns a Status, for each entry. The restarts are only for
  // searching, so they are skipped.
  template <typename Visit>
  static absl::Status ForEachEntry(Place place, absl::string_view block, const Visit& visit) {
    constexpr size_t kNumber = sizeof(uint32_t);
    if (block.size() < kNumber) return Damage(place.offset, "a block has no restarts");
    const uint64_t restarts = LoadLittleEndian<uint32_t>(block.substr(block.size() - kNumber));
    if ((restarts + 1) * kNumber > block.size())
      return Damage(place.offset,
                    absl::StrCat("a block is smaller than its ", restarts, " restarts"));
    absl::string_view rest = block.substr(0, block.size() - (restarts + 1) * kNumber);
    std::string key;
    while (!rest.empty()) {
      const std::optional<uint64_t> shared = TakeVarint(rest);
      const std::optional<uint64_t> more = shared ? TakeVarint(rest) : std::nullopt;
      const std::optional<uint64_t> length = more ? TakeVarint(rest) : std::nullopt;
      if (!length || *shared > key.size() || *more > rest.size() || *length > rest.size() - *more)
        return Damage(place.offset, "an entry of a block is truncated");
      key.resize(*shared);
      key.append(rest.data(), *more);
      RETURN_IF_ERROR(visit(key, rest.substr(*more, *length)));
      rest.remove_prefix(*more + *length);
    }
    return absl::OkStatus();
  }

  absl::Status Spend(uint64_t offset, uint64_t bytes) {
    if (bytes > budget_)
      return Damage(offset, absl::StrCat("a block claims more than ", kMostGrowth,
                                         " times the bytes of the file"));
    budget_ -= bytes;
    return absl::OkStatus();
  }

  const absl::string_view bytes_;
  uint64_t budget_;
};

// Receives the bytes that the builder writes.
class StringFile : public leveldb::WritableFile {
 public:
  leveldb::Status Append(const leveldb::Slice& data) override {
    bytes.append(data.data(), data.size());
    return leveldb::Status::OK();
  }
  leveldb::Status Close() override { return leveldb::Status::OK(); }
  leveldb::Status Flush() override { return leveldb::Status::OK(); }
  leveldb::Status Sync() override { return leveldb::Status::OK(); }

  std::string bytes;
};

}  // namespace

absl::StatusOr<std::vector<TableEntry>> ReadSortedTable(absl::string_view bytes) {
  return TableReader(bytes).Read();
}

std::string WriteSortedTable(absl::Span<const TableEntry> entries, TableCompression compression) {
  leveldb::Options options;
  options.block_size = 262144;
  options.block_restart_interval = 16;
  options.compression = compression == TableCompression::kNone ? leveldb::kNoCompression
                                                               : leveldb::kSnappyCompression;
  StringFile file;
  leveldb::TableBuilder builder(options, &file);
  for (const TableEntry& entry : entries) builder.Add(entry.key, entry.value);
  builder.Finish();  // a string takes all: no errors
  return std::move(file.bytes);
}

}  // namespace divvy
