// tf.train.Example in protobuf's wire format, read without protobuf:
//
//   Example { Features features = 1; }                  Features { map<string, Feature> feature =
//                                                       1; }   (an entry: key = 1, value = 2)
//   Feature { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list
//   = 3; } } BytesList { repeated bytes value = 1; }             FloatList { repeated float value =
//   1; }          Int64List { repeated int64 value = 1; }
//
// Numbers may be packed or not. Fields that are not named here are passed over, as protobuf does.
#ifndef DIVVY_FORMATS_EXAMPLE_H_
#define DIVVY_FORMATS_EXAMPLE_H_

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace divvy {

// The values of a feature; std::monostate: it is there, but says nothing of its type. Bytes borrow
// the record's memory.
using ExampleValues = std::variant<std::monostate, std::vector<absl::string_view>,
                                   std::vector<float>, std::vector<int64_t>>;

// The features of a record, by name. Names and bytes borrow its memory. Pure. Of what stands twice
// the last wins, and lists of one type are joined, as in protobuf. DataLoss, with the offset in the
// record: not the wire format, or cut off.
absl::StatusOr<std::map<absl::string_view, ExampleValues>> ReadExample(absl::string_view record);

// The inverse: features in the order of their names, numbers packed (the bytes that TensorFlow
// writes).
std::string WriteExample(const std::map<absl::string_view, ExampleValues>& features);

}  // namespace divvy

#endif  // DIVVY_FORMATS_EXAMPLE_H_
