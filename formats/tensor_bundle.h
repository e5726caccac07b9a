// A tensor bundle: TensorFlow's checkpoint format, which is also Divvy's. These files are in one
// directory:
//
//   PREFIX.data-00000-of-00003 ...   the bytes of tensors, nothing else (BundleDataWriter)
//   PREFIX.index                     describes them (formats/bundle_index.h); its appearance
//                                    commits the checkpoint (WriteBundleIndex)
//
// Several processes write, each its own data file. A tensor may be cut along axis 0 into slices in
// any of the files. A reader asks for rows, and need not know the cut (BundleReader).
//
// After a crash. Finish syncs a data file before anyone learns of its slices. The index is written
// and synced under another name and then renamed. So either there is no PREFIX.index, and the data
// files count for nothing, or there is one, and the checkpoint is complete.
//
// A name is used once: no file of a bundle is ever overwritten. TensorFlow reads these files
// (tf.train.load_checkpoint), and this reader reads TensorFlow's.
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

// The limit on the size of a slice. A reader must read a whole slice to verify its checksum, so
// small slices limit the bytes that it reads in vain for a few rows.
constexpr int64_t kMaxBundleSliceBytes = int64_t{64} << 20;

// The most rows that a slice may have: as many as fit into kMaxBundleSliceBytes, at least one.
int64_t MaxRowsOfBundleSlice(DType dtype, const Shape& shape);

// Some rows of a tensor, and the place of their bytes.
struct BundleSlice {
  std::string tensor;
  DType dtype = DType::kFloat32;
  Shape shape;                         // of the whole tensor
  int64_t begin_row = 0, end_row = 0;  // [begin, end) of axis 0; a scalar is one row
  int file = 0;                        // the data file's number
  uint64_t offset = 0, size_bytes = 0;
  uint32_t masked_crc32c = 0;  // of the bytes (base/crc32c.h)
};

// The names of a bundle's files: "PREFIX.data-00001-of-00003" and "PREFIX.index".
std::string BundleDataFile(absl::string_view prefix, int file, int num_files);
std::string BundleIndexFile(absl::string_view prefix);

// Writes one data file. Not thread-safe. Blocks.
//
//   ASSIGN_OR_RETURN(const auto file, BundleDataWriter::Create(files, "/ckpt/ckpt-3-7", 1, 3));
//   ASSIGN_OR_RETURN(slices.emplace_back(),
//                    file->Append("table", DType::kFloat32, {14, 8}, 4, 8, bytes));
//   RETURN_IF_ERROR(file->Finish());
//
// After an error of the file system every later call returns that error: abandon the file and the
// checkpoint. A file without Finish stays until someone clears the directory.
class BundleDataWriter {
 public:
  // Creates the file with number `file` of `num_files`. AlreadyExists: it exists already.
  // InvalidArgument: 0 <= file < num_files <= 100,000 does not hold. Otherwise the error of
  // FileSystem::OpenForWrite.
  static absl::StatusOr<std::unique_ptr<BundleDataWriter>> Create(FileSystem& files,
                                                                  const std::string& prefix,
                                                                  int file, int num_files);

  // Writes rows [begin_row, end_row) of a tensor. `shape` is that of the whole tensor. Returns the
  // place of the rows; the checksum is computed from `bytes` while they are written.
  // InvalidArgument: the shape does not have these rows, `bytes` has another size than they need,
  // the name is empty or begins with a NUL, or the type has no fixed size.
  absl::StatusOr<BundleSlice> Append(absl::string_view tensor, DType dtype, const Shape& shape,
                                     int64_t begin_row, int64_t end_row, absl::string_view bytes);

  // As Append, in pieces: Start, any number of Adds, End. FailedPrecondition: the calls come in
  // another order.
  absl::Status Start(absl::string_view tensor, DType dtype, const Shape& shape, int64_t begin_row,
                     int64_t end_row);
  absl::Status Add(absl::string_view bytes);
  absl::StatusOr<BundleSlice> End();

  // Returns when the file and its name will survive a crash. Only then may its slices be passed to
  // the writer of the index.
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
  uint64_t open_bytes_ = 0;            // the size of the open slice when complete
  uint32_t crc_ = 0;                   // of the open slice so far
};

// Commits a checkpoint: writes the index of data files that are finished. `slices` may be in any
// order. The slices of a tensor must tile it, and the slices of a file must be its whole content.
// Slices of zero rows are omitted. Blocks; returns when the checkpoint will survive a crash.
// Errors:
//
//   AlreadyExists       a checkpoint of this name exists; it is not changed
//   InvalidArgument     the slices do not fit together; the message says which tensor, and where
//   FailedPrecondition  a data file is missing, or its length does not fit its slices: the writers
//                       do not all see the same directory
//   others              those of FileSystem::ReplaceFile; if it failed after the rename the index
//                       may exist or not: check, or use another name
absl::Status WriteBundleIndex(FileSystem& files, const std::string& prefix, int num_files,
                              absl::Span<const BundleSlice> slices);

// Reads a checkpoint. Thread-safe. Blocks. Uses memory for the index, a buffer, and the results,
// which are never larger than the files. Errors of all calls:
//
//   NotFound       there is no such checkpoint or no such tensor
//   DataLoss       damaged; the message names the file and the place: use another checkpoint
//   Unavailable    the device failed (EIO), which says nothing about the bytes: retry
//   Unimplemented  see DecodeBundleIndex
//   others         those of the file system
class BundleReader {
 public:
  // Reads the index, and checks that the data files exist and are long enough. In a bundle that
  // Divvy wrote they must have exactly the right length.
  static absl::StatusOr<std::unique_ptr<BundleReader>> Open(FileSystem& files,
                                                            const std::string& prefix);

  const std::string& prefix() const { return prefix_; }
  const BundleIndex& index() const { return index_; }

  // Reads rows [begin, end) of axis 0 into `out`; a scalar is one row. Reads every slice that has
  // some of the rows, and verifies its checksum. After an error the contents of `out` are
  // unspecified. InvalidArgument: the tensor is not readable, does not have these rows, or `out`
  // has another size than they.
  absl::Status ReadRows(absl::string_view name, int64_t begin, int64_t end,
                        absl::Span<char> out) const;
  // As ReadRows without verifying checksums; reads only the bytes of the rows. For reading a tensor
  // part by part after Verify was OK for it.
  absl::Status ReadVerifiedRows(absl::string_view name, int64_t begin, int64_t end,
                                absl::Span<char> out) const;
  // Reads a whole tensor, into new memory on the CPU. InvalidArgument: it is not readable, or
  // complex. ResourceExhausted: no memory.
  absl::StatusOr<Tensor> ReadTensor(absl::string_view name) const;
  // Reads the elements of a tensor of strings, row-major. InvalidArgument: it has other elements,
  // or is sliced.
  absl::StatusOr<std::vector<std::string>> ReadStrings(absl::string_view name) const;

  // Reads all bytes of a tensor without keeping them, and verifies the checksums. Also works for
  // types that Divvy does not have. InvalidArgument: the types "variant" and "resource", whose
  // bytes only TensorFlow understands.
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
