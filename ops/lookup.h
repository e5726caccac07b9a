// What a lookup asks a table for, and what it makes of the rows. Private to ops/.
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

// A lookup ready to be read: the rows to fetch, and both directions of what is done with them.
struct LookupPlan {
  // int64 [n]
  Tensor ids;
  // The result, given the rows.
  std::function<absl::StatusOr<Tensor>(const Tensor& rows)> from_rows;
  // The gradient of the rows, given the result's. `rows` are those that were read.
  std::function<absl::StatusOr<Tensor>(const Tensor& rows, const Tensor& gradient)> to_rows;
};

// As GradientTape::Lookup and LookupSparse say.
absl::StatusOr<LookupPlan> PlanLookup(const Tensor& ids, const LookupOptions& options);
absl::StatusOr<LookupPlan> PlanLookupSparse(const Nest& sparse_ids, Combiner combiner,
                                            const LookupOptions& options);

}  // namespace divvy::internal

#endif  // DIVVY_OPS_LOOKUP_H_
