// tf.train.Example in protobuf's wire format, read without protobuf:
//
//   Example { Features features = 1; }
//   Features { map<string, Feature> feature = 1; }    (an entry: key = 1, value = 2)
//   Feature {
//     oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; }
//   }
//   BytesList { repeated bytes value = 1; }
//   FloatList { repeated float value = 1; }
//   Int64List { repeated int64 value = 1; }
//
// Numbers may be packed or not. Other fields are skipped, as protobuf does.
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

// The values of a feature. std::monostate: the feature is present but has no type. Bytes borrow the
// record's memory.
using ExampleValues = std::variant<std::monostate, std::vector<absl::string_view>,
                                   std::vector<float>, std::vector<int64_t>>;

// The features of a record, by name. Names and bytes borrow the record's memory. Pure. As in
// protobuf, the last of repeated entries wins, and lists of one type are concatenated. DataLoss,
// with the offset in the record: the record is not in protobuf's wire format, or is truncated.
absl::StatusOr<std::map<absl::string_view, ExampleValues>> ReadExample(absl::string_view record);

// The inverse of ReadExample: the bytes that TensorFlow writes. Features are in the order of their
// names, and numbers are packed. Pure.
std::string WriteExample(const std::map<absl::string_view, ExampleValues>& features);

}  // namespace divvy

#endif  // DIVVY_FORMATS_EXAMPLE_H_
