// Messages of the data streams: a protobuf header, and a payload of tensors' bytes that no protobuf
// field carries (proto/divvy.proto, "Data streams").
#ifndef DIVVY_WIRE_DATA_FRAMES_H_
#define DIVVY_WIRE_DATA_FRAMES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/divvy.pb.h"
#include "protocol/messages.h"

namespace divvy::wire {

// Everything here is pure and thread-safe unless it says otherwise. Decoding is total:
// InvalidArgument with Reason::kInvalid names the field; sizes are checked, their products and sums
// too, before memory of that size is asked for.

// ---- sending ------------------------------------------------------------------------------------

// A header, and the tensors whose bytes, one after another, are the payload. REQUIRES of what it is
// made from: tensors on the CPU.
struct OutgoingTransfer {
  v1::FrameHeader header;
  std::vector<Tensor> payload;
};
OutgoingTransfer ToTransfer(uint64_t request_id, const PullRequest& request);
OutgoingTransfer ToTransfer(uint64_t request_id, const absl::StatusOr<PullReply>& reply);
OutgoingTransfer ToTransfer(uint64_t request_id, const CommitRequest& request);
OutgoingTransfer ToTransfer(uint64_t request_id, const absl::StatusOr<CommitReply>& reply);
// Not the answer yet: the request waits for memory.
OutgoingTransfer ToWaiting(uint64_t request_id);

// Of the payload of one message: 1 to 4 MiB move at the speed of the wire, 64 KiB cost 40 % of it.
constexpr int64_t kMessageBytes = int64_t{2} << 20;

// The messages of a transfer, one by one: the header with the first of the payload, then the rest.
// Not thread-safe.
//
//   for (MessageCutter cutter(transfer); !cutter.done();) Send(cutter.Next());
class MessageCutter {
 public:
  // A part of a tensor; the tensor keeps the bytes.
  struct Piece {
    Tensor tensor;
    absl::string_view bytes;
  };
  struct Message {
    std::string front;  // length and header
    std::vector<Piece> payload;
  };
  explicit MessageCutter(OutgoingTransfer transfer, int64_t message_bytes = kMessageBytes);

  uint64_t request_id() const { return request_id_; }
  bool done() const { return begun_ && next_ == payload_.size(); }  // there is no further message
  Message Next();                                                   // REQUIRES: not done()

 private:
  void SkipEmpty();

  const uint64_t request_id_;
  const int64_t message_bytes_;
  std::string first_front_;
  std::vector<Tensor> payload_;
  bool begun_ = false;
  size_t next_ = 0;     // the tensor that is being sent ...
  int64_t offset_ = 0;  // ... and how much of it was
};

// ---- the front of a message ---------------------------------------------------------------------

constexpr size_t kLengthBytes = 4;
constexpr size_t kMaxHeaderBytes = size_t{8} << 20;

// Length and header.
std::string EncodeHeader(const v1::FrameHeader& header);
// How many bytes length and header take together, from the first four. InvalidArgument: fewer than
// four, or a header beyond kMaxHeaderBytes.
absl::StatusOr<size_t> HeaderBytes(absl::string_view first_four);
// To be asked of a header before it is parsed: two bytes of it can become a part, which takes
// hundreds. InvalidArgument: more fields in its kind than the most parts that a transfer may have
// would need.
absl::Status CheckHeader(absl::string_view header);

// ---- receiving ----------------------------------------------------------------------------------

// Of the payload that a request announces: what is reserved before FromHeader makes its tensors.
// InvalidArgument: too many parts, an unknown dtype, a shape that cannot be, sums that overflow, or
// (a commit) another total_bytes than its parts make.
absl::StatusOr<int64_t> PayloadBytes(const v1::PullRequestHeader& header);
absl::StatusOr<int64_t> PayloadBytes(const v1::CommitBegin& header);

// Bytes go one after another into the tensors that a header announced. Not thread-safe. REQUIRES:
// the tensors live as long as bytes come.
class PayloadFiller {
 public:
  // Makes the next tensor of the payload. ResourceExhausted: no memory. InvalidArgument: tensors of
  // more bytes than can be counted.
  absl::StatusOr<Tensor> Add(DType dtype, Shape shape);
  // Takes the next bytes. InvalidArgument: more than are left, or a bool that is neither 0 nor 1.
  absl::Status Take(absl::string_view bytes);
  int64_t left() const { return left_; }

 private:
  struct Hole {
    char* data;
    size_t size;
    bool bools;
  };
  std::vector<Hole> holes_;  // none is empty
  size_t next_ = 0;          // the hole that is being filled ...
  size_t filled_ = 0;        // ... and how much of it is
  int64_t left_ = 0;
};

// What a header says. Its tensors are made but not filled: nobody may look at them before `filler`
// has nothing left.
absl::StatusOr<PullRequest> FromHeader(const v1::PullRequestHeader& header, PayloadFiller& filler);
absl::StatusOr<CommitRequest> FromHeader(const v1::CommitBegin& header, PayloadFiller& filler);
// Answers to `asked`; another number of parts, rows or versions than were asked for is refused.
// REQUIRES: the header's status is OK.
absl::StatusOr<PullReply> FromHeader(const v1::PullReplyHeader& header, const PullRequest& asked,
                                     PayloadFiller& filler);
absl::StatusOr<CommitReply> FromHeader(const v1::CommitReplyHeader& header,
                                       const CommitRequest& asked, PayloadFiller& filler);

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_DATA_FRAMES_H_
