// What both ends of a Steps stream do with frames: several travel in one message.
#ifndef DIVVY_RPC_FRAME_QUEUE_H_
#define DIVVY_RPC_FRAME_QUEUE_H_

#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "protocol/error.h"
#include "protocol/resumable_stream.h"
#include "wire/steps.h"

namespace divvy {

// The frames that wait to be written on one connection. A stream writes one message at a time; the
// frames that come meanwhile travel together in the next message. A message costs a system call and
// two wake-ups, which is more than most steps do (bench:steps). Not thread-safe.
//
// `Frame` is v1::ToWorkerFrame or v1::FromWorkerFrame.
template <typename Frame>
class FrameQueue {
 public:
  // A message gets frames until it has so many, or so many bytes.
  static constexpr int kMostFrames = 64;
  static constexpr size_t kMostBytes = 64 << 10;

  // Adds a frame. Returns the message to write now; null: one is being written.
  const Frame* Add(Frame frame) {
    if (frame.resume()) frame.set_reads_more(true);
    waiting_.push_back(std::move(frame));
    return writing_ ? nullptr : Next();
  }
  // The message was written. Returns the next one to write, which is valid until the next call;
  // null: no frame waits.
  const Frame* Next() {
    writing_ = !waiting_.empty();
    if (!writing_) return nullptr;
    message_ = std::move(waiting_.front());
    waiting_.pop_front();
    size_t bytes = message_.ByteSizeLong();
    while (other_reads_more_ && !waiting_.empty() && message_.more_size() < kMostFrames - 1) {
      bytes += waiting_.front().ByteSizeLong();
      if (bytes > kMostBytes) break;
      *message_.add_more() = std::move(waiting_.front());
      waiting_.pop_front();
    }
    return &message_;
  }
  // Drops what waits.
  void Clear() { waiting_.clear(); }
  // A message of the other side: its first one, a resume, says whether it reads several frames in
  // one message.
  template <typename Message>
  void OnRead(const Message& message) {
    if (message.resume()) other_reads_more_ = message.reads_more();
  }

 private:
  std::deque<Frame> waiting_;
  Frame message_;
  bool writing_ = false, other_reads_more_ = false;
};

// The frames of a message that was read, in order. INVALID: one of them makes no sense; or there
// are more than kMostFrames; or a frame of `more` has frames of its own, or is a resume, which only
// the first frame of a connection may be.
template <typename Message, typename Frame>
absl::StatusOr<std::vector<StreamFrame<Message>>> FramesOf(const Frame& message) {
  if (message.more_size() >= FrameQueue<Frame>::kMostFrames) {
    return MakeError(Reason::kInvalid, absl::StrCat("more: has ", message.more_size(),
                                                    " frames, and may have at most ",
                                                    FrameQueue<Frame>::kMostFrames - 1));
  }
  std::vector<StreamFrame<Message>> frames;
  const auto add = [&frames](const Frame& frame) {
    absl::StatusOr<StreamFrame<Message>> decoded = wire::FromProto(frame);
    if (decoded.ok()) frames.push_back(*std::move(decoded));
    return decoded.status();
  };
  absl::Status refused = add(message);
  for (const Frame& frame : message.more()) {
    if (refused.ok() && frame.more_size() > 0)
      refused = MakeError(Reason::kInvalid, "more: a frame of this field has frames of its own");
    if (refused.ok() && frame.resume())
      refused = MakeError(Reason::kInvalid, "more: a frame of this field is a resume");
    if (refused.ok()) refused = add(frame);
    if (!refused.ok()) return refused;
  }
  if (!refused.ok()) return refused;
  return frames;
}

}  // namespace divvy

#endif  // DIVVY_RPC_FRAME_QUEUE_H_
