// Decodes any bytes as the job state of a checkpoint, or as the binary details of a call's status.
// The first byte chooses between them, and is the code of the status.
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/testing/fuzz.h"
#include "protocol/error.h"
#include "wire/job_state.h"
#include "wire/status.h"

namespace divvy {
namespace {

void TryStatus(int code, absl::string_view details) {
  const absl::Status status = wire::StatusOfCall(code, details.substr(0, 40), details);
  fuzz::Require(status.ok() == (code == 0), "a failed call that is OK");
  (void)DetailOf(status);
  fuzz::Require(wire::FromProto(wire::ToProto(status)).code() == status.code(),
                "a status that changes when it travels on");
}

void TryJobState(const std::string& bytes) {
  const auto state = wire::DecodeJobState(bytes);
  if (!state.ok())
    return fuzz::Require(absl::IsInvalidArgument(state.status()),
                         "refused otherwise than as InvalidArgument");
  const std::string written = wire::EncodeJobState(*state);
  const auto again = wire::DecodeJobState(written);
  fuzz::Require(again.ok(), "what was written is refused");
}

void Try(absl::string_view bytes) {
  if (bytes.empty()) return;
  const int first = static_cast<unsigned char>(bytes[0]);
  first < 20 ? TryStatus(first, bytes.substr(1)) : TryJobState(std::string(bytes.substr(1)));
}

}  // namespace
}  // namespace divvy

DIVVY_FUZZ(divvy::Try)
