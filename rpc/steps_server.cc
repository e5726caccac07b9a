#include "rpc/steps_server.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "base/mutex.h"
#include "rpc/frame_queue.h"
#include "rpc/status.h"
#include "wire/steps.h"

namespace divvy {
namespace {

using Reactor = grpc::ServerBidiReactor<v1::ToWorkerFrame, v1::FromWorkerFrame>;

// Lives until gRPC is done with the call, or until the worker drops the connection, whichever is
// later.
class ServedSteps : public Reactor {
 public:
  explicit ServedSteps(Executor& executor) : executor_(executor) {}
  void Start(const std::shared_ptr<ServedSteps>& self, StepsAcceptor& acceptor,
             absl::Duration silence);

  void Send(const StreamFrame<FromWorker>& frame) {
    v1::FromWorkerFrame encoded = wire::ToProto(frame);
    MutexLock lock(mu_);
    if (finished_) return;
    if (const v1::FromWorkerFrame* const message = outgoing_.Add(std::move(encoded)))
      StartWrite(message);
  }
  void Close() {
    {
      MutexLock lock(mu_);
      closed_ = true;
    }
    FinishOnce(absl::OkStatus());
  }

  void OnReadDone(bool ok) override {
    if (!ok)
      return FinishOnce(absl::CancelledError(
          "the coordinator ended the stream, or sent bytes that are no frame"));
    watch_->Heard();
    absl::StatusOr<std::vector<StreamFrame<ToWorker>>> frames = FramesOf<ToWorker>(incoming_);
    if (!frames.ok()) return OnNonsense(frames.status());
    if (Admit(incoming_)) listener_->OnFrames(*std::move(frames));
    if (!finished()) StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(mu_);
    if (!ok || finished_) outgoing_.Clear();
    if (const v1::FromWorkerFrame* const message = outgoing_.Next()) StartWrite(message);
  }

  void OnCancel() override {
    FinishOnce(absl::CancelledError("the coordinator cancelled the stream"));
  }

  void OnDone() override {
    watch_->Stop();
    Executor& executor = executor_;  // this may be gone before Post returns
    executor.Post([self = std::move(self_)] {
      if (!self->closed()) self->listener_->OnBroken();
    });
  }

 private:
  void OnNonsense(const absl::Status& why) {
    static LogLimit* const limit = new LogLimit;
    const std::string text = absl::StrCat("the coordinator sent an invalid frame (", why.message(),
                                          "): its stream is closed");
    if (limit->Admit(text)) DIVVY_LOG(ERROR) << text;
    FinishOnce(why);
  }

  void FinishOnce(const absl::Status& status) {
    {
      MutexLock lock(mu_);
      if (std::exchange(finished_, true)) return;
    }
    Finish(ToGrpc(status));
  }

  bool closed() {
    MutexLock lock(mu_);
    return closed_;
  }
  bool finished() {
    MutexLock lock(mu_);
    return finished_;
  }

  // A message was read. False: the worker has closed, and does not get it.
  bool Admit(const v1::ToWorkerFrame& message) {
    MutexLock lock(mu_);
    outgoing_.OnRead(message);
    return !closed_;
  }

  Executor& executor_;
  std::shared_ptr<StreamListener<ToWorker>> listener_;
  std::shared_ptr<ServedSteps> self_;
  std::shared_ptr<SilenceWatch> watch_;
  v1::ToWorkerFrame incoming_;
  Mutex mu_;
  FrameQueue<v1::FromWorkerFrame> outgoing_ DIVVY_GUARDED_BY(mu_);
  bool finished_ DIVVY_GUARDED_BY(mu_) = false, closed_ DIVVY_GUARDED_BY(mu_) = false;
};

class AcceptedConnection : public StreamConnection<FromWorker> {
 public:
  explicit AcceptedConnection(std::shared_ptr<ServedSteps> call) : call_(std::move(call)) {}
  ~AcceptedConnection() override { call_->Close(); }
  void Send(StreamFrame<FromWorker> frame) override { call_->Send(frame); }
  void Close() override { call_->Close(); }

 private:
  const std::shared_ptr<ServedSteps> call_;
};

void ServedSteps::Start(const std::shared_ptr<ServedSteps>& self, StepsAcceptor& acceptor,
                        absl::Duration silence) {
  self_ = self;
  watch_ =
      SilenceWatch::Start(executor_, silence, [call = std::weak_ptr<ServedSteps>(self), silence] {
        if (const std::shared_ptr<ServedSteps> alive = call.lock())
          alive->FinishOnce(absl::CancelledError(absl::StrCat(
              "nothing has arrived from the coordinator for ", absl::FormatDuration(silence))));
      });
  listener_ = acceptor.Accept(std::make_shared<AcceptedConnection>(self));
  StartRead(&incoming_);
}

class Refusal : public Reactor {
 public:
  explicit Refusal(const absl::Status& why) { Finish(ToGrpc(why)); }
  void OnDone() override { delete this; }
};

}  // namespace

Reactor* ServeSteps(Executor& executor, const std::shared_ptr<StepsAcceptor>& acceptor,
                    absl::Duration silence) {
  auto call = std::make_shared<ServedSteps>(executor);
  call->Start(call, *acceptor, silence);
  return call.get();
}

Reactor* RefuseSteps(const absl::Status& why) { return new Refusal(why); }

}  // namespace divvy
