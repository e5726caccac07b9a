#include "wire/status.h"

#include <optional>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "wire/decode.h"
#include "wire/text.h"

namespace divvy::wire {
namespace {

constexpr char kDetailName[] = "/divvy.v1.ErrorDetail";
constexpr char kTypeUrl[] = "type.googleapis.com/divvy.v1.ErrorDetail";

constexpr EnumTable<Reason, v1::Reason, static_cast<size_t>(kLastReason) + 1> kReasons = {{
    {Reason::kNone, v1::REASON_NONE},
    {Reason::kVersionMismatch, v1::VERSION_MISMATCH},
    {Reason::kWrongJob, v1::WRONG_JOB},
    {Reason::kWrongIncarnation, v1::WRONG_INCARNATION},
    {Reason::kStaleEpoch, v1::STALE_EPOCH},
    {Reason::kNotAttached, v1::NOT_ATTACHED},
    {Reason::kSecondCoordinator, v1::SECOND_COORDINATOR},
    {Reason::kNotReady, v1::NOT_READY},
    {Reason::kInvalid, v1::INVALID},
    {Reason::kSessionFenced, v1::SESSION_FENCED},
    {Reason::kStepClosed, v1::STEP_CLOSED},
    {Reason::kUnknownShard, v1::UNKNOWN_SHARD},
    {Reason::kBadCommit, v1::BAD_COMMIT},
    {Reason::kMemoryLimit, v1::MEMORY_LIMIT},
    {Reason::kPsLost, v1::PS_LOST},
    {Reason::kStepGaveUp, v1::STEP_GAVE_UP},
    {Reason::kBatchCancelled, v1::BATCH_CANCELLED},
    {Reason::kInputAborted, v1::INPUT_ABORTED},
    {Reason::kEndOfData, v1::END_OF_DATA},
    {Reason::kJobOver, v1::JOB_OVER},
    {Reason::kNotAuthorized, v1::NOT_AUTHORIZED},
    {Reason::kDuplicateTask, v1::DUPLICATE_TASK},
    {Reason::kClusterMismatch, v1::CLUSTER_MISMATCH},
    {Reason::kDisk, v1::DISK},
    {Reason::kCheckpointMissing, v1::CHECKPOINT_MISSING},
    {Reason::kCheckpointCorrupt, v1::CHECKPOINT_CORRUPT},
    {Reason::kDeviceLost, v1::DEVICE_LOST},
}};

// An evaluator sends no messages.
constexpr EnumTable<Role, v1::Job, 3> kJobs = {
    {{Role::kChief, v1::CHIEF}, {Role::kPs, v1::PS}, {Role::kWorker, v1::WORKER}}};

bool IsEmpty(const ErrorDetail& detail) {
  return detail.reason == Reason::kNone && !detail.role && detail.index == 0 &&
         detail.epoch.value() == 0 && detail.entry.value() == 0 && !detail.user;
}

absl::Status Undecodable(absl::string_view why, absl::string_view message) {
  return absl::InternalError(
      Escaped(absl::StrCat("received an error that cannot be decoded (", why, "): ", message)));
}

const google::protobuf::Any* FindDetail(const v1::Status& status) {
  for (const google::protobuf::Any& any : status.details()) {
    if (absl::EndsWith(any.type_url(), kDetailName)) return &any;
  }
  return nullptr;
}

}  // namespace

v1::Job ToProto(Role role) { return kJobs.ToWire(role); }
absl::StatusOr<Role> FromProto(v1::Job job) { return kJobs.ToDomain(job); }

v1::ErrorDetail ToProto(const ErrorDetail& detail) {
  v1::ErrorDetail out;
  out.set_reason(kReasons.ToWire(detail.reason));
  if (detail.role) out.set_job(ToProto(*detail.role));
  out.set_index(detail.index);
  out.set_epoch(detail.epoch.value());
  out.set_entry(detail.entry.value());
  out.set_user(detail.user);
  return out;
}

absl::StatusOr<ErrorDetail> FromProto(const v1::ErrorDetail& detail) {
  ErrorDetail out;
  ASSIGN_OR_RETURN(out.reason, In("reason", kReasons.ToDomain(detail.reason())));
  if (detail.job() != v1::JOB_NONE) {
    DIVVY_WIRE_READ_ENUM(out.role, detail, job);
  }
  RETURN_IF_ERROR(CheckNotNegative("index", detail.index()));
  out.index = detail.index();
  out.epoch = Epoch(detail.epoch());
  out.entry = EntryId(detail.entry());
  out.user = detail.user();
  return out;
}

v1::Status ToProto(const absl::Status& status) {
  v1::Status out;
  if (status.ok()) return out;
  out.set_code(static_cast<int>(status.code()));
  out.set_message(Escaped(status.message()));
  const ErrorDetail detail = DetailOf(status);
  if (IsEmpty(detail)) return out;
  google::protobuf::Any& any = *out.add_details();
  any.set_type_url(kTypeUrl);
  any.set_value(ToProto(detail).SerializeAsString());
  return out;
}

absl::Status FromProto(const v1::Status& status) {
  if (status.code() == 0) return absl::OkStatus();
  const std::string message = Escaped(status.message());
  if (status.code() < 0 || status.code() > static_cast<int>(absl::StatusCode::kUnauthenticated))
    return Undecodable("an unknown code", message);
  const auto code = static_cast<absl::StatusCode>(status.code());
  const google::protobuf::Any* const any = FindDetail(status);
  if (any == nullptr) return absl::Status(code, message);
  v1::ErrorDetail encoded;
  if (!encoded.ParseFromString(any->value())) return Undecodable("a broken detail", message);
  // A newer peer sent the reason. The status code then decides.
  if (!kReasons.ToDomain(encoded.reason()).ok()) encoded.clear_reason();
  const absl::StatusOr<ErrorDetail> detail = FromProto(encoded);
  if (!detail.ok()) return Undecodable(detail.status().message(), message);
  return MakeError(code, *detail, message);
}

std::string StatusDetails(const absl::Status& status) {
  const v1::Status encoded = ToProto(status);
  return encoded.details().empty() ? std::string() : encoded.SerializeAsString();
}

absl::Status StatusOfCall(int code, absl::string_view message, absl::string_view details) {
  v1::Status parts;
  if (details.empty() || !parts.ParseFromArray(details.data(), static_cast<int>(details.size())))
    parts.Clear();
  parts.set_code(code);
  // Use the text of the call. gRPC's own failures have no details, and for other errors this text
  // is the same as that of the details.
  parts.set_message(Escaped(message));
  return FromProto(parts);
}

}  // namespace divvy::wire
