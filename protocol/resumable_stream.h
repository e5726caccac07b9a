// A stream of messages that survives its connection: numbered, acknowledged, resumed.
#ifndef DIVVY_PROTOCOL_RESUMABLE_STREAM_H_
#define DIVVY_PROTOCOL_RESUMABLE_STREAM_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "protocol/ids.h"

namespace divvy {

// One frame on a connection of a Steps stream. The first frame each way is a Resume: `resume` is
// set, and it has no message.
template <typename Message>
struct StreamFrame {
  SessionId session;
  bool resume = false;
  // the highest number received from the other side
  uint64_t acknowledged = 0;
  // the number of `message`; 0: the frame has none
  uint64_t number = 0;
  std::optional<Message> message;
};

// One end of the stream. While the session lives, no message is lost, duplicated or reordered,
// however many connections break. Pure: the stream sends nothing itself. Not thread-safe: each core
// keeps it under its lock.
//
// Memory: the stream keeps every sent message until it is acknowledged, without a bound. Every
// frame from the other side acknowledges. So a side that has nothing to send still sends an
// Acknowledgement from time to time.
//
//   // The stream keeps the message. It is sent only while connected.
//   on Send:            transport(stream.Send(message));
//   on a connection:    transport(stream.Connect());  // the Resume frame
//   // After DataLoss: close the connection and open another.
//   on a frame:         status = stream.Receive(std::move(frame), resend, message);
//                       transport(each of resend);  if (message) handle(*message);
template <typename Out, typename In>
class ResumableStream {
 public:
  explicit ResumableStream(SessionId session) : session_(session) {}

  // Starts a new connection in place of the old one. Returns the Resume frame, to be sent first.
  StreamFrame<Out> Connect() {
    connected_ = true;
    resumed_ = false;
    StreamFrame<Out> frame = Bare();
    frame.resume = true;
    return frame;
  }
  void Disconnect() { connected_ = resumed_ = false; }

  // Numbers and keeps `message`. Returns the frame to send, or nullopt if the other side's Resume
  // has not arrived yet: Receive will add the message to `resend` then.
  std::optional<StreamFrame<Out>> Send(Out message) {
    unacknowledged_.push_back({++last_sent_, std::move(message)});
    if (!resumed_) return std::nullopt;
    return Frame(unacknowledged_.back());
  }

  // Takes a frame from the other side. If the frame is a Resume, the function appends to `resend`
  // the messages that the other side has not received; send them before any other. Sets `message`
  // if the frame has a new one, else clears it. DataLoss: a message number is missing, or a message
  // was acknowledged that was never sent; close the connection and open another.
  // FailedPrecondition: the frame belongs to another session; drop it.
  absl::Status Receive(StreamFrame<In> frame, std::vector<StreamFrame<Out>>& resend,
                       std::optional<In>& message) {
    message.reset();
    if (frame.session != session_)
      return absl::FailedPreconditionError(
          absl::StrCat("a frame of session ", frame.session.value(), " arrived on a connection of ",
                       "session ", session_.value()));
    if (frame.acknowledged > last_sent_)
      return absl::DataLossError(absl::StrCat("message ", frame.acknowledged,
                                              " was acknowledged, but only ", last_sent_,
                                              " were sent"));
    while (!unacknowledged_.empty() && unacknowledged_.front().first <= frame.acknowledged)
      unacknowledged_.pop_front();
    if (frame.resume && connected_) {
      resumed_ = true;
      for (const auto& kept : unacknowledged_) resend.push_back(Frame(kept));
    }
    if (!frame.message || frame.number <= last_received_) return absl::OkStatus();
    if (frame.number != last_received_ + 1)
      return absl::DataLossError(absl::StrCat("message ", frame.number, " arrived after message ",
                                              last_received_, ": the messages between are lost"));
    last_received_ = frame.number;
    message = std::move(frame.message);
    return absl::OkStatus();
  }

  // A frame without a message, for a side that has nothing to send.
  StreamFrame<Out> Acknowledgement() const { return Bare(); }

  SessionId session() const { return session_; }
  bool connected() const { return connected_; }
  size_t unacknowledged() const { return unacknowledged_.size(); }
  uint64_t last_received() const { return last_received_; }

 private:
  using Kept = std::pair<uint64_t, Out>;
  StreamFrame<Out> Bare() const {
    StreamFrame<Out> frame;
    frame.session = session_;
    frame.acknowledged = last_received_;
    return frame;
  }
  StreamFrame<Out> Frame(const Kept& kept) const {
    StreamFrame<Out> frame = Bare();
    frame.number = kept.first;
    frame.message = kept.second;
    return frame;
  }

  const SessionId session_;
  bool connected_ = false, resumed_ = false;
  uint64_t last_sent_ = 0, last_received_ = 0;
  std::deque<Kept> unacknowledged_;
};

}  // namespace divvy

#endif  // DIVVY_PROTOCOL_RESUMABLE_STREAM_H_
