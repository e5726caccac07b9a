#include "formats/tensor_bundle.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/crc32c.h"
#include "base/path.h"
#include "base/status_macros.h"
#include "formats/little_endian.h"
#include "formats/protobuf_fields.h"

namespace divvy {
namespace {

// The number of bytes after which the checksum is updated, while they are still in the processor's
// cache.
constexpr size_t kPiece = size_t{256} << 10;
constexpr char kWrongChecksum[] = "the checksum does not match the bytes";

absl::Status CheckSlice(absl::string_view tensor, DType dtype, const Shape& shape,
                        int64_t begin_row, int64_t end_row) {
  RETURN_IF_ERROR(shape.status());
  if (tensor.empty() || tensor[0] == '\0')
    return absl::InvalidArgumentError("the name of a tensor is empty or begins with a NUL");
  if (DTypeSize(dtype) == 0)
    return absl::InvalidArgumentError(
        absl::StrCat("tensor \"", tensor, "\": Divvy writes no tensors of ", DTypeName(dtype)));
  if (shape.num_elements() < 0 || begin_row < 0 || end_row < begin_row || end_row > shape.rows()) {
    return absl::InvalidArgumentError(absl::StrCat("tensor \"", tensor, "\": rows [", begin_row,
                                                   ", ", end_row, ") of ", shape.ToString()));
  }
  return absl::OkStatus();
}

BundlePart PartOf(const BundleSlice& slice) {
  BundlePart part{{}, slice.file, slice.offset, slice.size_bytes, slice.masked_crc32c};
  for (const int64_t size : slice.shape.dims()) part.box.push_back({0, size});
  if (!part.box.empty()) part.box[0] = {slice.begin_row, slice.end_row - slice.begin_row};
  return part;
}

// Sets how the index stores the tensor: a tensor with one part, or without elements, is stored as a
// whole. Otherwise it is sliced.
void Arrange(BundleTensor& tensor) {
  std::vector<BundlePart>& parts = tensor.parts;
  const auto is_empty = [](const BundlePart& part) { return part.size_bytes == 0; };
  if (tensor.shape.num_elements() == 0) {
    parts.resize(1);
    if (tensor.shape.rank() > 0) parts[0].box[0] = {0, tensor.shape.rows()};
  } else {
    parts.erase(std::remove_if(parts.begin(), parts.end(), is_empty), parts.end());
  }
  if (tensor.shape.rank() == 0) return;
  std::sort(parts.begin(), parts.end(), [](const BundlePart& a, const BundlePart& b) {
    return a.box[0].start < b.box[0].start;
  });
  tensor.is_sliced = parts.size() != 1;
}

absl::StatusOr<BundleIndex> IndexOf(int num_files, absl::Span<const BundleSlice> slices) {
  std::map<std::string, BundleTensor> tensors;
  for (const BundleSlice& slice : slices) {
    RETURN_IF_ERROR(
        CheckSlice(slice.tensor, slice.dtype, slice.shape, slice.begin_row, slice.end_row));
    BundleTensor& tensor = tensors[slice.tensor];
    if (tensor.parts.empty()) {
      tensor.name = slice.tensor;
      tensor.type = std::string(DTypeName(slice.dtype));
      tensor.dtype = slice.dtype;
      tensor.shape = slice.shape;
    }
    if (tensor.dtype != slice.dtype || tensor.shape != slice.shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor \"", slice.tensor, "\": slices of ", tensor.type, " ", tensor.shape.ToString(),
          " and of ", DTypeName(slice.dtype), " ", slice.shape.ToString()));
    }
    tensor.parts.push_back(PartOf(slice));
  }
  BundleIndex index{num_files, {}};
  for (auto& [name, tensor] : tensors) {
    Arrange(tensor);
    if (const absl::Status status = CheckBundleTensor(tensor); !status.ok())
      return absl::InvalidArgumentError(status.message());
    index.tensors.push_back(std::move(tensor));
  }
  return index;
}

// A failure of the device says nothing about the stored bytes, so it is not reported as damage.
absl::Status OfDevice(const absl::Status& status) {
  return absl::IsDataLoss(status) ? absl::UnavailableError(absl::StrCat(
                                        status.message(), ": try again, or check the disk"))
                                  : status;
}

// The part of a data file that the index covers.
struct FileUse {
  uint64_t bytes = 0;  // the sum over all parts; they do not overlap
  uint64_t end = 0;    // the end of the last part
};

std::vector<FileUse> UseOfFiles(const BundleIndex& index) {
  std::vector<FileUse> uses(static_cast<size_t>(index.num_files));
  for (const BundleTensor& tensor : index.tensors) {
    for (const BundlePart& part : tensor.parts) {
      FileUse& use = uses[static_cast<size_t>(part.file)];
      use.bytes += part.size_bytes;
      use.end = std::max(use.end, part.offset + part.size_bytes);
    }
  }
  return uses;
}

// The problem with a data file, or "" if it exists and has the required length.
absl::StatusOr<std::string> FaultOfFile(FileSystem& files, const std::string& name,
                                        const FileUse& use, bool is_exact) {
  const absl::StatusOr<FileInfo> info = files.Stat(name);
  if (absl::IsNotFound(info.status())) return absl::StrCat(name, " is missing");
  RETURN_IF_ERROR(info);
  if (info->size_bytes < use.end)
    return absl::StrCat(name, " has ", info->size_bytes, " bytes, but its tensors end at ",
                        use.end);
  if (is_exact && info->size_bytes != use.bytes)
    return absl::StrCat(name, " has ", info->size_bytes, " bytes, but its tensors have ",
                        use.bytes);
  return "";
}

// The bytes of a part from its beginning on.
class PartStream {
 public:
  PartStream(const RandomAccessFile& file, const BundlePart& part)
      : file_(file), offset_(part.offset) {}

  // Reads the next bytes into `out`, or only adds them to the checksum if `out` is null.
  // OutOfRange: the file ends before.
  absl::Status Take(uint64_t bytes, char* out) {
    while (bytes > 0) {
      const size_t piece = std::min<uint64_t>(bytes, kPiece);
      if (out == nullptr && scratch_.size() < piece) scratch_.resize(piece);
      char* const place = out == nullptr ? scratch_.data() : out;
      const absl::StatusOr<size_t> got = file_.ReadAt(offset_, absl::MakeSpan(place, piece));
      if (!got.ok()) return OfDevice(got.status());
      if (*got < piece) return absl::OutOfRangeError("the file ends");
      crc_ = ExtendCrc32c(crc_, absl::string_view(place, piece));
      offset_ += piece;
      bytes -= piece;
      if (out != nullptr) out += piece;
    }
    return absl::OkStatus();
  }

  void Skip(uint64_t bytes) { offset_ += bytes; }
  uint32_t masked_crc32c() const { return MaskCrc32c(crc_); }  // of the bytes that were taken

 private:
  const RandomAccessFile& file_;
  uint64_t offset_;
  uint32_t crc_ = 0;
  std::vector<char> scratch_;
};

// Calls `visit(first, count)`, which returns a Status, for each run of elements of the part that
// are consecutive in the tensor. The calls are in the order of the bytes.
template <typename Visit>
absl::Status ForEachRun(const Shape& shape, const BundlePart& part, const Visit& visit) {
  const int rank = shape.rank();
  int64_t inner = 1;  // the elements of one step along the run's axis
  int axis = rank - 1;
  for (; axis > 0 && part.box[static_cast<size_t>(axis)].length == shape.dim(axis); --axis)
    inner *= shape.dim(axis);
  if (rank == 0) return visit(0, 1);
  // The position in the box along the axes before the run's axis.
  std::vector<int64_t> at;
  for (int i = 0; i < axis; ++i) at.push_back(0);
  const BundleExtent& run = part.box[static_cast<size_t>(axis)];
  while (true) {
    int64_t first = 0;
    for (int i = 0; i < axis; ++i)
      first = first * shape.dim(i) + part.box[static_cast<size_t>(i)].start +
              at[static_cast<size_t>(i)];
    RETURN_IF_ERROR(visit((first * shape.dim(axis) + run.start) * inner, run.length * inner));
    int i = axis - 1;
    for (; i >= 0 && ++at[static_cast<size_t>(i)] == part.box[static_cast<size_t>(i)].length; --i)
      at[static_cast<size_t>(i)] = 0;
    if (i < 0) return absl::OkStatus();
  }
}

// The number of strings of a part, or limit + 1 if there are more than `limit`.
int64_t NumStrings(const BundlePart& part, int64_t limit) {
  if (std::any_of(part.box.begin(), part.box.end(),
                  [](BundleExtent extent) { return extent.length == 0; }))
    return 0;
  int64_t count = 1;
  for (const BundleExtent& extent : part.box) {
    if (extent.length > limit / count) return limit + 1;
    count *= extent.length;
  }
  return count;
}

// The format is: the lengths as varints; four bytes with the masked checksum of the lengths (each
// taken as a uint32, or as a uint64 if it needs one); then the strings. The checksum of the part
// covers the lengths in that form, these four bytes, and the strings. Errors are DataLoss and do
// not name a place.
absl::StatusOr<std::vector<std::string>> ParseStrings(absl::string_view bytes,
                                                      const BundlePart& part) {
  const auto damage = [](absl::string_view what) { return absl::DataLossError(what); };
  const int64_t count = NumStrings(part, static_cast<int64_t>(bytes.size()));
  ProtobufReader reader({"a tensor of strings", bytes}, bytes);
  std::vector<uint64_t> lengths;
  std::string checked;
  for (int64_t i = 0; i < count; ++i) {
    const absl::StatusOr<uint64_t> length = reader.Varint();
    if (!length.ok()) return damage("a string's length is cut off");
    lengths.push_back(*length);
    if (*length > UINT32_MAX)
      AppendLittleEndian(*length, checked);
    else
      AppendLittleEndian(static_cast<uint32_t>(*length), checked);
  }
  absl::string_view rest = reader.rest();
  const uint32_t crc = Crc32c(checked);
  if (rest.size() < sizeof crc || LoadLittleEndian<uint32_t>(rest) != MaskCrc32c(crc))
    return damage("the checksum of its lengths does not match");
  if (MaskCrc32c(ExtendCrc32c(crc, rest)) != part.masked_crc32c) return damage(kWrongChecksum);
  rest.remove_prefix(sizeof crc);
  std::vector<std::string> strings;
  for (const uint64_t length : lengths) {
    if (length > rest.size()) return damage("its strings are longer than its bytes");
    strings.emplace_back(rest.substr(0, length));
    rest.remove_prefix(length);
  }
  return strings;
}

}  // namespace

int64_t MaxRowsOfBundleSlice(DType dtype, const Shape& shape) {
  const int64_t row_bytes = std::max<int64_t>(1, shape.row_elements() * DTypeSize(dtype));
  return std::max<int64_t>(1, kMaxBundleSliceBytes / row_bytes);
}

std::string BundleDataFile(absl::string_view prefix, int file, int num_files) {
  return absl::StrFormat("%s.data-%05d-of-%05d", prefix, file, num_files);
}
std::string BundleIndexFile(absl::string_view prefix) { return absl::StrCat(prefix, ".index"); }

// ---- BundleDataWriter

BundleDataWriter::BundleDataWriter(FileSystem& files, std::string name, int file,
                                   std::unique_ptr<WritableFile> out)
    : files_(files), name_(std::move(name)), file_(file), out_(std::move(out)) {}

absl::StatusOr<std::unique_ptr<BundleDataWriter>> BundleDataWriter::Create(
    FileSystem& files, const std::string& prefix, int file, int num_files) {
  if (file < 0 || file >= num_files || num_files > kMaxBundleFiles)
    return absl::InvalidArgumentError(
        absl::StrCat("there is no data file ", file, " of ", num_files));
  std::string name = BundleDataFile(prefix, file, num_files);
  ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> out,
                   files.OpenForWrite(name, WriteMode::kCreateNew));
  return std::unique_ptr<BundleDataWriter>(
      new BundleDataWriter(files, std::move(name), file, std::move(out)));
}

absl::StatusOr<BundleSlice> BundleDataWriter::Append(absl::string_view tensor, DType dtype,
                                                     const Shape& shape, int64_t begin_row,
                                                     int64_t end_row, absl::string_view bytes) {
  RETURN_IF_ERROR(Start(tensor, dtype, shape, begin_row, end_row));
  if (bytes.size() != open_bytes_) {
    open_ = nullptr;
    return absl::InvalidArgumentError(absl::StrCat(name_, ": tensor \"", tensor, "\": rows [",
                                                   begin_row, ", ", end_row, ") do not have ",
                                                   bytes.size(), " bytes"));
  }
  RETURN_IF_ERROR(Add(bytes));
  return End();
}

absl::Status BundleDataWriter::Start(absl::string_view tensor, DType dtype, const Shape& shape,
                                     int64_t begin_row, int64_t end_row) {
  RETURN_IF_ERROR(state_);
  if (open_ != nullptr)
    return absl::FailedPreconditionError(
        absl::StrCat(name_, ": tensor \"", open_->tensor, "\": End was not called"));
  RETURN_IF_ERROR(CheckSlice(tensor, dtype, shape, begin_row, end_row));
  open_ = std::make_unique<BundleSlice>(
      BundleSlice{std::string(tensor), dtype, shape, begin_row, end_row, file_, offset_, 0, 0});
  open_bytes_ =
      static_cast<uint64_t>((end_row - begin_row) * shape.row_elements() * DTypeSize(dtype));
  crc_ = 0;
  return absl::OkStatus();
}

absl::Status BundleDataWriter::Add(absl::string_view bytes) {
  RETURN_IF_ERROR(state_);
  if (open_ == nullptr)
    return absl::FailedPreconditionError(absl::StrCat(name_, ": Add was called before Start"));
  if (bytes.size() > open_bytes_ - open_->size_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(name_, ": tensor \"", open_->tensor,
                                                   "\": more than its ", open_bytes_, " bytes"));
  }
  while (!bytes.empty()) {
    const absl::string_view piece = bytes.substr(0, kPiece);
    crc_ = ExtendCrc32c(crc_, piece);
    RETURN_IF_ERROR(state_ = out_->Append(piece));
    offset_ += piece.size();
    open_->size_bytes += piece.size();
    bytes.remove_prefix(piece.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<BundleSlice> BundleDataWriter::End() {
  RETURN_IF_ERROR(state_);
  if (open_ == nullptr)
    return absl::FailedPreconditionError(absl::StrCat(name_, ": End was called before Start"));
  if (open_->size_bytes != open_bytes_) {
    return absl::InvalidArgumentError(absl::StrCat(name_, ": tensor \"", open_->tensor,
                                                   "\": End after ", open_->size_bytes, " of its ",
                                                   open_bytes_, " bytes"));
  }
  open_->masked_crc32c = MaskCrc32c(crc_);
  return std::move(*std::exchange(open_, nullptr));
}

absl::Status BundleDataWriter::Finish() {
  RETURN_IF_ERROR(state_);
  if (open_ != nullptr)
    return absl::FailedPreconditionError(
        absl::StrCat(name_, ": tensor \"", open_->tensor, "\": End was not called"));
  RETURN_IF_ERROR(state_ = out_->Sync());
  RETURN_IF_ERROR(state_ = out_->Close());
  return state_ = files_.SyncDirectory(DirectoryOf(name_));
}

// ---- WriteBundleIndex

absl::Status WriteBundleIndex(FileSystem& files, const std::string& prefix, int num_files,
                              absl::Span<const BundleSlice> slices) {
  ASSIGN_OR_RETURN(const BundleIndex index, IndexOf(num_files, slices));
  const std::string bytes = EncodeBundleIndex(index);
  // Refuses to write an index that the reader would refuse.
  const absl::StatusOr<BundleIndex> read = DecodeBundleIndex(bytes);
  if (!read.ok())
    return absl::InvalidArgumentError(absl::StrCat(prefix, ": ", read.status().message()));
  const std::vector<FileUse> uses = UseOfFiles(index);
  for (int i = 0; i < num_files; ++i) {
    ASSIGN_OR_RETURN(const std::string fault,
                     FaultOfFile(files, BundleDataFile(prefix, i, num_files),
                                 uses[static_cast<size_t>(i)], /*is_exact=*/true));
    if (!fault.empty())
      return absl::FailedPreconditionError(
          absl::StrCat(fault, ": do all tasks that write the checkpoint see the same directory?"));
  }
  const std::string name = BundleIndexFile(prefix);
  const absl::Status there = files.Stat(name).status();
  if (there.ok())
    return absl::AlreadyExistsError(
        absl::StrCat(name, " exists: a checkpoint is never overwritten"));
  if (!absl::IsNotFound(there)) return there;
  return files.ReplaceFile(name, bytes);
}

// ---- BundleReader

absl::StatusOr<std::unique_ptr<BundleReader>> BundleReader::Open(FileSystem& files,
                                                                 const std::string& prefix) {
  const std::string name = BundleIndexFile(prefix);
  const absl::StatusOr<std::string> bytes = files.ReadFile(name);
  if (absl::IsNotFound(bytes.status()))
    return absl::NotFoundError(absl::StrCat("no checkpoint ", prefix, ": there is no ", name));
  if (!bytes.ok()) return OfDevice(bytes.status());
  absl::StatusOr<BundleIndex> index = DecodeBundleIndex(*bytes);
  if (!index.ok())
    return absl::Status(index.status().code(), absl::StrCat(name, ": ", index.status().message()));
  std::unique_ptr<BundleReader> reader(new BundleReader(prefix, *std::move(index)));
  RETURN_IF_ERROR(reader->OpenFiles(files));
  return reader;
}

absl::Status BundleReader::OpenFiles(FileSystem& files) {
  data_.resize(static_cast<size_t>(index_.num_files));
  const std::vector<FileUse> uses = UseOfFiles(index_);
  const bool is_exact = index_.is_own();
  for (size_t i = 0; i < uses.size(); ++i) {
    if (uses[i].bytes == 0 && !is_exact) continue;
    const std::string name = BundleDataFile(prefix_, static_cast<int>(i), index_.num_files);
    const absl::StatusOr<std::string> fault = FaultOfFile(files, name, uses[i], is_exact);
    if (!fault.ok()) return OfDevice(fault.status());
    if (!fault->empty()) return absl::DataLossError(*fault);
    absl::StatusOr<std::unique_ptr<RandomAccessFile>> file = files.OpenRandomAccess(name);
    if (!file.ok()) return OfDevice(file.status());
    data_[i] = *std::move(file);
  }
  return absl::OkStatus();
}

absl::StatusOr<const BundleTensor*> BundleReader::Find(absl::string_view name) const {
  const BundleTensor* const tensor = index_.Find(name);
  if (tensor == nullptr)
    return absl::NotFoundError(absl::StrCat(prefix_, " has no tensor \"", name, "\""));
  return tensor;
}

absl::Status BundleReader::Damage(const BundleTensor& tensor, const BundlePart& part,
                                  absl::string_view what) const {
  return absl::DataLossError(absl::StrCat(BundleDataFile(prefix_, part.file, index_.num_files),
                                          ": offset ", part.offset, ": tensor \"", tensor.name,
                                          "\", ", ShowBundleBox(part), ": ", what));
}

absl::Status BundleReader::ReadPart(const BundleTensor& tensor, const BundlePart& part,
                                    int64_t begin, int64_t end, Checksums checksums,
                                    char* out) const {
  if (part.size_bytes == 0) return absl::OkStatus();
  const bool verifies = checksums == Checksums::kToVerify;
  const int64_t size = DTypeSize(*tensor.dtype), row = tensor.shape.row_elements();
  PartStream stream(*data_[static_cast<size_t>(part.file)], part);
  const auto take = [&](int64_t elements, char* to) {
    if (to != nullptr || verifies) return stream.Take(static_cast<uint64_t>(elements * size), to);
    stream.Skip(static_cast<uint64_t>(elements * size));
    return absl::OkStatus();
  };
  const absl::Status status = ForEachRun(tensor.shape, part, [&](int64_t first, int64_t count) {
    const int64_t from = std::clamp(begin * row, first, first + count),
                  to = std::clamp(end * row, first, first + count);
    RETURN_IF_ERROR(take(from - first, nullptr));
    if (from < to) RETURN_IF_ERROR(take(to - from, out + (from - begin * row) * size));
    return take(first + count - to, nullptr);
  });
  if (absl::IsOutOfRange(status)) return Damage(tensor, part, "the file ends within these bytes");
  RETURN_IF_ERROR(status);
  if (verifies && stream.masked_crc32c() != part.masked_crc32c)
    return Damage(tensor, part, kWrongChecksum);
  return absl::OkStatus();
}

absl::Status BundleReader::ReadRows(absl::string_view name, int64_t begin, int64_t end,
                                    absl::Span<char> out) const {
  return Read(name, begin, end, Checksums::kToVerify, out);
}

absl::Status BundleReader::ReadVerifiedRows(absl::string_view name, int64_t begin, int64_t end,
                                            absl::Span<char> out) const {
  return Read(name, begin, end, Checksums::kVerified, out);
}

absl::Status BundleReader::Read(absl::string_view name, int64_t begin, int64_t end,
                                Checksums checksums, absl::Span<char> out) const {
  ASSIGN_OR_RETURN(const BundleTensor* const tensor, Find(name));
  if (!tensor->unreadable.empty())
    return absl::InvalidArgumentError(
        absl::StrCat(prefix_, ": tensor \"", name, "\": ", tensor->unreadable));
  const Shape& shape = tensor->shape;
  if (begin < 0 || end < begin || end > shape.rows()) {
    return absl::InvalidArgumentError(absl::StrCat(prefix_, ": tensor \"", name, "\": rows [",
                                                   begin, ", ", end, ") of ", shape.ToString()));
  }
  const int64_t bytes = (end - begin) * shape.row_elements() * DTypeSize(*tensor->dtype);
  if (static_cast<int64_t>(out.size()) != bytes) {
    return absl::InvalidArgumentError(absl::StrCat(prefix_, ": tensor \"", name,
                                                   "\": the rows have ", bytes,
                                                   " bytes, the buffer has ", out.size()));
  }
  if (begin == end) return absl::OkStatus();
  for (const BundlePart& part : tensor->parts) {
    const BundleExtent rows = shape.rank() == 0 ? BundleExtent{0, 1} : part.box[0];
    if (rows.start < end && begin < rows.start + rows.length)
      RETURN_IF_ERROR(ReadPart(*tensor, part, begin, end, checksums, out.data()));
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> BundleReader::ReadTensor(absl::string_view name) const {
  ASSIGN_OR_RETURN(const BundleTensor* const tensor, Find(name));
  if (!tensor->unreadable.empty())
    return absl::InvalidArgumentError(
        absl::StrCat(prefix_, ": tensor \"", name, "\": ", tensor->unreadable));
  ASSIGN_OR_RETURN(Tensor value, Tensor::Uninitialized(*tensor->dtype, tensor->shape));
  const auto out =
      absl::MakeSpan(value.fresh_data<char>(), static_cast<size_t>(value.size_bytes()));
  RETURN_IF_ERROR(ReadRows(name, 0, tensor->shape.rows(), out));
  return value;
}

absl::Status BundleReader::Verify(absl::string_view name) const {
  ASSIGN_OR_RETURN(const BundleTensor* const tensor, Find(name));
  if (tensor->type == "variant" || tensor->type == "resource") {
    return absl::InvalidArgumentError(absl::StrCat(prefix_, ": tensor \"", name,
                                                   "\": it is not known here which bytes the "
                                                   "checksum of a ",
                                                   tensor->type, " covers"));
  }
  for (const BundlePart& part : tensor->parts)
    RETURN_IF_ERROR(tensor->type == "string" ? ReadStringPart(*tensor, part).status()
                                             : VerifyBytes(*tensor, part));
  return absl::OkStatus();
}

absl::Status BundleReader::VerifyBytes(const BundleTensor& tensor, const BundlePart& part) const {
  if (part.size_bytes == 0) return absl::OkStatus();
  PartStream stream(*data_[static_cast<size_t>(part.file)], part);
  const absl::Status status = stream.Take(part.size_bytes, nullptr);
  if (absl::IsOutOfRange(status)) return Damage(tensor, part, "the file ends within these bytes");
  RETURN_IF_ERROR(status);
  if (stream.masked_crc32c() != part.masked_crc32c) return Damage(tensor, part, kWrongChecksum);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> BundleReader::ReadStrings(absl::string_view name) const {
  ASSIGN_OR_RETURN(const BundleTensor* const tensor, Find(name));
  if (tensor->type != "string" || tensor->is_sliced) {
    return absl::InvalidArgumentError(
        absl::StrCat(prefix_, ": tensor \"", name, "\" is sliced, or is not a tensor of strings"));
  }
  return ReadStringPart(*tensor, tensor->parts[0]);
}

absl::StatusOr<std::vector<std::string>> BundleReader::ReadStringPart(
    const BundleTensor& tensor, const BundlePart& part) const {
  std::string bytes(part.size_bytes, '\0');
  if (!bytes.empty()) {  // an empty part may have no file
    const absl::Status status =
        PartStream(*data_[static_cast<size_t>(part.file)], part).Take(bytes.size(), &bytes[0]);
    if (absl::IsOutOfRange(status)) return Damage(tensor, part, "the file ends within these bytes");
    RETURN_IF_ERROR(status);
  }
  absl::StatusOr<std::vector<std::string>> strings = ParseStrings(bytes, part);
  if (!strings.ok()) return Damage(tensor, part, strings.status().message());
  return strings;
}

}  // namespace divvy
