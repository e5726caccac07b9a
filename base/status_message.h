// The same error in other words.
#ifndef DIVVY_BASE_STATUS_MESSAGE_H_
#define DIVVY_BASE_STATUS_MESSAGE_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace divvy {

// With the code and the payloads of `status`, so that whoever looks at its reason finds it.
// REQUIRES: !status.ok().
inline absl::Status WithMessage(const absl::Status& status, absl::string_view message) {
  absl::Status told(status.code(), message);
  status.ForEachPayload([&told](absl::string_view type, const absl::Cord& payload) {
    told.SetPayload(type, payload);
  });
  return told;
}

}  // namespace divvy

#endif  // DIVVY_BASE_STATUS_MESSAGE_H_
