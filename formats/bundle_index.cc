#include "formats/bundle_index.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "formats/damage.h"
#include "formats/little_endian.h"
#include "formats/protobuf_fields.h"
#include "formats/sorted_table.h"

namespace divvy {
namespace {

// The version of the format: the "producer" that Divvy writes, and the latest version that it
// reads.
constexpr uint64_t kVersion = 1;
// TensorFlow's length of an extent that covers the whole axis.
constexpr int64_t kWholeAxis = -1;
// The limit for a tensor that is cut along several axes, since each pair of its slices is compared.
constexpr size_t kMostBoxes = 4096;
// TensorFlow's limit on the rank of a tensor.
constexpr size_t kMostAxes = 254;

// A type of tensorflow.DataType.
struct TypeRow {
  uint64_t number;
  absl::string_view name;
  std::optional<DType> dtype;
};
constexpr TypeRow kTypes[] = {
    {1, "float32", DType::kFloat32},     {2, "float64", DType::kFloat64},
    {3, "int32", DType::kInt32},         {4, "uint8", DType::kUInt8},
    {5, "int16", std::nullopt},          {6, "int8", DType::kInt8},
    {7, "string", DType::kString},       {8, "complex64", DType::kComplex64},
    {9, "int64", DType::kInt64},         {10, "bool", DType::kBool},
    {11, "qint8", std::nullopt},         {12, "quint8", std::nullopt},
    {13, "qint32", std::nullopt},        {14, "bfloat16", DType::kBFloat16},
    {15, "qint16", std::nullopt},        {16, "quint16", std::nullopt},
    {17, "uint16", std::nullopt},        {18, "complex128", DType::kComplex128},
    {19, "float16", DType::kFloat16},    {20, "resource", std::nullopt},
    {21, "variant", std::nullopt},       {22, "uint32", std::nullopt},
    {23, "uint64", std::nullopt},        {24, "float8_e5m2", std::nullopt},
    {25, "float8_e4m3fn", std::nullopt},
};

// ---- messages

struct Entry {
  uint64_t type = 0;
  std::vector<int64_t> dims;
  int64_t file = 0;
  int64_t offset = 0;
  int64_t size_bytes = 0;
  uint32_t masked_crc32c = 0;
  std::vector<std::vector<BundleExtent>> slices;
};

// Calls `visit(bytes)` for each field `number` that has bytes.
template <typename Visit>
absl::Status ForEachPart(const ProtobufRecord& record, absl::string_view message, uint64_t number,
                         const Visit& visit) {
  return ForEachField(record, message, [&](const ProtobufField& field) {
    return field.Is(number, ProtobufType::kBytes) ? visit(field.bytes) : absl::OkStatus();
  });
}

// The varint field `number` of a message, or `otherwise` if the message does not have it.
absl::StatusOr<int64_t> ReadNumber(const ProtobufRecord& record, absl::string_view message,
                                   uint64_t number, int64_t otherwise = 0) {
  int64_t value = otherwise;
  RETURN_IF_ERROR(ForEachField(record, message, [&](const ProtobufField& field) {
    if (field.Is(number, ProtobufType::kVarint)) value = static_cast<int64_t>(field.varint);
    return absl::OkStatus();
  }));
  return value;
}

absl::Status ReadDims(const ProtobufRecord& record, absl::string_view shape,
                      std::vector<int64_t>& dims) {
  return ForEachPart(record, shape, 2, [&](absl::string_view dim) {
    ASSIGN_OR_RETURN(const int64_t size, ReadNumber(record, dim, 1));
    dims.push_back(size);
    return absl::OkStatus();
  });
}

absl::Status ReadSlice(const ProtobufRecord& record, absl::string_view message,
                       std::vector<BundleExtent>& slice) {
  return ForEachPart(record, message, 1, [&](absl::string_view extent) {
    ASSIGN_OR_RETURN(const int64_t start, ReadNumber(record, extent, 1));
    ASSIGN_OR_RETURN(const int64_t length, ReadNumber(record, extent, 2, kWholeAxis));
    slice.push_back({start, length});
    return absl::OkStatus();
  });
}

absl::StatusOr<Entry> ReadEntry(absl::string_view bytes) {
  const ProtobufRecord record{"a tensorflow.BundleEntryProto", bytes};
  Entry entry;
  RETURN_IF_ERROR(ForEachField(record, bytes, [&](const ProtobufField& field) {
    if (field.Is(1, ProtobufType::kVarint)) entry.type = field.varint;
    if (field.Is(2, ProtobufType::kBytes)) return ReadDims(record, field.bytes, entry.dims);
    if (field.Is(3, ProtobufType::kVarint)) entry.file = static_cast<int64_t>(field.varint);
    if (field.Is(4, ProtobufType::kVarint)) entry.offset = static_cast<int64_t>(field.varint);
    if (field.Is(5, ProtobufType::kVarint)) entry.size_bytes = static_cast<int64_t>(field.varint);
    if (field.Is(6, ProtobufType::kFixed32))
      entry.masked_crc32c = LoadLittleEndian<uint32_t>(field.bytes);
    return field.Is(7, ProtobufType::kBytes)
               ? ReadSlice(record, field.bytes, entry.slices.emplace_back())
               : absl::OkStatus();
  }));
  return entry;
}

// As everywhere in proto3, zeros are not written.
void AppendNumber(int number, uint64_t value, std::string& out) {
  if (value != 0) AppendVarintField(number, value, out);
}

std::string WriteDims(absl::Span<const int64_t> dims) {
  std::string shape;
  for (const int64_t size : dims) {
    std::string dim;
    AppendNumber(1, static_cast<uint64_t>(size), dim);
    AppendBytesField(2, dim, shape);
  }
  return shape;
}

std::string WriteSlice(absl::Span<const BundleExtent> box) {
  std::string slice;
  for (const BundleExtent& axis : box) {
    std::string extent;
    AppendNumber(1, static_cast<uint64_t>(axis.start), extent);
    // A length of 0 is written too, because without a length the extent would be the whole axis.
    AppendVarintField(2, static_cast<uint64_t>(axis.length), extent);
    AppendBytesField(1, extent, slice);
  }
  return slice;
}

std::string WriteEntry(const Entry& entry) {
  std::string bytes;
  AppendNumber(1, entry.type, bytes);
  AppendBytesField(2, WriteDims(entry.dims), bytes);
  AppendNumber(3, static_cast<uint64_t>(entry.file), bytes);
  AppendNumber(4, static_cast<uint64_t>(entry.offset), bytes);
  AppendNumber(5, static_cast<uint64_t>(entry.size_bytes), bytes);
  if (entry.masked_crc32c != 0) AppendFixed32Field(6, entry.masked_crc32c, bytes);
  for (const std::vector<BundleExtent>& slice : entry.slices)
    AppendBytesField(7, WriteSlice(slice), bytes);
  return bytes;
}

// ---- TensorFlow's ordered code: the order of the bytes is the order of the values

void AppendOrderedNumber(uint64_t value, std::string& out) {
  std::string digits;
  for (; value != 0; value >>= 8) digits.push_back(static_cast<char>(value));
  out.push_back(static_cast<char>(digits.size()));
  out.append(digits.rbegin(), digits.rend());
}

void AppendOrderedText(absl::string_view text, std::string& out) {
  for (const char c : text) {
    out.push_back(c);
    if (c == '\0') out.push_back('\xff');
    if (c == '\xff') out.push_back('\0');
  }
  out.append("\0\1", 2);
}

// n bytes hold 7n - 1 bits of the number and its sign. The first n bits are ones if the number is
// not negative, zeros if it is; the next bit is the opposite. So they give the length and the sign.
// With 9 and 10 bytes the length extends into the second byte.
void AppendOrderedSignedNumber(int64_t value, std::string& out) {
  const uint64_t magnitude = static_cast<uint64_t>(value < 0 ? ~value : value);
  int length = 1;
  while (length < 10 && magnitude >> (7 * length - 1) != 0) ++length;
  std::string bytes(static_cast<size_t>(length), value < 0 ? '\xff' : '\0');
  for (int i = 0; i < length && i < 8; ++i)
    bytes[static_cast<size_t>(length - 1 - i)] = static_cast<char>(value >> (8 * i));
  // With 9 and 10 bytes the length extends into the second byte.
  bytes[0] = static_cast<char>(bytes[0] ^ (length >= 8 ? 0xff : 0xff << (8 - length)));
  if (length > 8) bytes[1] = static_cast<char>(bytes[1] ^ (length == 9 ? 0x80 : 0xc0));
  out += bytes;
}

std::string SliceKey(absl::string_view name, absl::Span<const BundleExtent> slice) {
  std::string key;
  AppendOrderedNumber(0, key);
  AppendOrderedText(name, key);
  AppendOrderedNumber(slice.size(), key);
  for (const BundleExtent& extent : slice) {
    AppendOrderedSignedNumber(extent.start, key);
    AppendOrderedSignedNumber(extent.length, key);
  }
  return key;
}

// ---- decoding

// An axis without a length is whole. False: the slice extends beyond the tensor.
bool Resolve(absl::Span<const int64_t> dims, std::vector<BundleExtent>& box) {
  if (box.size() != dims.size()) return false;
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    BundleExtent& extent = box[axis];
    if (extent.length == kWholeAxis && extent.start == 0) extent.length = dims[axis];
    if (extent.start < 0 || extent.length < 0 || extent.start > dims[axis] ||
        extent.length > dims[axis] - extent.start)
      return false;
  }
  return true;
}

std::vector<int64_t> DimsOf(absl::Span<const BundleExtent> box) {
  std::vector<int64_t> dims;
  for (const BundleExtent& extent : box) dims.push_back(extent.length);
  return dims;
}

class IndexReader {
 public:
  explicit IndexReader(absl::Span<const TableEntry> table) : table_(table) {}

  absl::StatusOr<BundleIndex> Read() {
    if (table_.empty() || !table_[0].key.empty())
      return Damage("not the index of a tensor bundle: it has no header");
    RETURN_IF_ERROR(ReadHeader(table_[0].value));
    for (const TableEntry& entry : table_.subspan(1)) {
      if (entry.key[0] != '\0') RETURN_IF_ERROR(ReadTensor(entry));
    }
    RETURN_IF_ERROR(CheckFiles());
    return std::move(index_);
  }

 private:
  absl::Status ReadHeader(absl::string_view bytes) {
    const ProtobufRecord record{"a tensorflow.BundleHeaderProto", bytes};
    ASSIGN_OR_RETURN(const int64_t num_files, ReadNumber(record, bytes, 1));
    ASSIGN_OR_RETURN(const int64_t endianness, ReadNumber(record, bytes, 2));
    int64_t min_consumer = 0;
    RETURN_IF_ERROR(ForEachPart(record, bytes, 3, [&](absl::string_view version) {
      ASSIGN_OR_RETURN(min_consumer, ReadNumber(record, version, 2));
      return absl::OkStatus();
    }));
    if (endianness != 0)
      return absl::UnimplementedError(
          "the bundle was written on a big-endian machine: write it again on a little-endian one");
    if (min_consumer > static_cast<int64_t>(kVersion)) {
      return absl::UnimplementedError(
          absl::StrCat("the bundle needs a reader of version ", min_consumer,
                       " or later of the format; this reader has ", kVersion));
    }
    if (num_files < 0 || num_files > kMaxBundleFiles)
      return Damage(absl::StrCat("the header claims ", num_files, " data files"));
    index_.num_files = static_cast<int>(num_files);
    return absl::OkStatus();
  }

  absl::Status ReadTensor(const TableEntry& row) {
    ASSIGN_OR_RETURN(const Entry entry, ReadEntry(row.value));
    BundleTensor tensor;
    tensor.name = row.key;
    RETURN_IF_ERROR(SetTypeAndShape(entry, tensor));
    tensor.is_sliced = !entry.slices.empty();
    if (tensor.is_sliced) {
      for (const std::vector<BundleExtent>& slice : entry.slices)
        RETURN_IF_ERROR(AddSlice(entry, slice, tensor));
    } else {
      std::vector<BundleExtent> whole;
      for (const int64_t size : entry.dims) whole.push_back({0, size});
      RETURN_IF_ERROR(AddPart(entry, std::move(whole), tensor));
    }
    if (tensor.unreadable.empty()) RETURN_IF_ERROR(CheckBundleTensor(tensor));
    index_.tensors.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  static absl::Status SetTypeAndShape(const Entry& entry, BundleTensor& tensor) {
    const auto type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [&](const TypeRow& row) { return row.number == entry.type; });
    const bool is_known = type != std::end(kTypes);
    tensor.type = is_known ? std::string(type->name) : absl::StrCat("type ", entry.type);
    if (is_known) tensor.dtype = type->dtype;
    if (!tensor.dtype || DTypeSize(*tensor.dtype) == 0)
      tensor.unreadable = absl::StrCat("Divvy has no tensors of ", tensor.type);
    if (entry.dims.size() > kMostAxes)
      return DamageOf(tensor.name, absl::StrCat("its shape has ", entry.dims.size(), " axes"));
    if (std::any_of(entry.dims.begin(), entry.dims.end(), [](int64_t size) { return size < 0; }))
      return DamageOf(tensor.name, "its shape has a negative extent");
    if (entry.dims.size() > Shape::kMaxRank) {
      tensor.unreadable = absl::StrCat("Divvy's tensors have at most ", Shape::kMaxRank,
                                       " axes; this one has ", entry.dims.size());
      return absl::OkStatus();
    }
    tensor.shape = Shape(entry.dims);
    if (!tensor.shape.status().ok()) return DamageOf(tensor.name, tensor.shape.status().message());
    return absl::OkStatus();
  }

  absl::Status AddSlice(const Entry& whole, const std::vector<BundleExtent>& slice,
                        BundleTensor& tensor) {
    const std::string key = SliceKey(tensor.name, slice);
    const auto row = std::lower_bound(
        table_.begin(), table_.end(), key,
        [](const TableEntry& entry, const std::string& k) { return entry.key < k; });
    std::vector<BundleExtent> box = slice;
    if (row == table_.end() || row->key != key || !Resolve(whole.dims, box))
      return DamageOf(tensor.name, "a slice is missing or extends beyond the tensor");
    ASSIGN_OR_RETURN(const Entry entry, ReadEntry(row->value));
    if (entry.type != whole.type || entry.dims != DimsOf(box))
      return DamageOf(tensor.name,
                      "a slice has another type or shape than its tensor's entry says");
    return AddPart(entry, std::move(box), tensor);
  }

  absl::Status AddPart(const Entry& entry, std::vector<BundleExtent> box, BundleTensor& tensor) {
    if (entry.file < 0 || entry.file >= index_.num_files)
      return DamageOf(tensor.name,
                      absl::StrCat("it is in data file ", entry.file, " of ", index_.num_files));
    if (entry.offset < 0 || entry.size_bytes < 0 ||
        entry.offset + static_cast<uint64_t>(entry.size_bytes) > INT64_MAX) {
      return DamageOf(tensor.name,
                      absl::StrCat("it has ", entry.size_bytes, " bytes at offset ", entry.offset));
    }
    BundlePart part{std::move(box), static_cast<int>(entry.file),
                    static_cast<uint64_t>(entry.offset), static_cast<uint64_t>(entry.size_bytes),
                    entry.masked_crc32c};
    tensor.parts.push_back(std::move(part));
    return absl::OkStatus();
  }

  // Checks that no two parts share a byte. So all tensors together are not larger than the files,
  // which bounds the memory for reading them.
  absl::Status CheckFiles() const {
    std::vector<const BundlePart*> parts;
    for (const BundleTensor& tensor : index_.tensors) {
      for (const BundlePart& part : tensor.parts) {
        if (part.size_bytes > 0) parts.push_back(&part);
      }
    }
    const auto before = [](const BundlePart* a, const BundlePart* b) {
      return std::make_pair(a->file, a->offset) < std::make_pair(b->file, b->offset);
    };
    std::sort(parts.begin(), parts.end(), before);
    for (size_t i = 1; i < parts.size(); ++i) {
      const BundlePart &last = *parts[i - 1], &next = *parts[i];
      if (last.file == next.file && next.offset < last.offset + last.size_bytes) {
        return Damage(absl::StrCat("two tensors share bytes of data file ", next.file,
                                   " at offset ", next.offset));
      }
    }
    return absl::OkStatus();
  }

  const absl::Span<const TableEntry> table_;
  BundleIndex index_;
};

// ---- encoding

// Adds the table's rows for a tensor: the row of the tensor itself, and the rows of its slices.
void AddRows(const BundleTensor& tensor, std::map<std::string, std::string>& rows) {
  Entry whole;
  whole.type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeRow& row) {
                 return row.dtype == tensor.dtype;
               })->number;
  whole.dims.assign(tensor.shape.dims().begin(), tensor.shape.dims().end());
  for (const BundlePart& part : tensor.parts) {
    Entry entry{whole.type,
                DimsOf(part.box),
                part.file,
                static_cast<int64_t>(part.offset),
                static_cast<int64_t>(part.size_bytes),
                part.masked_crc32c,
                {}};
    rows[tensor.is_sliced ? SliceKey(tensor.name, part.box) : tensor.name] = WriteEntry(entry);
    whole.slices.push_back(part.box);
  }
  if (tensor.is_sliced) rows[tensor.name] = WriteEntry(whole);
}

// ---- tiles

int64_t ElementsOf(const BundlePart& part) {
  if (std::any_of(part.box.begin(), part.box.end(),
                  [](BundleExtent extent) { return extent.length == 0; }))
    return 0;
  int64_t elements = 1;
  // Cannot overflow: it is at most the tensor's number of elements, which is an int64.
  for (const BundleExtent& extent : part.box) elements *= extent.length;
  return elements;
}

bool Overlap(const BundlePart& a, const BundlePart& b) {
  for (size_t axis = 0; axis < a.box.size(); ++axis) {
    const BundleExtent &x = a.box[axis], &y = b.box[axis];
    if (x.start + x.length <= y.start || y.start + y.length <= x.start) return false;
  }
  return true;
}

// Whether the part covers all axes but the first completely.
bool IsRows(const BundleTensor& tensor, const BundlePart& part) {
  for (size_t axis = 1; axis < part.box.size(); ++axis) {
    if (part.box[axis].length != tensor.shape.dim(static_cast<int>(axis))) return false;
  }
  return true;
}

absl::Status CheckRows(const BundleTensor& tensor, std::vector<const BundlePart*> parts) {
  std::sort(parts.begin(), parts.end(), [](const BundlePart* a, const BundlePart* b) {
    return a->box[0].start < b->box[0].start;
  });
  int64_t end = 0;
  for (const BundlePart* part : parts) {
    if (part->box[0].start != end)
      return DamageOf(tensor.name,
                      absl::StrCat("its slices have a gap or an overlap at row ", end));
    end += part->box[0].length;
  }
  if (end != tensor.shape.rows())
    return DamageOf(tensor.name,
                    absl::StrCat("its slices end at row ", end, " of ", tensor.shape.rows()));
  return absl::OkStatus();
}

absl::Status CheckBoxes(const BundleTensor& tensor, absl::Span<const BundlePart* const> parts) {
  if (parts.size() > kMostBoxes)
    return DamageOf(tensor.name, absl::StrCat(parts.size(), " slices along several axes; at most ",
                                              kMostBoxes, " can be read"));
  int64_t left = tensor.shape.num_elements();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (ElementsOf(*parts[i]) > left) return DamageOf(tensor.name, "its slices overlap");
    left -= ElementsOf(*parts[i]);
    for (size_t j = 0; j < i; ++j) {
      if (Overlap(*parts[i], *parts[j])) return DamageOf(tensor.name, "its slices overlap");
    }
  }
  if (left != 0)
    return DamageOf(tensor.name, absl::StrCat(left, " of its elements are in no slice"));
  return absl::OkStatus();
}

}  // namespace

bool BundleIndex::is_own() const {
  return std::any_of(tensors.begin(), tensors.end(), [](const BundleTensor& tensor) {
    return absl::StartsWith(tensor.name, kBundleOwnNames);
  });
}

const BundleTensor* BundleIndex::Find(absl::string_view name) const {
  const auto tensor =
      std::lower_bound(tensors.begin(), tensors.end(), name,
                       [](const BundleTensor& t, absl::string_view n) { return t.name < n; });
  return tensor == tensors.end() || tensor->name != name ? nullptr : &*tensor;
}

absl::StatusOr<BundleIndex> DecodeBundleIndex(absl::string_view bytes) {
  ASSIGN_OR_RETURN(const std::vector<TableEntry> table, ReadSortedTable(bytes));
  ASSIGN_OR_RETURN(BundleIndex index, IndexReader(table).Read());
  if (index.is_own() && WriteSortedTable(table) != bytes)
    return Damage("bytes that no checksum covers have changed");
  return index;
}

std::string EncodeBundleIndex(const BundleIndex& index) {
  std::string header, version;
  AppendNumber(1, static_cast<uint64_t>(index.num_files), header);
  AppendVarintField(1, kVersion, version);
  AppendBytesField(3, version, header);
  std::map<std::string, std::string> rows = {{"", header}};
  for (const BundleTensor& tensor : index.tensors) AddRows(tensor, rows);
  std::vector<TableEntry> table;
  for (auto& [key, value] : rows) table.push_back({key, std::move(value)});
  return WriteSortedTable(table);
}

absl::Status CheckBundleTensor(const BundleTensor& tensor) {
  std::vector<const BundlePart*> parts;
  bool is_rows = tensor.shape.rank() > 0;
  for (const BundlePart& part : tensor.parts) {
    const int64_t elements = ElementsOf(part), size = DTypeSize(*tensor.dtype);
    if (elements > INT64_MAX / size || part.size_bytes != static_cast<uint64_t>(elements * size)) {
      return DamageOf(tensor.name, absl::StrCat(elements, " elements of ", tensor.type, " in ",
                                                part.size_bytes, " bytes"));
    }
    if (elements == 0) continue;  // an empty slice may be anywhere
    is_rows = is_rows && IsRows(tensor, part);
    parts.push_back(&part);
  }
  if (tensor.shape.num_elements() == 0) return absl::OkStatus();
  return is_rows ? CheckRows(tensor, std::move(parts)) : CheckBoxes(tensor, parts);
}

std::string ShowBundleBox(const BundlePart& part) {
  std::string text;
  for (const BundleExtent& extent : part.box)
    absl::StrAppend(&text, text.empty() ? "" : " ", "[", extent.start, ", ",
                    extent.start + extent.length, ")");
  return text.empty() ? "all" : text;
}

}  // namespace divvy
