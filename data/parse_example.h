// What to take out of a tf.train.Example.
#ifndef DIVVY_DATA_PARSE_EXAMPLE_H_
#define DIVVY_DATA_PARSE_EXAMPLE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensor/nest.h"

namespace divvy {

// A feature of an Example. The dtype is that of its list: kInt64, kFloat32 or kString.
struct ExampleFeature {
  std::string name;
  DType dtype = DType::kFloat32;
  // {}: one value. The first dimension may be -1: as many as there are
  Shape shape = {};
};

// A tf.train.Example as a dict of the features asked for: a tensor of the shape, of kString a text
// (shape {}) or a list of texts (shape {n} or {-1}). Features that are not asked for are passed
// over. Pure; thread-safe.
//
//   Dataset::TfRecord("clicks-*", [](absl::string_view record) {
//     return ParseExample(record, {{"label", DType::kFloat32}, {"ids", DType::kInt64, {-1}}});
//   })
//
// InvalidArgument, with the feature: it is missing, of another type, or of another number of
// values; or one that nothing can be read as (another dtype, texts of more than one dimension, -1
// elsewhere). DataLoss: the bytes are no Example.
absl::StatusOr<Nest> ParseExample(absl::string_view record,
                                  absl::Span<const ExampleFeature> features);

}  // namespace divvy

#endif  // DIVVY_DATA_PARSE_EXAMPLE_H_
