#include "train/examples_seen.h"

#include "absl/strings/str_cat.h"

namespace divvy {

absl::Status CheckExamplesSeen(const Metrics& metrics, const BoundDataSource& data) {
  const auto loss = metrics.find("loss");
  if (loss != metrics.end() && loss->second.count() > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the data source \"", data.name(),
                   "\" gave no examples: look at its files, and whether Take, Skip, Filter or "
                   "HoldOut drop all of them"));
}

}  // namespace divvy
