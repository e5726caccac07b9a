#include "strategy/per_replica.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace divvy {

absl::StatusOr<ReduceOp> ParseReduceOp(absl::string_view name) {
  const std::string upper = absl::AsciiStrToUpper(name);
  if (upper == "SUM") return ReduceOp::kSum;
  if (upper == "MEAN") return ReduceOp::kMean;
  return absl::InvalidArgumentError(absl::StrCat("a reduction is \"SUM\" or \"MEAN\", not \"", name, "\""));
}

absl::string_view ReduceOpName(ReduceOp op) { return op == ReduceOp::kSum ? "SUM" : "MEAN"; }

}  // namespace divvy
