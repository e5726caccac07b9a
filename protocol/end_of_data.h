// The end of a dataset, as a step and its program see it.
#ifndef DIVVY_PROTOCOL_END_OF_DATA_H_
#define DIVVY_PROTOCOL_END_OF_DATA_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace divvy {

// EndOfData returns an OutOfRange status with Reason::kEndOfData (protocol/error.h). IsEndOfData
// looks for that reason, so it does not mistake other OutOfRange errors for the end of a dataset.
// Both are pure and thread-safe.
absl::Status EndOfData(absl::string_view message);
bool IsEndOfData(const absl::Status& status);

}  // namespace divvy

#endif  // DIVVY_PROTOCOL_END_OF_DATA_H_
