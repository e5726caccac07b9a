// The index of a tensor bundle (TensorFlow's checkpoint). It says which tensors there are, and
// which bytes of which data file hold which part of them. The file is a sorted table
// (formats/sorted_table.h). Its values are messages in protobuf's wire format:
//
//   key ""          BundleHeaderProto {
//                     num_shards = 1;
//                     endianness = 2 (0: little);
//                     VersionDef { producer = 1; min_consumer = 2; } version = 3;
//                   }
//   key name        BundleEntryProto {
//                     dtype = 1;
//                     TensorShapeProto { Dim { size = 1; } dim = 2; } shape = 2;
//                     shard_id = 3;
//                     offset = 4;
//                     size = 5;
//                     fixed32 crc32c = 6 (masked);
//                     repeated TensorSliceProto { Extent { start = 1; length = 2; } extent = 1; }
//                         slices = 7;
//                   }
//   key (0, name,   a BundleEntryProto with the shape of the slice, which is a part of the tensor
//   the extents     `name`. The entry of `name` itself lists the slices and has no bytes. This key
//   of a slice)     is in TensorFlow's ordered code.
//
// Here an index is a value. The files are read and written by formats/tensor_bundle.h.
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

// The prefix of the names under which Divvy stores its own data beside the variables. A bundle with
// such a tensor was written by Divvy.
constexpr absl::string_view kBundleOwnNames = "_divvy/";

constexpr int kMaxBundleFiles = 100'000;  // their names have five digits

// A range on one axis: [start, start + length).
struct BundleExtent {
  int64_t start = 0;
  int64_t length = 0;
  friend bool operator==(BundleExtent a, BundleExtent b) {
    return a.start == b.start && a.length == b.length;
  }
};

// A box of a tensor, and the place of its bytes. Elements are row-major and little-endian.
struct BundlePart {
  std::vector<BundleExtent> box;  // one for each axis
  int file = 0;
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
  uint32_t masked_crc32c = 0;
};

struct BundleTensor {
  std::string name;
  // TensorFlow's name of the type, such as "float32" or "uint16"; "type 99" for a number that has
  // no name here.
  std::string type;
  // nullopt: Divvy does not have this type.
  std::optional<DType> dtype;
  // The shape of the whole tensor. Rank 0 if it has too many axes, which `unreadable` then says.
  Shape shape;
  // The reason why its elements cannot be read, or "" if they can.
  std::string unreadable = {};
  std::vector<BundlePart> parts;

  bool is_sliced = false;  // its parts have keys of their own
};

struct BundleIndex {
  int num_files = 0;
  std::vector<BundleTensor> tensors;  // by name, bytewise

  bool is_own() const;                                     // written by Divvy
  const BundleTensor* Find(absl::string_view name) const;  // nullptr: no such tensor
};

// Decodes an index. Pure; any bytes may be given. In the result the parts of each readable tensor
// tile it and have as many bytes as their elements need, and no two parts share a byte of a file.
// For an index written by EncodeBundleIndex every changed bit is detected.
//
// DataLoss: the bytes are damaged or not an index; use another checkpoint. Unimplemented: the index
// is of a big-endian machine or of a later version of the format.
absl::StatusOr<BundleIndex> DecodeBundleIndex(absl::string_view bytes);

// The inverse of DecodeBundleIndex. REQUIRES: the tensors are readable, sorted by name and unique;
// CheckBundleTensor is OK for each.
std::string EncodeBundleIndex(const BundleIndex& index);

// DataLoss: the parts do not tile the tensor, or their sizes do not fit their elements.
absl::Status CheckBundleTensor(const BundleTensor& tensor);

// The box for messages: "[0, 4) [0, 8)", or "all" for a scalar.
std::string ShowBundleBox(const BundlePart& part);

}  // namespace divvy

#endif  // DIVVY_FORMATS_BUNDLE_INDEX_H_
