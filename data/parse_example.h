// Parsing of tf.train.Example.
#ifndef DIVVY_DATA_PARSE_EXAMPLE_H_
#define DIVVY_DATA_PARSE_EXAMPLE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensor/nest.h"

namespace divvy {

// A feature of an Example. The dtype must be that of the feature's list: kInt64, kFloat32 or
// kString.
struct ExampleFeature {
  std::string name;
  DType dtype = DType::kFloat32;
  // {}: one value. The first dimension may be -1: any number of values.
  Shape shape = {};
};

// Parses a tf.train.Example and returns a dict of the requested features. A feature becomes a
// tensor of its shape; a kString feature becomes a text (shape {}) or a list of texts (shape {n} or
// {-1}). Other features are ignored. Pure; thread-safe.
//
//   Dataset::TfRecord("clicks-*", [](absl::string_view record) {
//     return ParseExample(record, {{"label", DType::kFloat32}, {"ids", DType::kInt64, {-1}}});
//   })
//
// InvalidArgument, with the feature's name: it is missing, or has another type or another number of
// values; or the request is impossible (another dtype, texts of more than one dimension, -1 in
// another dimension). DataLoss: the bytes are not an Example.
absl::StatusOr<Nest> ParseExample(absl::string_view record,
                                  absl::Span<const ExampleFeature> features);

}  // namespace divvy

#endif  // DIVVY_DATA_PARSE_EXAMPLE_H_
