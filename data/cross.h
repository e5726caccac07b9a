// Crosses of features.
#ifndef DIVVY_DATA_CROSS_H_
#define DIVVY_DATA_CROSS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensor/nest.h"

namespace divvy {

// A 64-bit hash of one value of each crossed feature; negative ones, too. Their order matters. The
// same values have other keys under another salt. It never changes between versions, because tables
// are trained with it. Pure.
int64_t CrossKey(absl::Span<const int64_t> values, absl::string_view salt = "");

// The name and the salt of a cross.
struct CrossOptions {
  // The new feature's key in the elements. Empty: the names of the features joined by "_X_", as in
  // tf.feature_column.
  std::string name = {};
  // Give each cross its own if several share one table.
  std::string salt = {};
};

// A function for Dataset::Map and, in less time, Dataset::MapBatches: it adds the cross of the
// features to an element or batch that is a dict. The job of tf.feature_column.crossed_column and
// tf.keras.layers.HashedCrossing. A cross is CrossKey of the values; if `buckets` is above 0, it is
// reduced to [0, buckets). With one feature it is a hash of integers, as tf.keras.layers.Hashing.
//
//   Cross({"job", "city"}, 100'000)  // adds "job_X_city"
//
// Features are tensors of integers, or SparseIds. Text must be made keys before (data/text_keys.h).
//
//   all are tensors of one shape   a tensor of that shape: value by value
//   some are SparseIds             SparseIds: in each row, every combination of one value of each
//                                  feature. The value of the last feature changes first. A tensor
//                                  beside them has as many rows as they have; in an element, a
//                                  scalar or [n] is one row. If a feature has weights, the weight
//                                  of a combination is the product of those of its values
//
// InvalidArgument, naming the features: a feature that is missing or holds something else, shapes
// or rows that do not fit together, a name that the element has already, more than 2^26
// combinations, or bad arguments.
std::function<absl::StatusOr<Nest>(const Nest&)> Cross(std::vector<std::string> features,
                                                       int64_t buckets, CrossOptions options = {});

}  // namespace divvy

#endif  // DIVVY_DATA_CROSS_H_
