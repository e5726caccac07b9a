// A tensor bundle: TensorFlow's checkpoint, and ours. Files beside each other:
//
//   PREFIX.data-00000-of-00003 ...   bytes of tensors, nothing else (BundleDataWriter)
//   PREFIX.index                     what they are (formats/bundle_index.h); its appearance commits
//                                    the checkpoint (WriteBundleIndex)
//
// Several processes write, each its own data file. A tensor may be cut along axis 0 into slices
// that stand in any of the files; who reads takes the rows that it wants, whatever the cut was
// (BundleReader).
//
// What a crash leaves. Finish has synced a data file before its slices are told to anyone, and the
// index is renamed into its place when it is whole and synced: either there is no PREFIX.index, and
// what is there of the checkpoint counts for nothing, or it is there and all of the checkpoint is.
//
// A name is used once: no file of a bundle is ever written again. Files are read by TensorFlow
// (tf.train.load_checkpoint) and this reads TensorFlow's.
#ifndef DIVVY_FORMATS_TENSOR_BUNDLE_H_
#define DIVVY_FORMATS_TENSOR_BUNDLE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/file_system.h"
#include "formats/bundle_index.h"
#include "tensor/tensor.h"

namespace divvy {

// A reader checks a slice as a whole: small slices bound what it reads in vain for a few rows.
constexpr int64_t kMaxBundleSliceBytes = int64_t{64} << 20;

// How many rows a slice may have: as many as fit kMaxBundleSliceBytes, at least one.
int64_t MaxRowsOfBundleSlice(DType dtype, const Shape& shape);

// Rows of a tensor, and where they are.
struct BundleSlice {
  std::string tensor;
  DType dtype = DType::kFloat32;
  Shape shape;                         // of the whole tensor
  int64_t begin_row = 0, end_row = 0;  // [begin, end) of axis 0; a scalar is one row
  int file = 0;                        // the data file's number
  uint64_t offset = 0, size_bytes = 0;
  uint32_t masked_crc32c = 0;  // of the bytes (base/crc32c.h)
};

// "PREFIX.data-00001-of-00003" and "PREFIX.index".
std::string BundleDataFile(absl::string_view prefix, int file, int num_files);
std::string BundleIndexFile(absl::string_view prefix);

// Writes one data file. Not thread-safe. Blocks.
//
//   ASSIGN_OR_RETURN(const auto file, BundleDataWriter::Create(files, "/ckpt/ckpt-3-7", 1, 3));
//   ASSIGN_OR_RETURN(slices.emplace_back(), file->Append("table", DType::kFloat32, {14, 8}, 4, 8,
//   bytes)); RETURN_IF_ERROR(file->Finish());
//
// After an error of the file system every later call returns that error: give the file up, and the
// checkpoint with it. A file without Finish is left to whoever clears the directory.
class BundleDataWriter {
 public:
  // AlreadyExists: the file is there. InvalidArgument: not 0 <= file < num_files <= 100,000.
  // Others: FileSystem::OpenForWrite.
  static absl::StatusOr<std::unique_ptr<BundleDataWriter>> Create(FileSystem& files,
                                                                  const std::string& prefix,
                                                                  int file, int num_files);

  // Writes rows [begin, end) of a tensor of this whole shape. Returns where they stand, their
  // checksum taken from memory on the way. InvalidArgument: rows that the shape has not, or another
  // number of bytes than they need; a name that is empty or begins with a NUL; a type of no fixed
  // size.
  absl::StatusOr<BundleSlice> Append(absl::string_view tensor, DType dtype, const Shape& shape,
                                     int64_t begin_row, int64_t end_row, absl::string_view bytes);

  // The same in pieces: Start, any number of Adds, End. FailedPrecondition: called in another
  // order.
  absl::Status Start(absl::string_view tensor, DType dtype, const Shape& shape, int64_t begin_row,
                     int64_t end_row);
  absl::Status Add(absl::string_view bytes);
  absl::StatusOr<BundleSlice> End();

  // Returns when the file and its name will survive a crash. Its slices may then be told to the
  // writer of the index.
  absl::Status Finish();

  uint64_t size_bytes() const { return offset_; }

 private:
  BundleDataWriter(FileSystem& files, std::string name, int file,
                   std::unique_ptr<WritableFile> out);

  FileSystem& files_;
  const std::string name_;
  const int file_;
  const std::unique_ptr<WritableFile> out_;
  absl::Status state_;  // the first error of the file system
  uint64_t offset_ = 0;
  std::unique_ptr<BundleSlice> open_;  // between Start and End
  uint64_t open_bytes_ = 0;            // that the open slice is to have
  uint32_t crc_ = 0;                   // of the open slice so far
};

// Commits: writes the index of data files that are finished. Slices in any order; those of a tensor
// must tile it, and those of a file must be all that it holds. Slices of no rows are left out.
// Blocks; returns when the checkpoint will survive a crash.
//   AlreadyExists       a checkpoint of this name is there; it stands
//   InvalidArgument     the slices do not fit together: which tensor, and where
//   FailedPrecondition  a data file is missing or has another length than its slices: not all who
//   write see the same directory others              FileSystem::ReplaceFile. If it failed after
//   the rename the index may be there or not: look, or use another name.
absl::Status WriteBundleIndex(FileSystem& files, const std::string& prefix, int num_files,
                              absl::Span<const BundleSlice> slices);

// Reads. Thread-safe. Blocks. Memory: the index, a buffer, and what the caller asks for, which is
// no more than the files have. Errors of all calls: NotFound, no such checkpoint or no such tensor.
// DataLoss: damaged; the message names the file and the place: take another checkpoint.
// Unavailable: the device failed (EIO), which says nothing of the bytes: try again. Unimplemented:
// see DecodeBundleIndex. Others: the file system's.
class BundleReader {
 public:
  // Reads the index and looks that the data files are there and long enough (of a bundle of our
  // own: exactly as long as they should be).
  static absl::StatusOr<std::unique_ptr<BundleReader>> Open(FileSystem& files,
                                                            const std::string& prefix);

  const std::string& prefix() const { return prefix_; }
  const BundleIndex& index() const { return index_; }

  // Rows [begin, end) of axis 0; a scalar is one row. Reads the slices that have some of them, and
  // each slice's checksum is verified: on an error `out` holds anything. InvalidArgument: a tensor
  // that is not readable, rows that it has not, or `out` is not as large as they are.
  absl::Status ReadRows(absl::string_view name, int64_t begin, int64_t end,
                        absl::Span<char> out) const;
  // The same without a look at the checksums, and no byte is read but those of the rows: for a
  // tensor that Verify has been OK for, part by part.
  absl::Status ReadVerifiedRows(absl::string_view name, int64_t begin, int64_t end,
                                absl::Span<char> out) const;
  // All of it. InvalidArgument: not readable, or complex. ResourceExhausted: no memory.
  absl::StatusOr<Tensor> ReadTensor(absl::string_view name) const;
  // The elements of a tensor of strings, row-major. InvalidArgument: it has other elements, or is
  // sliced.
  absl::StatusOr<std::vector<std::string>> ReadStrings(absl::string_view name) const;

  // Reads all bytes of a tensor, keeps none, and compares the checksums; also of types that Divvy
  // lacks. InvalidArgument: of "variant" and "resource", whose bytes are TensorFlow's own affair.
  absl::Status Verify(absl::string_view name) const;

 private:
  BundleReader(std::string prefix, BundleIndex index)
      : prefix_(std::move(prefix)), index_(std::move(index)) {}
  absl::Status OpenFiles(FileSystem& files);
  absl::StatusOr<const BundleTensor*> Find(absl::string_view name) const;
  enum class Checksums { kVerified, kToVerify };
  absl::Status Read(absl::string_view name, int64_t begin, int64_t end, Checksums checksums,
                    absl::Span<char> out) const;
  absl::Status ReadPart(const BundleTensor& tensor, const BundlePart& part, int64_t begin,
                        int64_t end, Checksums checksums, char* out) const;
  absl::Status VerifyBytes(const BundleTensor& tensor, const BundlePart& part) const;
  absl::StatusOr<std::vector<std::string>> ReadStringPart(const BundleTensor& tensor,
                                                          const BundlePart& part) const;
  absl::Status Damage(const BundleTensor& tensor, const BundlePart& part,
                      absl::string_view what) const;

  const std::string prefix_;
  const BundleIndex index_;
  std::vector<std::unique_ptr<RandomAccessFile>> data_;  // by number; null where no part needs it
};

}  // namespace divvy

#endif  // DIVVY_FORMATS_TENSOR_BUNDLE_H_
