// Messages of the data streams as gRPC carries them.
#ifndef DIVVY_RPC_DATA_BUFFERS_H_
#define DIVVY_RPC_DATA_BUFFERS_H_

#include <deque>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "wire/data_frames.h"

namespace divvy {

// The messages of one transfer, in order: the header with the first of the payload, then the rest in messages of a few MiB. Slices borrow the tensors' memory and
// keep the tensors until gRPC is done with them.
std::deque<grpc::ByteBuffer> ToMessages(const wire::OutgoingTransfer& transfer);

// A message taken apart. Pieces of the payload lie in `slices`, which they keep.
struct IncomingMessage {
  v1::FrameHeader header;
  std::vector<grpc::Slice> slices;
  std::vector<absl::string_view> payload;
};
// InvalidArgument (Reason::kInvalid): bytes that are no message.
absl::StatusOr<IncomingMessage> FromMessage(const grpc::ByteBuffer& buffer);

}  // namespace divvy

#endif  // DIVVY_RPC_DATA_BUFFERS_H_
