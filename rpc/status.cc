#include "rpc/status.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "rpc/failure_text.h"
#include "wire/status.h"

namespace divvy {

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // Cut, because a peer refuses headers that are too long, and its caller would see another error.
  const std::string text = wire::ToProto(status).message();
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), text,
                      wire::StatusDetails(status));
}

absl::Status FromGrpc(const grpc::Status& status, absl::string_view address) {
  const absl::Status plain = wire::StatusOfCall(static_cast<int>(status.error_code()),
                                                status.error_message(), status.error_details());
  if (!status.error_details().empty()) return plain;
  if (absl::IsDeadlineExceeded(plain))
    return absl::DeadlineExceededError(absl::StrCat(address, " has not answered in time"));
  if (absl::IsUnavailable(plain))
    return absl::UnavailableError(
        absl::StrCat("cannot reach ", address, ": ", ConnectFailure(plain.message())));
  if (absl::IsCancelled(plain))
    return absl::UnavailableError(
        absl::StrCat(address, " has ended the call because its process is ending"));
  // gRPC itself reports this, not the server about its memory. No message of Divvy is so large.
  if (absl::StartsWith(plain.message(), "Received message larger than max")) {
    return absl::InternalError(absl::StrCat(
        "a message from or to ", address,
        " is too large for Divvy's protocol: check which program runs there. ", plain.message()));
  }
  return plain;
}

}  // namespace divvy
