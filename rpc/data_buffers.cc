#include "rpc/data_buffers.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "protocol/error.h"

namespace divvy {
namespace {

grpc::Slice Borrow(wire::MessageCutter::Piece piece) {
  auto* const keeper = new Tensor(std::move(piece.tensor));
  return grpc::Slice(
      const_cast<char*>(piece.bytes.data()), piece.bytes.size(),
      [](void* kept) { delete static_cast<Tensor*>(kept); }, keeper);
}

grpc::ByteBuffer ToBuffer(wire::MessageCutter::Message message) {
  std::vector<grpc::Slice> slices;
  slices.reserve(message.payload.size() + 1);
  slices.emplace_back(message.front);
  for (wire::MessageCutter::Piece& piece : message.payload)
    slices.push_back(Borrow(std::move(piece)));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::string_view BytesOf(const grpc::Slice& slice) {
  return absl::string_view(reinterpret_cast<const char*>(slice.begin()), slice.size());
}

// A shorter message is copied: it may lie in memory that it shares with others.
constexpr int64_t kLeastKept = 64 << 10;

// Moves the first `size` bytes of `pieces`, or all if there are fewer, into a string.
std::string TakeFront(std::vector<absl::string_view>& pieces, size_t size) {
  std::string front;
  size_t used = 0;
  for (absl::string_view& piece : pieces) {
    const size_t some = std::min(piece.size(), size - front.size());
    front.append(piece.data(), some);
    piece.remove_prefix(some);
    if (!piece.empty()) break;
    ++used;
  }
  pieces.erase(pieces.begin(), pieces.begin() + static_cast<std::ptrdiff_t>(used));
  return front;
}

}  // namespace

void OutgoingMessages::Drop(uint64_t request_id) {
  const auto is_it = [=](const Transfer& transfer) {
    return transfer.cutter.request_id() == request_id;
  };
  if (std::none_of(transfers_.begin(), transfers_.end(), is_it)) return;
  std::deque<Transfer> kept;
  for (Transfer& transfer : transfers_) {
    if (!is_it(transfer)) kept.push_back(std::move(transfer));
  }
  transfers_ = std::move(kept);
}

OutgoingMessages::Message OutgoingMessages::Next() {
  Transfer& transfer = transfers_.front();
  Message message{ToBuffer(transfer.cutter.Next()), nullptr};
  if (!transfer.cutter.done()) return message;
  message.sent = std::move(transfer.sent);
  transfers_.pop_front();
  return message;
}

void LetGo(IncomingMessage& message) {
  message.header = v1::FrameHeader();
  message.payload = {};
  message.slices = {};
}

absl::StatusOr<IncomingMessage> FromBuffer(grpc::ByteBuffer& buffer) {
  IncomingMessage message{std::make_unique<grpc::ByteBuffer>(), {}, {}, {}};
  message.whole->Swap(&buffer);
  if (!message.whole->Dump(&message.slices).ok())
    return MakeError(Reason::kInvalid, "a message of a data stream cannot be read");
  for (const grpc::Slice& slice : message.slices) message.payload.push_back(BytesOf(slice));
  const std::string length = TakeFront(message.payload, wire::kLengthBytes);
  ASSIGN_OR_RETURN(const size_t front_bytes, wire::HeaderBytes(length));
  const size_t header_bytes = front_bytes - wire::kLengthBytes;
  const std::string header = TakeFront(message.payload, header_bytes);
  if (header.size() != header_bytes)
    return MakeError(Reason::kInvalid, "a message of a data stream ends within its header");
  RETURN_IF_ERROR(wire::CheckHeader(header));
  if (!message.header.ParseFromString(header))
    return MakeError(Reason::kInvalid, "the header of a message of a data stream cannot be parsed");
  return message;
}

int64_t PayloadBytes(const IncomingMessage& message) {
  int64_t bytes = 0;
  for (const absl::string_view piece : message.payload) bytes += static_cast<int64_t>(piece.size());
  return bytes;
}

absl::Status TakePayload(IncomingMessage message, wire::PayloadFiller& filler) {
  const int64_t bytes = PayloadBytes(message);
  const std::vector<absl::string_view> payload = std::move(message.payload);
  const auto whole = static_cast<int64_t>(message.whole->Length());
  std::shared_ptr<const IncomingMessage> keeper;
  if (whole >= kLeastKept && 2 * filler.KeptOf(bytes) >= whole) {
    message.header = v1::FrameHeader();
    keeper = std::make_shared<const IncomingMessage>(std::move(message));
  }
  for (const absl::string_view piece : payload) RETURN_IF_ERROR(filler.Take(piece, keeper));
  return absl::OkStatus();
}

}  // namespace divvy
