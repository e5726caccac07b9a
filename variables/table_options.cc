#include "variables/table_options.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "variables/table_keys.h"

namespace divvy {
namespace {

constexpr int64_t kLeastCounterBytes = int64_t{1} << 20, kMostCounterBytes = int64_t{1} << 38,
                  kMostSteps = int64_t{1} << 31;

absl::Status Check(const AdmitAfter& rule) {
  if (rule.steps < 1 || rule.steps > kMostSteps)
    return absl::InvalidArgumentError(absl::StrCat(
        "AdmitAfter: steps is ", rule.steps, ", and must be at least 1 and at most ", kMostSteps));
  if (rule.counter_bytes == 0) return absl::OkStatus();
  if (rule.counter_bytes < kLeastCounterBytes || rule.counter_bytes > kMostCounterBytes)
    return absl::InvalidArgumentError(absl::StrCat(
        "AdmitAfter: counter_bytes is ", rule.counter_bytes, ", and must be at least ",
        kLeastCounterBytes, " and at most ", kMostCounterBytes, ", or 0 for exact counts"));
  if (rule.steps > 255)
    return absl::InvalidArgumentError(
        absl::StrCat("AdmitAfter: steps is ", rule.steps,
                     ", and a filter counts to 255: set counter_bytes to 0 for exact counts"));
  return absl::OkStatus();
}
absl::Status Check(const AdmitWithProbability& rule) {
  if (rule.probability > 0 && rule.probability <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("AdmitWithProbability: the probability is ",
                                                 rule.probability,
                                                 ", and must be above 0 and at most 1"));
}

absl::Status Check(const EvictUnusedFor& rule) {
  if (rule.duration >= absl::Minutes(1) &&
      absl::Trunc(rule.duration, absl::Minutes(1)) == rule.duration)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("EvictUnusedFor: the duration is ", absl::FormatDuration(rule.duration),
                   ", and must be at least 1 minute, and whole minutes: rows are dated by the "
                   "minute"));
}
absl::Status Check(const EvictBelowNorm& rule) {
  if (rule.norm > 0 && std::isfinite(rule.norm)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("EvictBelowNorm: the norm is ", rule.norm, ", and must be above 0 and finite"));
}
template <typename Rule>
absl::Status Check(const Rule&) {
  return absl::OkStatus();
}

bool NeedsLimit(const Eviction& eviction) {
  return std::holds_alternative<EvictLeastUsed>(eviction) ||
         std::holds_alternative<EvictLeastRecent>(eviction);
}

}  // namespace

absl::Status Validate(const TableOptions& options) {
  RETURN_IF_ERROR(std::visit([](const auto& rule) { return Check(rule); }, options.admission));
  RETURN_IF_ERROR(std::visit([](const auto& rule) { return Check(rule); }, options.eviction));
  if (options.max_rows < 0)
    return absl::InvalidArgumentError(absl::StrCat("max_rows is ", options.max_rows,
                                                   ", and must be at least 1, or 0 for no limit"));
  if (options.max_rows == 0 && NeedsLimit(options.eviction))
    return absl::InvalidArgumentError(
        "EvictLeastUsed and EvictLeastRecent act when the table is full: set max_rows");
  return absl::OkStatus();
}

}  // namespace divvy
