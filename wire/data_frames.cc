#include "wire/data_frames.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "wire/decode.h"
#include "wire/layout.h"
#include "wire/messages.h"
#include "wire/optimizer.h"
#include "wire/status.h"
#include "wire/values.h"

namespace divvy::wire {
namespace {

constexpr EnumTable<PullWant, v1::PullRequestHeader::Want, 3> kPullWants = {{
    {PullWant::kValues, v1::PullRequestHeader::VALUES},
    {PullWant::kRecords, v1::PullRequestHeader::RECORDS},
    {PullWant::kStats, v1::PullRequestHeader::STATS},
}};

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "payloads travel as they lie in memory");

absl::Status CheckBools(absl::string_view bytes) {
  const bool good =
      std::all_of(bytes.begin(), bytes.end(), [](char byte) { return byte == 0 || byte == 1; });
  return good ? absl::OkStatus() : Invalid("payload", "has a bool that is neither 0 nor 1");
}

int64_t BytesOf(const std::vector<Tensor>& tensors) {
  int64_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += tensor.size_bytes();
  return bytes;
}

absl::StatusOr<Tensor> AddRows(int64_t rows, PayloadFiller& filler) {
  RETURN_IF_ERROR(CheckNotNegative("rows", rows));
  return filler.AddChecked(DType::kInt64, Shape({rows}));
}

absl::StatusOr<PullPart> PartFrom(const v1::PullRequestHeader::Part& from, PayloadFiller& filler) {
  PullPart part;
  DIVVY_WIRE_READ(part.shard, from, shard);
  if (from.has_rows()) {
    ASSIGN_OR_RETURN(part.rows, AddRows(from.rows(), filler));
  }
  part.as_bfloat16 = from.as_bfloat16();
  ASSIGN_OR_RETURN(part.want, In("want", kPullWants.ToDomain(from.want())));
  return part;
}

// Refuses a part that does not fit `asked`, before memory is allocated for it.
absl::StatusOr<PullPartReply> PartFrom(const v1::PullReplyHeader::Part& from, const PullPart& asked,
                                       PayloadFiller& filler) {
  PullPartReply part;
  ASSIGN_OR_RETURN(const DType dtype, In("dtype", FromProto(from.dtype())));
  ASSIGN_OR_RETURN(Shape shape, In("shape", ShapeFromProto(from.shape(), dtype)));
  if (asked.rows && (shape.rank() == 0 || shape.dim(0) != asked.rows->shape().num_elements()))
    return Invalid("", "has other rows than were asked for");
  const int64_t bytes = shape.num_elements() * DTypeSize(dtype);
  if (asked.reply_bytes >= 0 && bytes != asked.reply_bytes)
    return Invalid(
        "", absl::StrCat("has ", bytes, " bytes where ", asked.reply_bytes, " were asked for"));
  if (asked.may_lend) part.lent = filler.AddScattered(dtype, shape);
  if (part.lent == nullptr) {
    ASSIGN_OR_RETURN(part.values, filler.Add(dtype, std::move(shape)));
  }
  part.version = from.version();
  part.torn = from.torn();
  return part;
}

// A commit is computed from what has arrived row by row (CommitPlan). Longer rows are put together
// before, because they are part of what is reserved then.
constexpr int64_t kMostRowBytes = 1 << 20;

absl::StatusOr<CommitPart> PartFrom(const v1::CommitBegin::Part& from, PayloadFiller& filler) {
  CommitPart part;
  DIVVY_WIRE_READ(part.shard, from, shard);
  DIVVY_WIRE_READ_ENUM(part.op, from, op);
  if (from.has_rows()) {
    ASSIGN_OR_RETURN(part.rows, AddRows(from.rows(), filler));
  }
  ASSIGN_OR_RETURN(const DType dtype, In("dtype", FromProto(from.dtype())));
  ASSIGN_OR_RETURN(Shape shape, In("shape", ShapeFromProto(from.shape(), dtype)));
  if (!IsScatter(part.op) && shape.row_elements() * DTypeSize(dtype) <= kMostRowBytes)
    part.arrived = filler.AddScattered(dtype, shape);
  if (part.arrived == nullptr) {
    ASSIGN_OR_RETURN(part.values, filler.Add(dtype, std::move(shape)));
  }
  if (from.has_optimizer()) {
    ASSIGN_OR_RETURN(part.optimizer, In("optimizer", FromProto(from.optimizer())));
  }
  part.slots.assign(from.slots().begin(), from.slots().end());
  return part;
}

template <typename Parts, typename Out>
absl::Status ReadParts(const Parts& parts, PayloadFiller& filler, std::vector<Out>& out) {
  RETURN_IF_ERROR(CheckCount("parts", static_cast<size_t>(parts.size())));
  ASSIGN_OR_RETURN(
      out, ReadAll("parts", parts, [&filler](const auto& part) { return PartFrom(part, filler); }));
  return absl::OkStatus();
}

absl::Status AddTo(int64_t& bytes, int64_t count, int64_t size_each) {
  int64_t more = 0;
  const bool overflow = __builtin_mul_overflow(count, size_each, &more) ||
                        __builtin_add_overflow(bytes, more, &bytes);
  return overflow ? Invalid("parts", "are larger than can be counted") : absl::OkStatus();
}

// Whether a tensor of so many bytes is copied out of a region.
constexpr int64_t kKeptInRegion = 64 << 10;
bool IsCopied(DType dtype, int64_t bytes) { return dtype == DType::kBool || bytes < kKeptInRegion; }

absl::Status AddRowsTo(int64_t& bytes, int64_t rows) {
  RETURN_IF_ERROR(CheckNotNegative("rows", rows));
  return AddTo(bytes, rows, DTypeSize(DType::kInt64));
}

}  // namespace

// ---- sending ------------------------------------------------------------------------------------

namespace {

// The values of a part are `values`, or `pieces` if that is not null.
template <typename Part>
void Describe(const Tensor& values, const ScatteredTensor* pieces, Part& out) {
  out.set_dtype(ToProto(pieces != nullptr ? pieces->dtype() : values.dtype()));
  ToProto(pieces != nullptr ? pieces->shape() : values.shape(), out.mutable_shape());
}
void AddTo(std::vector<Tensor>& payload, const Tensor& values, const ScatteredTensor* pieces) {
  if (pieces == nullptr) return payload.push_back(values);
  for (Tensor& piece : pieces->Pieces()) payload.push_back(std::move(piece));
}

}  // namespace

OutgoingTransfer ToTransfer(uint64_t request_id, const PullRequest& request) {
  OutgoingTransfer transfer;
  transfer.header.set_request_id(request_id);
  v1::PullRequestHeader& header = *transfer.header.mutable_pull();
  *header.mutable_fence() = ToProto(request.fence);
  header.set_step(request.step.value());
  for (const PullPart& part : request.parts) {
    v1::PullRequestHeader::Part& out = *header.add_parts();
    *out.mutable_shard() = ToProto(part.shard);
    out.set_as_bfloat16(part.as_bfloat16);
    out.set_want(kPullWants.ToWire(part.want));
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
  header.set_served_ns(absl::ToInt64Nanoseconds(reply->served));
  for (const PullPartReply& part : reply->parts) {
    v1::PullReplyHeader::Part& out = *header.add_parts();
    Describe(part.values, part.lent.get(), out);
    out.set_version(part.version);
    out.set_torn(part.torn);
    AddTo(transfer.payload, part.values, part.lent.get());
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
  for (const InputLease& lease : request.inputs) *header.add_inputs() = ToProto(lease);
  header.set_tick(request.tick);
  for (const CommitPart& part : request.parts) {
    v1::CommitBegin::Part& out = *header.add_parts();
    *out.mutable_shard() = ToProto(part.shard);
    out.set_op(ToProto(part.op));
    Describe(part.values, part.arrived.get(), out);
    if (part.optimizer) *out.mutable_optimizer() = ToProto(*part.optimizer);
    out.set_slots(std::string(part.slots.begin(), part.slots.end()));
    if (part.rows) out.set_rows(part.rows->shape().num_elements());
  }
  transfer.payload = PayloadOf(request);
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
  header.set_served_ns(absl::ToInt64Nanoseconds(reply->served));
  return transfer;
}

std::vector<Tensor> PayloadOf(const CommitRequest& request) {
  std::vector<Tensor> payload;
  for (const CommitPart& part : request.parts) {
    if (part.rows) payload.push_back(*part.rows);
    AddTo(payload, part.values, part.arrived.get());
  }
  return payload;
}

OutgoingTransfer ToWaiting(uint64_t request_id) {
  OutgoingTransfer transfer;
  transfer.header.set_request_id(request_id);
  transfer.header.mutable_waiting();
  return transfer;
}

MessageCutter::MessageCutter(OutgoingTransfer transfer, int64_t message_bytes)
    : request_id_(transfer.header.request_id()),
      message_bytes_(message_bytes),
      first_front_(EncodeHeader(transfer.header)),
      payload_(std::move(transfer.payload)) {
  SkipEmpty();
}

void MessageCutter::SkipEmpty() {
  while (next_ < payload_.size() && offset_ == payload_[next_].size_bytes()) {
    // Only the messages hold what has been sent.
    payload_[next_++] = Tensor();
    offset_ = 0;
  }
}

MessageCutter::Message MessageCutter::Next() {
  Message message;
  if (!begun_) {
    message.front = std::move(first_front_);
    begun_ = true;
  } else {
    v1::FrameHeader more;
    more.set_request_id(request_id_);
    more.mutable_data();
    message.front = EncodeHeader(more);
  }
  for (int64_t room = message_bytes_; room > 0 && next_ < payload_.size(); SkipEmpty()) {
    const Tensor& tensor = payload_[next_];
    const int64_t some = std::min(room, tensor.size_bytes() - offset_);
    message.payload.push_back(
        {tensor, absl::string_view(tensor.data_as<char>() + offset_, static_cast<size_t>(some))});
    offset_ += some;
    room -= some;
  }
  return message;
}

// ---- the front of a message ---------------------------------------------------------------------

std::string EncodeHeader(const v1::FrameHeader& header) {
  const auto length = static_cast<uint32_t>(header.ByteSizeLong());
  std::string bytes(reinterpret_cast<const char*>(&length), kLengthBytes);
  header.AppendToString(&bytes);
  return bytes;
}

absl::StatusOr<size_t> HeaderBytes(absl::string_view first_four) {
  if (first_four.size() < kLengthBytes)
    return Invalid("", "a message of a data stream begins with four bytes of length");
  uint32_t length = 0;
  std::memcpy(&length, first_four.data(), kLengthBytes);
  if (length > kMaxHeaderBytes)
    return Invalid("",
                   absl::StrCat("a header of ", length, " bytes, the limit is ", kMaxHeaderBytes));
  return kLengthBytes + length;
}

// ---- receiving ----------------------------------------------------------------------------------

absl::Status CheckHeader(absl::string_view header) {
  using Format = google::protobuf::internal::WireFormatLite;
  // Each part is a field, and so is each input position of a commit.
  constexpr int kMostFields = kMaxParts + 100'000;
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(header.data()),
                                            static_cast<int>(header.size()));
  int fields = 0;
  while (const uint32_t tag = in.ReadTag()) {
    uint32_t size = 0;
    if (Format::GetTagWireType(tag) != Format::WIRETYPE_LENGTH_DELIMITED) {
      // Parsing will report it.
      if (!Format::SkipField(&in, tag)) break;
      continue;
    }
    if (!in.ReadVarint32(&size) || size > header.size()) break;
    const auto limit = in.PushLimit(static_cast<int>(size));
    while (const uint32_t inner = in.ReadTag()) {
      if (++fields > kMostFields)
        return Invalid("header", absl::StrCat("has more than ", kMostFields, " fields"));
      if (!Format::SkipField(&in, inner)) return absl::OkStatus();
    }
    if (in.BytesUntilLimit() != 0) break;
    in.PopLimit(limit);
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> PayloadBytes(const v1::PullRequestHeader& header) {
  RETURN_IF_ERROR(CheckCount("parts", static_cast<size_t>(header.parts_size())));
  int64_t bytes = 0;
  for (const v1::PullRequestHeader::Part& part : header.parts())
    RETURN_IF_ERROR(AddRowsTo(bytes, part.rows()));
  return bytes;
}

namespace {

// The size of a commit's payload, and of what is copied if it lies in a region.
struct CommitBytes {
  int64_t all = 0, copied = 0;
};

absl::StatusOr<CommitBytes> BytesOf(const v1::CommitBegin& header) {
  RETURN_IF_ERROR(CheckCount("parts", static_cast<size_t>(header.parts_size())));
  CommitBytes bytes;
  for (const v1::CommitBegin::Part& part : header.parts()) {
    RETURN_IF_ERROR(AddRowsTo(bytes.all, part.rows()));
    RETURN_IF_ERROR(AddRowsTo(bytes.copied, part.rows()));
    ASSIGN_OR_RETURN(const DType dtype, In("parts", In("dtype", FromProto(part.dtype()))));
    ASSIGN_OR_RETURN(const Shape shape,
                     In("parts", In("shape", ShapeFromProto(part.shape(), dtype))));
    const int64_t elements = shape.num_elements(), size_each = DTypeSize(dtype);
    RETURN_IF_ERROR(AddTo(bytes.all, elements, size_each));
    // The product fits, because AddTo has made it.
    if (IsCopied(dtype, elements * size_each))
      RETURN_IF_ERROR(AddTo(bytes.copied, elements, size_each));
  }
  if (bytes.all != header.total_bytes())
    return Invalid("total_bytes",
                   absl::StrCat("is ", header.total_bytes(), ", and the parts make ", bytes.all));
  return bytes;
}

}  // namespace

absl::StatusOr<int64_t> PayloadBytes(const v1::CommitBegin& header) {
  ASSIGN_OR_RETURN(const CommitBytes bytes, BytesOf(header));
  return bytes.all;
}

absl::StatusOr<int64_t> CopiedBytes(const v1::CommitBegin& header) {
  ASSIGN_OR_RETURN(const CommitBytes bytes, BytesOf(header));
  return bytes.copied;
}

absl::StatusOr<Tensor> PayloadFiller::Add(DType dtype, Shape shape) {
  if (region_ != nullptr)
    return IsCopied(dtype, shape.num_elements() * DTypeSize(dtype))
               ? AddChecked(dtype, std::move(shape))
               : region_->Next(dtype, std::move(shape));
  ASSIGN_OR_RETURN(Tensor tensor, Tensor::Uninitialized(dtype, std::move(shape)));
  if (__builtin_add_overflow(left_, tensor.size_bytes(), &left_))
    return Invalid("parts", "are larger than can be counted");
  const auto size = static_cast<size_t>(tensor.size_bytes());
  if (size > 0) holes_.push_back({tensor.fresh_data<char>(), size, dtype == DType::kBool, nullptr});
  return tensor;
}

std::shared_ptr<const ScatteredTensor> PayloadFiller::AddScattered(DType dtype,
                                                                   const Shape& shape) {
  const int64_t bytes = shape.num_elements() * DTypeSize(dtype);
  if (!kept_ || dtype == DType::kBool || bytes == 0 || bytes < kept_->least_tensor_bytes)
    return nullptr;
  int64_t left = 0;
  // Add reports the overflow.
  if (__builtin_add_overflow(left_, bytes, &left)) return nullptr;
  left_ = left;
  auto scattered = std::make_shared<ScatteredTensor>(dtype, shape);
  holes_.push_back({nullptr, static_cast<size_t>(bytes), false, scattered});
  return scattered;
}

absl::StatusOr<Tensor> PayloadFiller::AddChecked(DType dtype, Shape shape) {
  if (region_ == nullptr) return Add(dtype, std::move(shape));
  ASSIGN_OR_RETURN(const Tensor there, region_->Next(dtype, std::move(shape)));
  ASSIGN_OR_RETURN(Tensor here, Tensor::Uninitialized(dtype, there.shape()));
  const auto size = static_cast<size_t>(there.size_bytes());
  if (size == 0) return here;
  std::memcpy(here.fresh_data<char>(), there.data(), size);
  if (dtype == DType::kBool)
    RETURN_IF_ERROR(CheckBools(absl::string_view(here.data_as<char>(), size)));
  return here;
}

int64_t PayloadFiller::KeptOf(int64_t bytes) const {
  int64_t kept = 0;
  size_t filled = filled_;
  for (size_t i = next_; i < holes_.size() && bytes > 0; ++i, filled = 0) {
    const int64_t some = std::min(bytes, static_cast<int64_t>(holes_[i].size - filled));
    if (holes_[i].scattered != nullptr) kept += some;
    bytes -= some;
  }
  return kept;
}

absl::Status PayloadFiller::Take(absl::string_view bytes,
                                 const std::shared_ptr<const void>& keeper) {
  if (bytes.size() > static_cast<uint64_t>(left_))
    return Invalid("payload",
                   absl::StrCat(bytes.size(), " bytes came where ", left_, " were left"));
  left_ -= static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    const Hole& hole = holes_[next_];
    const absl::string_view some = bytes.substr(0, hole.size - filled_);
    if (hole.bools) RETURN_IF_ERROR(CheckBools(some));
    if (hole.scattered == nullptr)
      std::memcpy(hole.data + filled_, some.data(), some.size());
    else if (keeper == nullptr || some.size() < kept_->least_piece_bytes)
      hole.scattered->AddCopy(some);
    else
      hole.scattered->Add(some, keeper);
    bytes.remove_prefix(some.size());
    filled_ += some.size();
    if (filled_ < hole.size) continue;
    ++next_;
    filled_ = 0;
  }
  return absl::OkStatus();
}

absl::StatusOr<PullRequest> FromHeader(const v1::PullRequestHeader& header, PayloadFiller& filler) {
  PullRequest request;
  DIVVY_WIRE_READ(request.fence, header, fence);
  request.step = EntryId(header.step());
  RETURN_IF_ERROR(ReadParts(header.parts(), filler, request.parts));
  return request;
}

absl::StatusOr<CommitRequest> FromHeader(const v1::CommitBegin& header, PayloadFiller& filler) {
  CommitRequest request;
  DIVVY_WIRE_READ(request.fence, header, fence);
  request.entry = EntryId(header.entry());
  request.attempt = header.attempt();
  DIVVY_WIRE_READ_ENUM(request.kind, header, kind);
  RETURN_IF_ERROR(CheckIndex("participants", header.participants()));
  request.participants = static_cast<int>(header.participants());
  request.tick = header.tick();
  ASSIGN_OR_RETURN(request.inputs,
                   ReadAll("inputs", header.inputs(),
                           [](const v1::InputLease& lease) { return FromProto(lease); }));
  RETURN_IF_ERROR(ReadParts(header.parts(), filler, request.parts));
  return request;
}

absl::StatusOr<PullReply> FromHeader(const v1::PullReplyHeader& header, const PullRequest& asked,
                                     PayloadFiller& filler) {
  const size_t count = static_cast<size_t>(header.parts_size());
  if (count != asked.parts.size())
    return Invalid("parts", absl::StrCat("has ", count, " elements where ", asked.parts.size(),
                                         " were asked for"));
  RETURN_IF_ERROR(CheckCount("parts", count));
  PullReply reply;
  RETURN_IF_ERROR(CheckNotNegative("served_ns", header.served_ns()));
  reply.served = absl::Nanoseconds(header.served_ns());
  auto part = asked.parts.begin();
  ASSIGN_OR_RETURN(reply.parts, ReadAll("parts", header.parts(), [&](const auto& from) {
                     return PartFrom(from, *part++, filler);
                   }));
  return reply;
}

absl::StatusOr<CommitReply> FromHeader(const v1::CommitReplyHeader& header,
                                       const CommitRequest& asked, PayloadFiller&) {
  const size_t wanted = header.duplicate() ? 0 : asked.parts.size();
  if (static_cast<size_t>(header.versions_size()) != wanted)
    return Invalid("versions",
                   absl::StrCat("has ", header.versions_size(), " elements, not ", wanted));
  CommitReply reply;
  reply.duplicate = header.duplicate();
  reply.applied_seq = header.applied_seq();
  reply.versions.assign(header.versions().begin(), header.versions().end());
  RETURN_IF_ERROR(CheckNotNegative("served_ns", header.served_ns()));
  reply.served = absl::Nanoseconds(header.served_ns());
  return reply;
}

}  // namespace divvy::wire
