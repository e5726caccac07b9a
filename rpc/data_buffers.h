// The messages of the data streams, as gRPC's buffers.
#ifndef DIVVY_RPC_DATA_BUFFERS_H_
#define DIVVY_RPC_DATA_BUFFERS_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "wire/data_frames.h"

namespace divvy {

// The metadata of a data stream by which its two ends agree on shared memory (proto/divvy.proto,
// "Data streams").
constexpr char kMemoryMetadata[] = "divvy-memory";

// The transfers that one end of a stream still has to send, as a queue of messages. The slices of a
// message borrow the memory of the tensors, and keep the tensors alive until gRPC has released
// them. Not thread-safe.
class OutgoingMessages {
 public:
  // Appends a transfer. Next returns `sent` together with the transfer's last message. A dropped
  // transfer drops its `sent`.
  void Add(wire::OutgoingTransfer transfer, std::function<void()> sent = nullptr) {
    transfers_.push_back({wire::MessageCutter(std::move(transfer)), std::move(sent)});
  }
  // Drops the messages of this transfer that have not been sent. Unknown ids are ignored.
  void Drop(uint64_t request_id);
  void Clear() { transfers_.clear(); }
  bool empty() const { return transfers_.empty(); }

  struct Message {
    grpc::ByteBuffer bytes;
    // Set in the last message of a transfer. Null: the transfer has more messages, or it has no
    // `sent`.
    std::function<void()> sent;
  };
  // Takes the next message out of the queue. REQUIRES: not empty().
  Message Next();

 private:
  struct Transfer {
    wire::MessageCutter cutter;  // not done
    std::function<void()> sent;
  };
  std::deque<Transfer> transfers_;
};

// A decoded message. The payload lies in `slices`, which share the memory of `whole`. gRPC 1.51
// ends the process if the last reference to such memory is dropped outside of gRPC while the memory
// quota is used up. So the buffer, which gRPC frees, must outlive the slices: it is the first
// member, and a message may be moved but not assigned.
struct IncomingMessage {
  std::unique_ptr<grpc::ByteBuffer> whole;
  v1::FrameHeader header;
  std::vector<grpc::Slice> slices;
  std::vector<absl::string_view> payload;
};
// Frees the memory of everything but the raw bytes, for a message that has to wait. FromBuffer
// makes a message of the bytes again.
void LetGo(IncomingMessage& message);
// Decodes a message. Leaves `buffer` empty. InvalidArgument (Reason::kInvalid): the bytes are not a
// message.
absl::StatusOr<IncomingMessage> FromBuffer(grpc::ByteBuffer& buffer);
int64_t PayloadBytes(const IncomingMessage& message);
// Brings the payload to its destination. Keeps the message, instead of copying, only if most of it
// is what may be kept: so it takes at most twice the memory of the payload. Errors as for
// PayloadFiller::Take.
absl::Status TakePayload(IncomingMessage message, wire::PayloadFiller& filler);

}  // namespace divvy

#endif  // DIVVY_RPC_DATA_BUFFERS_H_
