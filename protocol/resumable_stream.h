// A stream of messages that survives its connection: numbered, acknowledged, resumed.
#ifndef DIVVY_PROTOCOL_RESUMABLE_STREAM_H_
#define DIVVY_PROTOCOL_RESUMABLE_STREAM_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "protocol/ids.h"

namespace divvy {

// What travels on a connection of a Steps stream. The first frame each way is a Resume (`resume`
// set, no message).
template <typename Message>
struct StreamFrame {
  SessionId session;
  bool resume = false;
  uint64_t acknowledged = 0;  // the highest number received from the other side
  uint64_t number = 0;        // of `message`; 0: none
  std::optional<Message> message;
};

// One end of the stream. While the session lives no message is lost, doubled or overtaken by
// another, over any number of broken connections. Pure: it sends nothing itself. Not thread-safe
// (each core keeps it under its lock). Memory: what has been sent and not acknowledged is kept,
// without a bound; every frame from the other side acknowledges, so a side that has nothing to say
// sends an Acknowledgement now and then.
//
//   // kept until acknowledged; goes out only while connected
//   on Send:            transport(stream.Send(message));
//   on a connection:    transport(stream.Connect());               // the Resume frame
//   // DataLoss: close the connection and open another
//   on a frame:         status = stream.Receive(std::move(frame), resend, message);
//                       transport(each of resend);  if (message) handle(*message);
template <typename Out, typename In>
class ResumableStream {
 public:
  explicit ResumableStream(SessionId session) : session_(session) {}

  // A new connection: forgets the old one. Returns the Resume frame to send first.
  StreamFrame<Out> Connect() {
    connected_ = true;
    resumed_ = false;
    StreamFrame<Out> frame = Bare();
    frame.resume = true;
    return frame;
  }
  void Disconnect() { connected_ = resumed_ = false; }

  // Numbers and keeps `message`. Returns the frame to send, or nullopt where it must wait for the
  // Resume of the other side.
  std::optional<StreamFrame<Out>> Send(Out message) {
    unacknowledged_.push_back({++last_sent_, std::move(message)});
    if (!resumed_) return std::nullopt;
    return Frame(unacknowledged_.back());
  }

  // Takes in a frame. Appends to `resend` what the other side has not got (after its Resume), to be
  // put on the wire first. Sets `message` if the frame brings one that is new, else clears it.
  // DataLoss: a gap, or an acknowledgement of what was never sent (the connection must be broken
  // and opened again); FailedPrecondition: another session's frame, to be dropped.
  absl::Status Receive(StreamFrame<In> frame, std::vector<StreamFrame<Out>>& resend,
                       std::optional<In>& message) {
    message.reset();
    if (frame.session != session_)
      return absl::FailedPreconditionError("a frame of another session");
    if (frame.acknowledged > last_sent_)
      return absl::DataLossError("a message is acknowledged that was never sent");
    while (!unacknowledged_.empty() && unacknowledged_.front().first <= frame.acknowledged)
      unacknowledged_.pop_front();
    if (frame.resume && connected_) {
      resumed_ = true;
      for (const auto& kept : unacknowledged_) resend.push_back(Frame(kept));
    }
    if (!frame.message || frame.number <= last_received_) return absl::OkStatus();
    if (frame.number != last_received_ + 1) return absl::DataLossError("a gap in the stream");
    last_received_ = frame.number;
    message = std::move(frame.message);
    return absl::OkStatus();
  }

  // A frame that only acknowledges, for a side that has nothing to say.
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
