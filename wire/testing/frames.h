// Sends transfers of the data streams from one end to the other within a process. For tests and
// fuzzers.
#ifndef DIVVY_WIRE_TESTING_FRAMES_H_
#define DIVVY_WIRE_TESTING_FRAMES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "protocol/error.h"
#include "wire/data_frames.h"
#include "wire/testing/same.h"

namespace divvy::wire::testing {

// The messages of `transfer`, as bytes.
inline std::vector<std::string> MessagesOf(OutgoingTransfer transfer, int64_t message_bytes) {
  std::vector<std::string> messages;
  for (MessageCutter cutter(std::move(transfer), message_bytes); !cutter.done();) {
    MessageCutter::Message message = cutter.Next();
    for (const MessageCutter::Piece& piece : message.payload)
      message.front.append(piece.bytes.data(), piece.bytes.size());
    messages.push_back(std::move(message.front));
  }
  return messages;
}

// Returns the header of a message, and sets `rest` to its payload.
inline absl::StatusOr<v1::FrameHeader> Opened(absl::string_view message, absl::string_view& rest) {
  DIVVY_ASSIGN_OR_RETURN(const size_t front, HeaderBytes(message.substr(0, kLengthBytes)));
  v1::FrameHeader header;
  const absl::string_view bytes = message.substr(kLengthBytes, front - kLengthBytes);
  if (message.size() < front || !CheckHeader(bytes).ok() ||
      !header.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return MakeError(Reason::kInvalid, "no header");
  }
  rest = message.substr(front);
  return header;
}

// Decodes a request from its header. The pointer only chooses the type.
inline absl::StatusOr<PullRequest> Decoded(const v1::FrameHeader& header, const PullRequest*,
                                           PayloadFiller& filler) {
  DIVVY_RETURN_IF_ERROR(PayloadBytes(header.pull()));
  return FromHeader(header.pull(), filler);
}
inline absl::StatusOr<CommitRequest> Decoded(const v1::FrameHeader& header, const CommitRequest*,
                                             PayloadFiller& filler) {
  DIVVY_RETURN_IF_ERROR(PayloadBytes(header.commit()));
  return FromHeader(header.commit(), filler);
}

// Decodes a request from its messages.
template <typename Request>
absl::StatusOr<Request> Arrived(const std::vector<std::string>& messages,
                                PayloadFiller filler = PayloadFiller()) {
  absl::StatusOr<Request> request = MakeError(Reason::kInvalid, "no message");
  for (const std::string& message : messages) {
    // Freed as soon as the filler lets go of it.
    const auto kept = std::make_shared<const std::string>(message);
    absl::string_view payload;
    DIVVY_ASSIGN_OR_RETURN(const v1::FrameHeader header, Opened(*kept, payload));
    if (!header.has_data()) request = Decoded(header, static_cast<const Request*>(nullptr), filler);
    DIVVY_RETURN_IF_ERROR(request.status());
    DIVVY_RETURN_IF_ERROR(filler.Take(payload, kept));
  }
  if (filler.left() != 0) return MakeError(Reason::kInvalid, "the payload ends too early");
  return request;
}

// Takes the one message `bytes` for a Request and returns what is wrong; empty: nothing. Correct is
// a refusal with kInvalid, or a request that stays the same when it is sent again. A header that
// announces more bytes than there are is not followed: a receiver would reserve memory and wait.
template <typename Request>
std::string FrameFault(absl::string_view bytes) {
  absl::string_view payload;
  const absl::StatusOr<v1::FrameHeader> header = Opened(bytes, payload);
  if (!header.ok()) return "";
  const absl::StatusOr<int64_t> announced = std::is_same_v<Request, PullRequest>
                                                ? PayloadBytes(header->pull())
                                                : PayloadBytes(header->commit());
  if (announced.ok() && *announced != static_cast<int64_t>(payload.size())) return "";
  const absl::StatusOr<Request> request = Arrived<Request>({std::string(bytes)});
  if (!request.ok())
    return ReasonOf(request.status()) == Reason::kInvalid
               ? ""
               : "refused with " + request.status().ToString();
  const absl::StatusOr<Request> again =
      Arrived<Request>(MessagesOf(ToTransfer(1, *request), kMessageBytes));
  if (!again.ok()) return "accepted, but refused when it travels on: " + again.status().ToString();
  return Same::Of(*request, *again) ? "" : "changes when it travels on";
}

// Decodes the reply to `asked` from its header.
inline absl::StatusOr<PullReply> Answer(const v1::FrameHeader& header, const PullRequest& asked,
                                        PayloadFiller& filler) {
  return FromHeader(header.pull_reply(), asked, filler);
}
inline absl::StatusOr<CommitReply> Answer(const v1::FrameHeader& header, const CommitRequest& asked,
                                          PayloadFiller& filler) {
  return FromHeader(header.commit_reply(), asked, filler);
}
inline bool Answers(const PullReply& reply, const PullRequest& asked) {
  return reply.parts.size() == asked.parts.size();
}
inline bool Answers(const CommitReply& reply, const CommitRequest& asked) {
  return reply.duplicate || reply.versions.size() == asked.parts.size();
}

// Takes the one message `bytes` for the reply to `asked`, whose size is at most `most_bytes`, and
// returns what is wrong; empty: nothing.
template <typename Request>
std::string ReplyFault(absl::string_view bytes, const Request& asked, int64_t most_bytes) {
  absl::string_view payload;
  const absl::StatusOr<v1::FrameHeader> header = Opened(bytes, payload);
  if (!header.ok()) return "";
  PayloadFiller filler;
  const auto reply = Answer(*header, asked, filler);
  if (filler.left() > most_bytes) return "takes more memory than was asked for";
  if (!reply.ok())
    return ReasonOf(reply.status()) == Reason::kInvalid
               ? ""
               : "refused with " + reply.status().ToString();
  return Answers(*reply, asked) ? "" : "answers another number of parts";
}

}  // namespace divvy::wire::testing

#endif  // DIVVY_WIRE_TESTING_FRAMES_H_
