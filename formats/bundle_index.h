// The index of a tensor bundle, TensorFlow's checkpoint: which tensors there are, and which bytes
// of which data file hold which part of them. A sorted table (formats/sorted_table.h); its values
// are messages in protobuf's wire format:
//
//   key ""                     BundleHeaderProto { num_shards = 1; endianness = 2 (0: little);
//   VersionDef { producer = 1; min_consumer = 2; } version = 3; } key name BundleEntryProto { dtype
//   = 1; TensorShapeProto { Dim { size = 1; } dim = 2; } shape = 2; shard_id = 3; offset = 4; size
//   = 5;
//                                fixed32 crc32c = 6 (masked); repeated TensorSliceProto { Extent {
//                                start = 1; length = 2; } extent = 1; } slices = 7; }
//   key (0, name, the extents  an entry with the shape of the slice: a part of the tensor `name`,
//   whose own entry lists the slices and has no bytes. The key is
//     of a slice)              in TensorFlow's ordered code
//
// Here an index is a value; files are formats/tensor_bundle.h's business.
#ifndef DIVVY_FORMATS_BUNDLE_INDEX_H_
#define DIVVY_FORMATS_BUNDLE_INDEX_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace divvy {

// What Divvy itself keeps in a bundle beside the variables has names that begin so. A bundle with
// such a tensor was written by Divvy.
constexpr absl::string_view kBundleOwnNames = "_divvy/";

constexpr int kMaxBundleFiles = 100'000;  // their names have five digits

// On one axis: [start, start + length).
struct BundleExtent {
  int64_t start = 0;
  int64_t length = 0;
  friend bool operator==(BundleExtent a, BundleExtent b) {
    return a.start == b.start && a.length == b.length;
  }
};

// A box of a tensor and the bytes that hold it, row-major and little endian.
struct BundlePart {
  std::vector<BundleExtent> box;  // one for each axis
  int file = 0;
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
  uint32_t masked_crc32c = 0;
};

struct BundleTensor {
  std::string name;
  // TensorFlow's name: "float32", "uint16"; "type 99" of one that has none here
  std::string type;
  // nullopt: one that Divvy lacks
  std::optional<DType> dtype;
  // Of the whole tensor; rank 0 where `unreadable` says that it has too many axes.
  Shape shape;
  // Why its elements cannot be read, "" if they can.
  std::string unreadable = {};
  std::vector<BundlePart> parts;

  bool is_sliced = false;  // its parts stand under keys of their own
};

struct BundleIndex {
  int num_files = 0;
  std::vector<BundleTensor> tensors;  // by name, bytewise

  bool is_own() const;                                     // written by Divvy
  const BundleTensor* Find(absl::string_view name) const;  // nullptr: no such tensor
};

// Pure and total. In what it returns the parts of each readable tensor tile it and have as many
// bytes as their elements need, and no two parts share a byte of a file. The bytes of an index of
// our own are found damaged if any bit of them differs from what EncodeBundleIndex has written.
// DataLoss: damaged, or not an index. Unimplemented: of a big-endian machine, or of a later version
// of the format.
absl::StatusOr<BundleIndex> DecodeBundleIndex(absl::string_view bytes);

// The inverse. REQUIRES: the tensors are readable, sorted by name and different; CheckBundleTensor
// is OK for each.
std::string EncodeBundleIndex(const BundleIndex& index);

// DataLoss: the parts do not tile the tensor, or have another number of bytes than their elements.
absl::Status CheckBundleTensor(const BundleTensor& tensor);

// "[0, 4) [0, 8)"; of a scalar "all".
std::string ShowBundleBox(const BundlePart& part);

}  // namespace divvy

#endif  // DIVVY_FORMATS_BUNDLE_INDEX_H_
