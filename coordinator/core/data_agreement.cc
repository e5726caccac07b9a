#include "coordinator/core/data_agreement.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace divvy {
namespace {

// Of the sum of absolute values. The last bit of a float is 1e-7 of it; a million values of other records are some 1e-3 apart, fewer are more.
constexpr double kTolerance = 1e-5;

}  // namespace

bool Differ(const ElementDigest& a, const ElementDigest& b) {
  return a.exact != b.exact || std::abs(a.projection - b.projection) > kTolerance * std::max(a.magnitude, b.magnitude);
}

absl::Status CheckSameData(const std::string& source, const FirstElement& a, const FirstElement& b) {
  if (!Differ(a.digest, b.digest)) return absl::OkStatus();
  const std::string who = a.worker == b.worker
                              ? absl::StrCat("worker ", a.worker, ", opened twice, reads different elements")
                              : absl::StrCat("worker ", std::min(a.worker, b.worker), " and worker ", std::max(a.worker, b.worker), " read different elements");
  return absl::InvalidArgumentError(absl::StrCat("data source \"", source, "\" differs between workers (position 0: ", who,
                                                 "). The coordinator hands out the positions of one dataset, so every worker must read the same one: shuffle ",
                                                 "with input.seed, and shard nothing. For data that each worker has of its own set AutoShardPolicy::kOff"));
}

absl::Status DataAgreement::Note(const std::string& source, const FirstElement& seen) {
  if (told_) return absl::OkStatus();
  if (!first_) first_ = seen;
  absl::Status same = CheckSameData(source, *first_, seen);
  told_ = !same.ok();
  return same;
}

}  // namespace divvy
