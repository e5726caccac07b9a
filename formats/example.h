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
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace divvy {

// The values of a feature. std::monostate: the feature is present but has no type. Bytes borrow the
// record's memory.
using ExampleValues = std::variant<std::monostate, std::vector<absl::string_view>,
                                   std::vector<float>, std::vector<int64_t>>;

// The features of a record, by name. Names and bytes borrow the record's memory. Pure. As in
// protobuf, the last of repeated entries wins, and lists of one type are concatenated. DataLoss,
// with the offset in the record: the record is not in protobuf's wire format, or is truncated.
absl::StatusOr<std::map<absl::string_view, ExampleValues>> ReadExample(absl::string_view record);

// A feature of which every record has the same number of values.
struct ExampleColumn {
  std::string name;
  enum class Type { kFloat, kInt64, kBytes } type = Type::kFloat;
  size_t count = 1;
};

// Reads the same features of many records into memory of the caller. Not thread-safe.
class ExampleRowReader {
 public:
  // REQUIRES: the names are unique.
  explicit ExampleRowReader(std::vector<ExampleColumn> columns);
  // Writes the values of column i to to[i], as float, int64_t, or absl::string_view that borrows
  // the record's memory. False: the record is bad, or a feature is not as its column says, or it is
  // encoded in an unusual way (values that are not packed, or in several parts): ReadExample tells.
  // The memory is unspecified then. REQUIRES: to[i] has room for the values of column i, at any
  // alignment.
  bool Read(absl::string_view record, absl::Span<char* const> to);

 private:
  bool ReadFeatures(absl::string_view features, absl::Span<char* const> to);
  bool ReadEntry(absl::string_view entry, size_t place, absl::Span<char* const> to);
  // The column of the entry at `place` of a record. nullopt: it is none.
  std::optional<size_t> ColumnOf(absl::string_view name, size_t place);

  const std::vector<ExampleColumn> columns_;
  // The column of each place in the last record: most records have the same order.
  std::vector<size_t> last_;
  std::vector<bool> seen_;  // of the columns, in this record
};

// The inverse of ReadExample: the bytes that TensorFlow writes. Features are in the order of their
// names, and numbers are packed. Pure.
std::string WriteExample(const std::map<absl::string_view, ExampleValues>& features);

}  // namespace divvy

#endif  // DIVVY_FORMATS_EXAMPLE_H_
