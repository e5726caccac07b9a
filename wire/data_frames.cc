#include "wire/data_frames.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "wire/decode.h"
#include "wire/layout.h"
#include "wire/messages.h"
#include "wire/optimizer.h"
#include "wire/status.h"
#include "wire/values.h"

namespace divvy::wire {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "payloads travel as they lie in memory");

int64_t BytesOf(const std::vector<Tensor>& tensors) {
  int64_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += tensor.size_bytes();
  return bytes;
}

absl::StatusOr<Tensor> AddRows(int64_t rows, PayloadFiller& filler) {
  RETURN_IF_ERROR(CheckNotNegative("rows", rows));
  return filler.Add(DType::kInt64, Shape({rows}));
}

absl::StatusOr<PullPart> PartFrom(const v1::PullRequestHeader::Part& from, PayloadFiller& filler) {
  PullPart part;
  DIVVY_WIRE_READ(part.shard, from, shard);
  if (from.has_rows()) {
    ASSIGN_OR_RETURN(part.rows, AddRows(from.rows(), filler));
  }
  return part;
}

absl::StatusOr<PullPartReply> PartFrom(const v1::PullReplyHeader::Part& from, PayloadFiller& filler) {
  PullPartReply part;
  ASSIGN_OR_RETURN(const DType dtype, In("dtype", FromProto(from.dtype())));
  ASSIGN_OR_RETURN(Shape shape, In("shape", ShapeFromProto(from.shape(), dtype)));
  ASSIGN_OR_RETURN(part.values, filler.Add(dtype, std::move(shape)));
  part.version = from.version();
  part.torn = from.torn();
  return part;
}

absl::StatusOr<CommitPart> PartFrom(const v1::CommitBegin::Part& from, PayloadFiller& filler) {
  CommitPart part;
  DIVVY_WIRE_READ(part.shard, from, shard);
  DIVVY_WIRE_READ_ENUM(part.op, from, op);
  if (from.has_rows()) {
    ASSIGN_OR_RETURN(part.rows, AddRows(from.rows(), filler));
  }
  ASSIGN_OR_RETURN(const DType dtype, In("dtype", FromProto(from.dtype())));
  ASSIGN_OR_RETURN(Shape shape, In("shape", ShapeFromProto(from.shape(), dtype)));
  ASSIGN_OR_RETURN(part.values, filler.Add(dtype, std::move(shape)));
  if (from.has_optimizer()) {
    ASSIGN_OR_RETURN(part.optimizer, In("optimizer", FromProto(from.optimizer())));
  }
  part.slots.assign(from.slots().begin(), from.slots().end());
  return part;
}

template <typename Parts, typename Out>
absl::Status ReadParts(const Parts& parts, PayloadFiller& filler, std::vector<Out>& out) {
  RETURN_IF_ERROR(CheckCount("parts", static_cast<size_t>(parts.size())));
  ASSIGN_OR_RETURN(out, ReadAll("parts", parts, [&filler](const auto& part) { return PartFrom(part, filler); }));
  return absl::OkStatus();
}

// Of what the header announces, without making anything: what is reserved is what will be made.
absl::StatusOr<int64_t> AnnouncedBytes(const v1::CommitBegin& header) {
  int64_t bytes = 0;
  for (const v1::CommitBegin::Part& part : header.parts()) {
    ASSIGN_OR_RETURN(const DType dtype, In("dtype", FromProto(part.dtype())));
    ASSIGN_OR_RETURN(const Shape shape, In("shape", ShapeFromProto(part.shape(), dtype)));
    int64_t rows = 0, values = 0;
    if (__builtin_mul_overflow(part.rows(), int64_t{8}, &rows) || __builtin_mul_overflow(shape.num_elements(), DTypeSize(dtype), &values) ||
        __builtin_add_overflow(bytes, rows, &bytes) || __builtin_add_overflow(bytes, values, &bytes) || part.rows() < 0) {
      return Invalid("parts", "their sizes overflow");
    }
  }
  return bytes;
}

}  // namespace

// ---- sending ----------------------------------------------------------------------------------------------------------------------------------------------

OutgoingTransfer ToTransfer(uint64_t request_id, const PullRequest& request) {
  OutgoingTransfer transfer;
  transfer.header.set_request_id(request_id);
  v1::PullRequestHeader& header = *transfer.header.mutable_pull();
  *header.mutable_fence() = ToProto(request.fence);
  for (const PullPart& part : request.parts) {
    v1::PullRequestHeader::Part& out = *header.add_parts();
    *out.mutable_shard() = ToProto(part.shard);
    if (!part.rows) continue;
    out.set_rows(part.rows->shape().num_elements());
    transfer.payload.push_back(*part.rows);
  }
  return transfer;
}

OutgoingTransfer ToTransfer(uint64_t request_id, const absl::StatusOr<PullReply>& reply) {
  OutgoingTransfer transfer;
  transfer.header.set_request_id(request_id);
  v1::PullReplyHeader& header = *transfer.header.mutable_pull_reply();
  *header.mutable_status() = ToProto(reply.status());
  if (!reply.ok()) return transfer;
  for (const PullPartReply& part : reply->parts) {
    v1::PullReplyHeader::Part& out = *header.add_parts();
    out.set_dtype(ToProto(part.values.dtype()));
    ToProto(part.values.shape(), out.mutable_shape());
    out.set_version(part.version);
    out.set_torn(part.torn);
    transfer.payload.push_back(part.values);
  }
  return transfer;
}

OutgoingTransfer ToTransfer(uint64_t request_id, const CommitRequest& request) {
  OutgoingTransfer transfer;
  transfer.header.set_request_id(request_id);
  v1::CommitBegin& header = *transfer.header.mutable_commit();
  *header.mutable_fence() = ToProto(request.fence);
  header.set_entry(request.entry.value());
  header.set_attempt(request.attempt);
  header.set_kind(ToProto(request.kind));
  header.set_participants(static_cast<uint32_t>(request.participants));
  for (const CommitPart& part : request.parts) {
    v1::CommitBegin::Part& out = *header.add_parts();
    *out.mutable_shard() = ToProto(part.shard);
    out.set_op(ToProto(part.op));
    out.set_dtype(ToProto(part.values.dtype()));
    ToProto(part.values.shape(), out.mutable_shape());
    if (part.optimizer) *out.mutable_optimizer() = ToProto(*part.optimizer);
    out.set_slots(std::string(part.slots.begin(), part.slots.end()));
    if (part.rows) {
      out.set_rows(part.rows->shape().num_elements());
      transfer.payload.push_back(*part.rows);
    }
    transfer.payload.push_back(part.values);
  }
  header.set_total_bytes(BytesOf(transfer.payload));
  return transfer;
}

OutgoingTransfer ToTransfer(uint64_t request_id, const absl::StatusOr<CommitReply>& reply) {
  OutgoingTransfer transfer;
  transfer.header.set_request_id(request_id);
  v1::CommitReplyHeader& header = *transfer.header.mutable_commit_reply();
  *header.mutable_status() = ToProto(reply.status());
  if (!reply.ok()) return transfer;
  header.set_duplicate(reply->duplicate);
  header.set_applied_seq(reply->applied_seq);
  header.mutable_versions()->Add(reply->versions.begin(), reply->versions.end());
  return transfer;
}

std::string EncodeHeader(const v1::FrameHeader& header) {
  const auto length = static_cast<uint32_t>(header.ByteSizeLong());
  std::string bytes(reinterpret_cast<const char*>(&length), kLengthBytes);
  header.AppendToString(&bytes);
  return bytes;
}

absl::StatusOr<size_t> HeaderBytes(absl::string_view first_four) {
  if (first_four.size() < kLengthBytes) return Invalid("", "a message of a data stream begins with four bytes of length");
  uint32_t length = 0;
  std::memcpy(&length, first_four.data(), kLengthBytes);
  if (length > kMaxHeaderBytes) return Invalid("", absl::StrCat("a header of ", length, " bytes, the limit is ", kMaxHeaderBytes));
  return kLengthBytes + length;
}

// ---- receiving --------------------------------------------------------------------------------------------------------------------------------------------

absl::StatusOr<Tensor> PayloadFiller::Add(DType dtype, Shape shape) {
  ASSIGN_OR_RETURN(Tensor tensor, Tensor::Uninitialized(dtype, std::move(shape)));
  const auto size = static_cast<size_t>(tensor.size_bytes());
  if (size > 0) holes_.push_back({reinterpret_cast<char*>(tensor.fresh_data<uint8_t>()), size});
  left_ += tensor.size_bytes();
  return tensor;
}

absl::Status PayloadFiller::Take(absl::string_view bytes) {
  if (static_cast<int64_t>(bytes.size()) > left_) return Invalid("payload", absl::StrCat(bytes.size(), " bytes came where ", left_, " were left"));
  left_ -= static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    const Hole& hole = holes_[next_];
    const size_t some = std::min(bytes.size(), hole.size - filled_);
    std::memcpy(hole.data + filled_, bytes.data(), some);
    bytes.remove_prefix(some);
    filled_ += some;
    if (filled_ < hole.size) continue;
    ++next_;
    filled_ = 0;
  }
  return absl::OkStatus();
}

absl::StatusOr<PullRequest> FromHeader(const v1::PullRequestHeader& header, PayloadFiller& filler) {
  PullRequest request;
  DIVVY_WIRE_READ(request.fence, header, fence);
  RETURN_IF_ERROR(ReadParts(header.parts(), filler, request.parts));
  return request;
}

absl::StatusOr<PullReply> FromHeader(const v1::PullReplyHeader& header, PayloadFiller& filler) {
  RETURN_IF_ERROR(FromProto(header.status()));
  PullReply reply;
  RETURN_IF_ERROR(ReadParts(header.parts(), filler, reply.parts));
  return reply;
}

absl::StatusOr<CommitRequest> FromHeader(const v1::CommitBegin& header, PayloadFiller& filler) {
  ASSIGN_OR_RETURN(const int64_t announced, AnnouncedBytes(header));
  if (announced != header.total_bytes()) return Invalid("total_bytes", absl::StrCat("is ", header.total_bytes(), ", the parts make ", announced));
  CommitRequest request;
  DIVVY_WIRE_READ(request.fence, header, fence);
  request.entry = EntryId(header.entry());
  request.attempt = header.attempt();
  DIVVY_WIRE_READ_ENUM(request.kind, header, kind);
  RETURN_IF_ERROR(CheckIndex("participants", header.participants()));
  request.participants = static_cast<int>(header.participants());
  RETURN_IF_ERROR(ReadParts(header.parts(), filler, request.parts));
  return request;
}

absl::StatusOr<CommitReply> FromHeader(const v1::CommitReplyHeader& header, PayloadFiller&) {
  RETURN_IF_ERROR(FromProto(header.status()));
  CommitReply reply;
  reply.duplicate = header.duplicate();
  reply.applied_seq = header.applied_seq();
  reply.versions.assign(header.versions().begin(), header.versions().end());
  return reply;
}

}  // namespace divvy::wire
