#include "protocol/error.h"

#include <string>

#include "absl/status/status_payload_printer.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/exit_codes.h"

namespace divvy {
namespace {

constexpr char kTypeUrl[] = "divvy/error";
// The payload of JobHasEnded: a decimal number. It is never sent to another process.
constexpr char kExitCodeUrl[] = "divvy/exit_code";

// The payload: these fields in this order, little-endian, without the zero bytes at the end. So a
// refusal that names no entry fits into the 15 bytes that a Cord stores inline.
constexpr size_t kReasonAt = 0, kRoleAt = 1, kUserAt = 2, kIndexAt = 3, kEpochAt = 7, kEntryAt = 15,
                 kEncodedBytes = 23;

void Put(uint64_t value, size_t at, size_t bytes, std::string& out) {
  for (size_t i = 0; i < bytes; ++i) out[at + i] = static_cast<char>(value >> (8 * i));
}

uint64_t Get(absl::string_view in, size_t at, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i)
    value |= static_cast<uint64_t>(static_cast<uint8_t>(in[at + i])) << (8 * i);
  return value;
}

std::string Encode(const ErrorDetail& detail) {
  std::string out(kEncodedBytes, '\0');
  Put(static_cast<uint8_t>(detail.reason), kReasonAt, 1, out);
  Put(detail.role ? 1 + static_cast<uint64_t>(*detail.role) : 0, kRoleAt, 1, out);
  Put(detail.user ? 1 : 0, kUserAt, 1, out);
  Put(static_cast<uint32_t>(detail.index), kIndexAt, 4, out);
  Put(detail.epoch.value(), kEpochAt, 8, out);
  Put(detail.entry.value(), kEntryAt, 8, out);
  out.resize(out.find_last_not_of('\0') + 1);
  return out;
}

// Accepts any bytes. Bytes that are no valid detail give an empty one.
ErrorDetail Decode(std::string in) {
  ErrorDetail detail;
  if (in.size() > kEncodedBytes) return detail;
  in.resize(kEncodedBytes, '\0');
  const uint64_t reason = Get(in, kReasonAt, 1), role = Get(in, kRoleAt, 1),
                 user = Get(in, kUserAt, 1);
  if (reason > static_cast<uint64_t>(kLastReason) ||
      role > 1 + static_cast<uint64_t>(Role::kWorker) || user > 1)
    return detail;
  detail.reason = static_cast<Reason>(reason);
  if (role > 0) detail.role = static_cast<Role>(role - 1);
  detail.user = user == 1;
  detail.index = static_cast<int32_t>(Get(in, kIndexAt, 4));
  detail.epoch = Epoch(Get(in, kEpochAt, 8));
  detail.entry = EntryId(Get(in, kEntryAt, 8));
  return detail;
}

struct ReasonRow {
  absl::string_view name;
  absl::StatusCode code;
};

ReasonRow RowOf(Reason reason) {
  switch (reason) {
    case Reason::kNone: return {"NONE", absl::StatusCode::kUnknown};
    case Reason::kVersionMismatch:
      return {"VERSION_MISMATCH", absl::StatusCode::kFailedPrecondition};
    case Reason::kWrongJob: return {"WRONG_JOB", absl::StatusCode::kFailedPrecondition};
    case Reason::kWrongIncarnation: return {"WRONG_INCARNATION", absl::StatusCode::kAborted};
    case Reason::kStaleEpoch: return {"STALE_EPOCH", absl::StatusCode::kFailedPrecondition};
    case Reason::kNotAttached: return {"NOT_ATTACHED", absl::StatusCode::kUnavailable};
    case Reason::kSecondCoordinator:
      return {"SECOND_COORDINATOR", absl::StatusCode::kFailedPrecondition};
    case Reason::kNotReady: return {"NOT_READY", absl::StatusCode::kUnavailable};
    case Reason::kInvalid: return {"INVALID", absl::StatusCode::kInvalidArgument};
    case Reason::kSessionFenced: return {"SESSION_FENCED", absl::StatusCode::kAborted};
    case Reason::kStepClosed: return {"STEP_CLOSED", absl::StatusCode::kAborted};
    case Reason::kUnknownShard: return {"UNKNOWN_SHARD", absl::StatusCode::kInternal};
    case Reason::kBadCommit: return {"BAD_COMMIT", absl::StatusCode::kInternal};
    case Reason::kMemoryLimit: return {"MEMORY_LIMIT", absl::StatusCode::kResourceExhausted};
    case Reason::kPsLost: return {"PS_LOST", absl::StatusCode::kUnavailable};
    case Reason::kStepGaveUp: return {"STEP_GAVE_UP", absl::StatusCode::kUnavailable};
    case Reason::kBatchCancelled: return {"BATCH_CANCELLED", absl::StatusCode::kCancelled};
    case Reason::kInputAborted: return {"INPUT_ABORTED", absl::StatusCode::kAborted};
    case Reason::kEndOfData: return {"END_OF_DATA", absl::StatusCode::kOutOfRange};
    case Reason::kJobOver: return {"JOB_OVER", absl::StatusCode::kCancelled};
    case Reason::kNotAuthorized: return {"NOT_AUTHORIZED", absl::StatusCode::kPermissionDenied};
    case Reason::kDuplicateTask: return {"DUPLICATE_TASK", absl::StatusCode::kFailedPrecondition};
    case Reason::kClusterMismatch:
      return {"CLUSTER_MISMATCH", absl::StatusCode::kFailedPrecondition};
    case Reason::kDisk: return {"DISK", absl::StatusCode::kResourceExhausted};
    case Reason::kCheckpointMissing: return {"CHECKPOINT_MISSING", absl::StatusCode::kNotFound};
    case Reason::kCheckpointCorrupt: return {"CHECKPOINT_CORRUPT", absl::StatusCode::kDataLoss};
    case Reason::kDeviceLost: return {"DEVICE_LOST", absl::StatusCode::kUnavailable};
  }
  return {"UNKNOWN", absl::StatusCode::kUnknown};
}

// The text that Status::ToString shows for a detail, instead of its bytes.
absl::optional<std::string> PrintDetail(absl::string_view type_url, const absl::Cord& payload) {
  if (type_url != kTypeUrl) return absl::nullopt;
  const ErrorDetail detail = Decode(std::string(payload));
  if (detail.user) return "error of a step function";
  return std::string(RowOf(detail.reason).name);
}

void Attach(const ErrorDetail& detail, absl::Status& status) {
  // A program may have set a printer of its own, which stays.
  static const bool printed = absl::status_internal::GetStatusPayloadPrinter() != nullptr ||
                              (absl::status_internal::SetStatusPayloadPrinter(PrintDetail), true);
  static_cast<void>(printed);
  status.SetPayload(kTypeUrl, absl::Cord(Encode(detail)));
}

}  // namespace

absl::string_view ReasonName(Reason reason) { return RowOf(reason).name; }

absl::Status MakeError(absl::StatusCode code, const ErrorDetail& detail,
                       absl::string_view message) {
  absl::Status status(code, message);
  Attach(detail, status);
  return status;
}

absl::Status MakeError(const ErrorDetail& detail, absl::string_view message) {
  return MakeError(RowOf(detail.reason).code, detail, message);
}

absl::Status MakeError(Reason reason, absl::string_view message) {
  ErrorDetail detail;
  detail.reason = reason;
  return MakeError(detail, message);
}

ErrorDetail DetailOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kTypeUrl);
  return payload ? Decode(std::string(*payload)) : ErrorDetail();
}

absl::Status MarkUser(const absl::Status& status) {
  if (status.ok()) return status;
  ErrorDetail detail = DetailOf(status);
  detail.user = true;
  absl::Status marked = status;
  Attach(detail, marked);
  return marked;
}

bool IsTransient(const absl::Status& status) {
  const ErrorDetail detail = DetailOf(status);
  if (detail.user) return false;
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded: return true;
    case absl::StatusCode::kAborted: return detail.reason == Reason::kNone;
    default: return false;
  }
}

std::optional<int> ExitCodeOf(Reason reason) {
  switch (reason) {
    case Reason::kVersionMismatch:
    case Reason::kWrongJob:
    case Reason::kDuplicateTask:
    case Reason::kClusterMismatch: return exit_codes::kConfiguration;
    case Reason::kNotAuthorized: return exit_codes::kNotAuthorized;
    case Reason::kMemoryLimit: return exit_codes::kResources;
    case Reason::kStaleEpoch:
    case Reason::kSecondCoordinator:
    case Reason::kPsLost:
    case Reason::kDeviceLost: return exit_codes::kTryAgain;
    // A step that gave up would end each worker that runs it.
    case Reason::kStepGaveUp: return exit_codes::kPermanent;
    default: return std::nullopt;
  }
}

// The code of a step's error says nothing about the cluster. DataLoss and NotFound concern the
// step's input, and are kept.
static int ExitCodeOfUser(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kDataLoss: return exit_codes::kCorruptData;
    case absl::StatusCode::kNotFound: return exit_codes::kNoInput;
    default: return exit_codes::kPermanent;
  }
}

bool IsFinal(Reason reason) {
  const std::optional<int> code = ExitCodeOf(reason);
  return code == exit_codes::kNotAuthorized || code == exit_codes::kConfiguration;
}

int ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return 0;
  const ErrorDetail detail = DetailOf(status);
  if (detail.user) return ExitCodeOfUser(status.code());
  int told = 0;
  if (const auto payload = status.GetPayload(kExitCodeUrl);
      payload && absl::SimpleAtoi(std::string(*payload), &told))
    return told;
  if (const std::optional<int> code = ExitCodeOf(detail.reason)) return *code;
  switch (status.code()) {
    case absl::StatusCode::kUnavailable: return exit_codes::kTryAgain;
    case absl::StatusCode::kDataLoss: return exit_codes::kCorruptData;
    case absl::StatusCode::kNotFound: return exit_codes::kNoInput;
    case absl::StatusCode::kInternal: return exit_codes::kInternal;
    case absl::StatusCode::kResourceExhausted: return exit_codes::kResources;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated: return exit_codes::kNotAuthorized;
    default: return exit_codes::kPermanent;
  }
}

absl::Status JobHasEnded(int exit_code, absl::string_view message) {
  absl::Status status = MakeError(Reason::kJobOver, message);
  status.SetPayload(kExitCodeUrl, absl::Cord(absl::StrCat(exit_code)));
  return status;
}

absl::Status EndOfData(absl::string_view message) { return MakeError(Reason::kEndOfData, message); }

bool IsEndOfData(const absl::Status& status) { return ReasonOf(status) == Reason::kEndOfData; }

}  // namespace divvy
