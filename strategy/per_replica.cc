#include "strategy/per_replica.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace divvy {

absl::StatusOr<ReduceOp> ParseReduceOp(absl::string_view name) {
  const std::string upper = absl::AsciiStrToUpper(name);
  if (upper == "SUM") return ReduceOp::kSum;
  if (upper == "MEAN") return ReduceOp::kMean;
  return absl::InvalidArgumentError(
      absl::StrCat("a reduction is \"SUM\" or \"MEAN\", not \"", name, "\""));
}

absl::StatusOr<CommunicationOptions::Implementation> ParseCommunicationImplementation(
    absl::string_view name) {
  using Implementation = CommunicationOptions::Implementation;
  const std::string upper = absl::AsciiStrToUpper(name);
  if (upper == "AUTO") return Implementation::kAuto;
  if (upper == "RING") return Implementation::kRing;
  if (upper == "NCCL") return Implementation::kNccl;
  return absl::InvalidArgumentError(absl::StrCat(
      "an implementation of collectives is \"AUTO\", \"RING\" or \"NCCL\", not \"", name, "\""));
}

CommunicationOptions MergeOptions(const CommunicationOptions& earlier,
                                  const CommunicationOptions& later) {
  const CommunicationOptions defaults;
  CommunicationOptions merged = earlier;
  if (later.bytes_per_pack != defaults.bytes_per_pack) merged.bytes_per_pack = later.bytes_per_pack;
  if (later.timeout != defaults.timeout) merged.timeout = later.timeout;
  if (later.implementation != defaults.implementation) merged.implementation = later.implementation;
  return merged;
}

absl::string_view ReduceOpName(ReduceOp op) { return op == ReduceOp::kSum ? "SUM" : "MEAN"; }

}  // namespace divvy
