#include "tests/e2e/hostile_methods.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "rpc/unary_calls.h"
#include "wire/data_frames.h"
#include "wire/messages.h"
#include "wire/testing/conversion.h"
#include "wire/testing/frames.h"

namespace divvy {
namespace {

std::string Nothing(uint64_t) { return ""; }
// Field 1 (the coordinator's incarnation) with a value that no coordinator has.
std::string OfNobody(uint64_t seed) {
  return std::string("\x09") + std::string(8, static_cast<char>(1 + seed % 255));
}
template <typename Request>
std::string FrameOf(uint64_t seed) {
  return wire::testing::MessagesOf(
      wire::ToTransfer(1 + seed % 3, wire::testing::Generator(seed).Make<Request>()),
      wire::kMessageBytes)[0];
}

}  // namespace

bool Method::IsServedBy(TaskId task) const {
  return std::count(served_by.begin(), served_by.end(), task.role) > 0;
}
bool Method::MayBeCalledBy(const std::string& role) const {
  return std::count(allowed.begin(), allowed.end(), role) > 0;
}

const std::vector<Method>& Methods() {
  using wire::testing::RandomBytes;
  const auto ps = [](const char* name, std::string (*valid)(uint64_t)) {
    return Method{absl::StrCat("/divvy.v1.ParameterServer/", name), {Role::kPs}, {"chief"}, valid};
  };
  const auto admin = [](const char* name, std::string (*valid)(uint64_t)) {
    return Method{absl::StrCat("/divvy.v1.Admin/", name),
                  {Role::kChief, Role::kPs, Role::kWorker},
                  {"admin"},
                  valid};
  };
#define DIVVY_METHOD_OF_PS(Service, Name, Request, Reply, deadline) \
  ps(#Name, &RandomBytes<Request>),
  static const auto* const methods = new std::vector<Method>{
      {kRegister, {Role::kChief}, {"worker", "ps"}, &RandomBytes<RegisterRequest>},
      {"/divvy.v1.Worker/Attach", {Role::kWorker}, {"chief"}, &RandomBytes<WorkerAttachRequest>},
      {kSteps, {Role::kWorker}, {"chief"}, &RandomBytes<StreamFrame<ToWorker>>},
      {"/divvy.v1.Worker/Shutdown", {Role::kWorker}, {"chief"}, &RandomBytes<ShutdownRequest>},
      DIVVY_PARAMETER_SERVER_CALLS(DIVVY_METHOD_OF_PS)  // each with its comma
      {kGetStatus, {Role::kChief, Role::kPs, Role::kWorker}, {"admin", "chief"}, &Nothing},
      admin("RequestCheckpoint", &OfNobody),
      admin("Drain", &OfNobody),
      admin("Resize", &OfNobody),
      admin("Rebalance", &OfNobody),
      admin("GetTraces", &Nothing),
      admin("GetLogs", &Nothing),
      {kPull, {Role::kPs}, {"chief", "worker"}, &FrameOf<PullRequest>},
      {kCommit, {Role::kPs}, {"chief", "worker"}, &FrameOf<CommitRequest>},
  };
#undef DIVVY_METHOD_OF_PS
  return *methods;
}

std::string CodeName(const grpc::Status& status) {
  return absl::StatusCodeToString(static_cast<absl::StatusCode>(status.error_code()));
}

absl::Status StatusOfReply(const std::string& message) {
  absl::string_view payload;
  const absl::StatusOr<v1::FrameHeader> header = wire::testing::Opened(message, payload);
  if (!header.ok()) return header.status();
  if (header->has_waiting()) return absl::UnavailableError("waits for memory");
  if (header->has_pull_reply()) return wire::FromProto(header->pull_reply().status());
  return wire::FromProto(header->commit_reply().status());
}

}  // namespace divvy
