#include "rpc/data_call.h"

#include <utility>

#include "rpc/status.h"

namespace divvy {

DataCall::DataCall(const Host& host)
    : active_(host.calls),
      host_(host),
      stream_(&context_),
      accepted_{this, &DataCall::OnAccepted},
      read_{this, &DataCall::OnRead},
      written_{this, &DataCall::OnWritten},
      finished_{this, &DataCall::OnFinished},
      gone_{this, &DataCall::OnGone} {}

void DataCall::Accept(const Host& host) {
  std::shared_ptr<DataCall> call(new DataCall(host));
  DataCall& waiting = *call;
  waiting.self_ = std::move(call);
  waiting.operations_ = 1;
  waiting.context_.AsyncNotifyWhenDone(const_cast<Event*>(&waiting.gone_));
  host.service.RequestCall(&waiting.context_, &waiting.stream_, &host.queue, &host.queue,
                           const_cast<Event*>(&waiting.accepted_));
}

void DataCall::Happened(void* tag, bool ok) {
  const Event& event = *static_cast<const Event*>(tag);
  DataCall& call = *event.call;
  call.Do([&call, &event, ok] {
    --call.operations_;
    (call.*event.happened)(ok);
  });
}

void DataCall::Do(std::function<void()> effect) {
  // The outbox must live until it is drained.
  const std::shared_ptr<DataCall> self = shared_from_this();
  outbox_.Add([this, self, effect = std::move(effect)] {
    effect();
    ReadOn();
    owed_ = writing_ || (receiver_ != nullptr && !over_ && receiver_->OwesPayload());
    if (operations_ == 0) self_.reset();
  });
  outbox_.Drain();
}

void DataCall::DoAfter(absl::Duration delay, std::function<void()> effect) {
  host_.executor.PostAfter(delay, [weak = weak_from_this(), effect = std::move(effect)] {
    if (const auto call = weak.lock()) call->Do(effect);
  });
}

// gRPC reports gone_ for every accepted call, and for no other call.
void DataCall::OnAccepted(bool ok) {
  if (!ok) return;
  ++operations_;
  host_.accept_next();
  Begin();
}

void DataCall::Begin() {
  absl::StatusOr<std::unique_ptr<MessageReceiver>> receiver = host_.make_receiver(*this);
  if (!receiver.ok()) return End(receiver.status());
  receiver_ = *std::move(receiver);
  const std::weak_ptr<DataCall> weak = weak_from_this();
  const auto cancel = [weak] {
    if (const auto call = weak.lock()) call->context_.TryCancel();
  };
  const auto owed = [weak] {
    const auto call = weak.lock();
    return call != nullptr && call->owed_;
  };
  watch_ = SilenceWatch::Start(host_.executor, host_.silence, cancel, owed);
}

void DataCall::ReadOn() {
  if (reading_ || over_ || receiver_ == nullptr || !receiver_->WantsMessage()) return;
  reading_ = true;
  ++operations_;
  stream_.Read(&incoming_, const_cast<Event*>(&read_));
}

void DataCall::OnRead(bool ok) {
  reading_ = false;
  if (over_) return;
  // The client has sent all its messages, or is gone.
  if (!ok) return End(absl::OkStatus());
  absl::StatusOr<IncomingMessage> message = FromBuffer(incoming_);
  const absl::Status taken =
      message.ok() ? receiver_->OnMessage(*std::move(message)) : message.status();
  if (!taken.ok()) return End(taken);
  if (receiver_->HasProceeded()) watch_->Heard();
}

void DataCall::Send(wire::OutgoingTransfer transfer, std::function<void()> sent) {
  if (over_) return;
  outgoing_.Add(std::move(transfer), std::move(sent));
  WriteOn();
}

void DataCall::WriteOn() {
  if (writing_ || outgoing_.empty()) return;
  OutgoingMessages::Message message = outgoing_.Next();
  writing_ = true;
  sent_ = std::move(message.sent);
  ++operations_;
  stream_.Write(message.bytes, const_cast<Event*>(&written_));
}

void DataCall::OnWritten(bool ok) {
  writing_ = false;
  const std::function<void()> sent = std::exchange(sent_, nullptr);
  if (over_) return FinishNow();
  if (!ok) return End(absl::OkStatus());
  watch_->Heard();
  if (sent != nullptr) sent();
  WriteOn();
}

void DataCall::End(const absl::Status& status) {
  if (std::exchange(over_, true)) return;
  end_ = status;
  outgoing_.Clear();
  if (receiver_ != nullptr) receiver_->OnOver();
  if (!writing_) FinishNow();
}

// A stream that is gone needs no status.
void DataCall::FinishNow() {
  if (is_gone_) return;
  ++operations_;
  stream_.Finish(ToGrpc(end_), const_cast<Event*>(&finished_));
}

void DataCall::OnGone(bool) {
  is_gone_ = true;
  if (watch_ != nullptr) watch_->Stop();
  End(absl::OkStatus());
}

}  // namespace divvy
