// Messages of the data streams as gRPC carries them.
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

// The transfers that one end of a stream has to send, message by message. Slices borrow the
// tensors' memory and hold the tensors until gRPC is done with them. Not thread-safe.
class OutgoingMessages {
 public:
  // `sent` comes out with the last message; it is dropped with a transfer that is dropped.
  void Add(wire::OutgoingTransfer transfer, std::function<void()> sent = nullptr) {
    transfers_.push_back({wire::MessageCutter(std::move(transfer)), std::move(sent)});
  }
  // What has not been sent of the transfer is not sent any more.
  void Drop(uint64_t request_id);
  void Clear() { transfers_.clear(); }
  bool empty() const { return transfers_.empty(); }

  struct Message {
    grpc::ByteBuffer bytes;
    // Of its transfer; null: there is more of it, or nobody wants to know.
    std::function<void()> sent;
  };
  // REQUIRES: not empty().
  Message Next();

 private:
  struct Transfer {
    wire::MessageCutter cutter;  // not done
    std::function<void()> sent;
  };
  std::deque<Transfer> transfers_;
};

// A message taken apart. The payload lies in `slices`, which share the memory of `whole`. gRPC 1.51
// ends the process if the last reference to such memory is let go outside of gRPC while the memory
// quota is used up, so the buffer itself, which gRPC frees, outlives the slices: it is the first
// member, and a message is moved but never assigned.
struct IncomingMessage {
  std::unique_ptr<grpc::ByteBuffer> whole;
  v1::FrameHeader header;
  std::vector<grpc::Slice> slices;
  std::vector<absl::string_view> payload;
};
// Gives back the memory of all but the bytes themselves, which FromBuffer makes a message again;
// for one that has to wait.
void LetGo(IncomingMessage& message);
// Leaves `buffer` empty. InvalidArgument (Reason::kInvalid): bytes that are no message.
absl::StatusOr<IncomingMessage> FromBuffer(grpc::ByteBuffer& buffer);
// Copies the message's payload to where it belongs. Errors as PayloadFiller::Take.
absl::Status TakePayload(const IncomingMessage& message, wire::PayloadFiller& filler);

}  // namespace divvy

#endif  // DIVVY_RPC_DATA_BUFFERS_H_
