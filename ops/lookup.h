// Plans of lookups: which rows to read, and how to combine them. Private to ops/.
#ifndef DIVVY_OPS_LOOKUP_H_
#define DIVVY_OPS_LOOKUP_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/gradient_tape.h"
#include "tensor/nest.h"
#include "tensor/tensor.h"

namespace divvy::internal {

// A lookup before its rows are read: the rows to fetch, and the computation on them in both
// directions.
struct LookupPlan {
  // int64 [n]
  Tensor ids;
  // Computes the lookup's result from the rows that were read.
  std::function<absl::StatusOr<Tensor>(const Tensor& rows)> from_rows;
  // Computes the gradient of the rows from the gradient of the result. `rows` are those that were
  // read.
  std::function<absl::StatusOr<Tensor>(const Tensor& rows, const Tensor& gradient)> to_rows;
};

// Plans a lookup as GradientTape::Lookup and LookupSparse define it, and returns their errors.
absl::StatusOr<LookupPlan> PlanLookup(const Tensor& ids, const LookupOptions& options);
absl::StatusOr<LookupPlan> PlanLookupSparse(const Nest& sparse_ids, Combiner combiner,
                                            const LookupOptions& options);

}  // namespace divvy::internal

#endif  // DIVVY_OPS_LOOKUP_H_
