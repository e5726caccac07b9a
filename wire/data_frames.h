// The messages of the data streams: a protobuf header, and a payload of tensor bytes outside
// protobuf (proto/divvy.proto, "Data streams").
#ifndef DIVVY_WIRE_DATA_FRAMES_H_
#define DIVVY_WIRE_DATA_FRAMES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/divvy.pb.h"
#include "protocol/messages.h"
#include "wire/region.h"

namespace divvy::wire {

// Everything here is pure and thread-safe unless it says otherwise. Decoding accepts any bytes: a
// bad message gives InvalidArgument with Reason::kInvalid, which names the field. All sizes, with
// their products and sums, are checked before memory of that size is allocated.

// ---- sending ------------------------------------------------------------------------------------

// A header, and the tensors whose bytes form the payload, one after another. REQUIRES: the tensors
// of the request or reply lie on the CPU.
struct OutgoingTransfer {
  v1::FrameHeader header;
  std::vector<Tensor> payload;
};
OutgoingTransfer ToTransfer(uint64_t request_id, const PullRequest& request);
OutgoingTransfer ToTransfer(uint64_t request_id, const absl::StatusOr<PullReply>& reply);
OutgoingTransfer ToTransfer(uint64_t request_id, const CommitRequest& request);
OutgoingTransfer ToTransfer(uint64_t request_id, const absl::StatusOr<CommitReply>& reply);
// The tensors of a request's payload, in their order.
std::vector<Tensor> PayloadOf(const CommitRequest& request);
// Not a reply: it tells the client that its request waits for memory.
OutgoingTransfer ToWaiting(uint64_t request_id);

// The payload of one message. 1 to 4 MiB reach the full speed of the network; 64 KiB lose 40 % of
// it.
constexpr int64_t kMessageBytes = int64_t{2} << 20;

// Cuts a transfer into messages: first the header with the beginning of the payload, then the rest
// of the payload. Not thread-safe.
//
//   for (MessageCutter cutter(transfer); !cutter.done();) Send(cutter.Next());
class MessageCutter {
 public:
  // A part of a tensor. The tensor keeps the bytes alive.
  struct Piece {
    Tensor tensor;
    absl::string_view bytes;
  };
  struct Message {
    // the length and the header
    std::string front;
    std::vector<Piece> payload;
  };
  explicit MessageCutter(OutgoingTransfer transfer, int64_t message_bytes = kMessageBytes);

  uint64_t request_id() const { return request_id_; }
  // There is no further message.
  bool done() const { return begun_ && next_ == payload_.size(); }
  // REQUIRES: not done()
  Message Next();

 private:
  void SkipEmpty();

  const uint64_t request_id_;
  const int64_t message_bytes_;
  std::string first_front_;
  std::vector<Tensor> payload_;
  bool begun_ = false;
  // the tensor that is being sent
  size_t next_ = 0;
  // the number of its bytes that have been sent
  int64_t offset_ = 0;
};

// ---- the front of a message ---------------------------------------------------------------------

constexpr size_t kLengthBytes = 4;
constexpr size_t kMaxHeaderBytes = size_t{8} << 20;

// Returns the length, then the header.
std::string EncodeHeader(const v1::FrameHeader& header);
// Returns the size of the length and the header together, from the first four bytes of a message.
// InvalidArgument: fewer than four bytes, or a header larger than kMaxHeaderBytes.
absl::StatusOr<size_t> HeaderBytes(absl::string_view first_four);
// Call this before parsing a header, because two bytes of a header can become a part of several
// hundred bytes. InvalidArgument: the header has more fields than the most parts of a transfer
// need.
absl::Status CheckHeader(absl::string_view header);

// ---- receiving ----------------------------------------------------------------------------------

// The size of the payload that a request announces. Receivers reserve it before FromHeader
// allocates the tensors. InvalidArgument: too many parts, an unknown dtype, an impossible shape, a
// sum that overflows, or a commit whose total_bytes is not the sum of its parts.
absl::StatusOr<int64_t> PayloadBytes(const v1::PullRequestHeader& header);
absl::StatusOr<int64_t> PayloadBytes(const v1::CommitBegin& header);

// The size of what a receiver copies of a payload that lies in a region (PayloadFiller). Errors as
// above.
absl::StatusOr<int64_t> CopiedBytes(const v1::CommitBegin& header);

// Fills the tensors that a header announced with the bytes of a payload. Not thread-safe. REQUIRES:
// the tensors live until the last byte has arrived.
class PayloadFiller {
 public:
  // What is not copied: a smaller tensor or piece is, because messages are freed as a whole, and a
  // piece costs some hundred bytes.
  struct KeptSizes {
    int64_t least_tensor_bytes = 256 << 10;
    size_t least_piece_bytes = 2 << 10;
  };
  // The payload arrives by Take.
  PayloadFiller() = default;
  // The payload arrives by Take, and large tensors for which AddScattered is called consist of the
  // bytes that Take is given, without a copy.
  explicit PayloadFiller(KeptSizes kept) : kept_(kept) {}
  // The payload lies in `region`, and nothing is left to take.
  explicit PayloadFiller(std::shared_ptr<Region> region) : region_(std::move(region)) {}

  // The next tensor of the payload: allocated, or in the region. A tensor of a region is copied out
  // of it if it is small, so that it does not keep the region's memory; or if it has bools, which
  // are checked. ResourceExhausted: no memory, or the region ends before it. InvalidArgument: the
  // sum of the tensors' sizes overflows, or a bool of the region is neither 0 nor 1.
  absl::StatusOr<Tensor> Add(DType dtype, Shape shape);
  // As Add, for numbers that are checked before they are used. They are copied out of the region,
  // whose other process could still change them.
  absl::StatusOr<Tensor> AddChecked(DType dtype, Shape shape);
  // As Add, for a tensor that may consist of the pieces in which it arrives. Null: it may not; call
  // Add instead.
  std::shared_ptr<const ScatteredTensor> AddScattered(DType dtype, const Shape& shape);
  // How many of the next `bytes` bytes of the payload may be kept instead of copied.
  int64_t KeptOf(int64_t bytes) const;
  // Takes the next bytes. `keeper` keeps them alive; null: they are copied. InvalidArgument: more
  // bytes than left(), or a bool that is neither 0 nor 1.
  absl::Status Take(absl::string_view bytes, const std::shared_ptr<const void>& keeper = nullptr);
  int64_t left() const { return left_; }

 private:
  struct Hole {
    // Null: the bytes become pieces of `scattered`.
    char* data;
    size_t size;
    bool bools;
    std::shared_ptr<ScatteredTensor> scattered;
  };
  // Null: the payload arrives by Take.
  std::shared_ptr<Region> region_;
  // Absent: everything is copied.
  std::optional<KeptSizes> kept_;
  // No hole is empty.
  std::vector<Hole> holes_;
  // the hole that is being filled
  size_t next_ = 0;
  // the number of its bytes that have been filled
  size_t filled_ = 0;
  int64_t left_ = 0;
};

// Decodes a request. Its tensors are allocated but not filled: do not read them before `filler` has
// nothing left.
absl::StatusOr<PullRequest> FromHeader(const v1::PullRequestHeader& header, PayloadFiller& filler);
absl::StatusOr<CommitRequest> FromHeader(const v1::CommitBegin& header, PayloadFiller& filler);
// Decodes a reply to `asked`. InvalidArgument if the numbers of parts, rows or versions differ from
// the request. REQUIRES: the header's status is OK.
absl::StatusOr<PullReply> FromHeader(const v1::PullReplyHeader& header, const PullRequest& asked,
                                     PayloadFiller& filler);
absl::StatusOr<CommitReply> FromHeader(const v1::CommitReplyHeader& header,
                                       const CommitRequest& asked, PayloadFiller& filler);

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_DATA_FRAMES_H_
