// Parsing of tf.train.Example.
#ifndef DIVVY_DATA_PARSE_EXAMPLE_H_
#define DIVVY_DATA_PARSE_EXAMPLE_H_

#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "data/text_keys.h"
#include "tensor/nest.h"

namespace divvy {

// A feature of an Example. The dtype must be that of the feature's list: kInt64, kFloat32 or
// kString.
struct ExampleFeature {
  // A kString feature whose texts become int64 keys: hashes with a salt, or ids of a vocabulary.
  static ExampleFeature Text(std::string name, TextKeys keys, Shape shape = {}) {
    return {std::move(name), DType::kString, std::move(shape), std::move(keys)};
  }

  std::string name;
  DType dtype = DType::kFloat32;
  // {}: one value. The first dimension may be -1: any number of values.
  Shape shape = {};
  // For kString. Text() sets it.
  std::optional<TextKeys> keys = {};
};

// Parses a tf.train.Example and returns a dict of the requested features. A feature becomes a
// tensor of its shape; a kString feature becomes a text (shape {}) or a list of texts (shape {n} or
// {-1}). A kString feature with `keys` becomes an int64 tensor of its shape; with the shape {-1},
// SparseIds of one row, so that Batch makes a CSR batch of them. Other features are ignored. Pure;
// thread-safe.
//
//   Dataset::TfRecord("clicks-*", [](absl::string_view record) {
//     return ParseExample(record, {{"label", DType::kFloat32}, {"ids", DType::kInt64, {-1}}});
//   })
//
// InvalidArgument, with the feature's name: it is missing, or has another type or another number of
// values; a token is not in its vocabulary; or the request is impossible (another dtype, texts of
// more than one dimension, -1 in another dimension). DataLoss: the bytes are not an Example.
absl::StatusOr<Nest> ParseExample(absl::string_view record,
                                  absl::Span<const ExampleFeature> features);

}  // namespace divvy

#endif  // DIVVY_DATA_PARSE_EXAMPLE_H_
