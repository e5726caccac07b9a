// Messages of the data streams: a protobuf header, and a payload of tensors' bytes that no protobuf field carries (proto/divvy.proto, "Data streams").
#ifndef DIVVY_WIRE_DATA_FRAMES_H_
#define DIVVY_WIRE_DATA_FRAMES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cluster/messages.h"
#include "proto/divvy.pb.h"

namespace divvy::wire {

// Everything here is pure. Decoding is total: InvalidArgument with Reason::kInvalid names the field, and no memory is taken before the sizes it is taken for have
// been checked.

// ---- sending: a header, and the tensors whose bytes are the payload, in order ----
struct OutgoingTransfer {
  v1::FrameHeader header;
  std::vector<Tensor> payload;
};
OutgoingTransfer ToTransfer(uint64_t request_id, const PullRequest& request);
OutgoingTransfer ToTransfer(uint64_t request_id, const absl::StatusOr<PullReply>& reply);
OutgoingTransfer ToTransfer(uint64_t request_id, const CommitRequest& request);
OutgoingTransfer ToTransfer(uint64_t request_id, const absl::StatusOr<CommitReply>& reply);

// The first bytes of a message: the header's length and the header.
std::string EncodeHeader(const v1::FrameHeader& header);
constexpr size_t kMaxHeaderBytes = size_t{8} << 20;
// How many bytes the header of a message takes with its length, from its first four bytes. InvalidArgument: more than kMaxHeaderBytes.
constexpr size_t kLengthBytes = 4;
absl::StatusOr<size_t> HeaderBytes(absl::string_view first_four);

// ---- receiving ----

// Bytes go one after another into the tensors that a header announced. Not thread-safe.
class PayloadFiller {
 public:
  // Makes the next tensor of the payload. ResourceExhausted: no memory.
  absl::StatusOr<Tensor> Add(DType dtype, Shape shape);
  // Takes the next bytes. InvalidArgument: more than are left.
  absl::Status Take(absl::string_view bytes);
  int64_t left() const { return left_; }

 private:
  struct Hole {
    char* data;
    size_t size;
  };
  std::vector<Hole> holes_;
  size_t next_ = 0;        // the hole that is being filled ...
  size_t filled_ = 0;      // ... and how much of it is
  int64_t left_ = 0;
};

// What the header says, its tensors made but not filled yet: nobody may look at them before `filler` has nothing left.
absl::StatusOr<PullRequest> FromHeader(const v1::PullRequestHeader& header, PayloadFiller& filler);
absl::StatusOr<PullReply> FromHeader(const v1::PullReplyHeader& header, PayloadFiller& filler);     // or the error that it carries
absl::StatusOr<CommitRequest> FromHeader(const v1::CommitBegin& header, PayloadFiller& filler);
absl::StatusOr<CommitReply> FromHeader(const v1::CommitReplyHeader& header, PayloadFiller& filler);

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_DATA_FRAMES_H_
