// Replaces the message of an error.
#ifndef DIVVY_BASE_STATUS_MESSAGE_H_
#define DIVVY_BASE_STATUS_MESSAGE_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace divvy {

// An error with this message and with the code and the payloads of `status`. So callers still find
// the reason (protocol/error.h). REQUIRES: !status.ok().
inline absl::Status WithMessage(const absl::Status& status, absl::string_view message) {
  absl::Status told(status.code(), message);
  status.ForEachPayload([&told](absl::string_view type, const absl::Cord& payload) {
    told.SetPayload(type, payload);
  });
  return told;
}

}  // namespace divvy

#endif  // DIVVY_BASE_STATUS_MESSAGE_H_
