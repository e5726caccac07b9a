#include "rpc/steps_client.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "base/mutex.h"
#include "rpc/frame_queue.h"
#include "wire/steps.h"

namespace divvy {
namespace {

// Limits the log entries about invalid frames and silent workers. The coordinator soon opens a
// closed stream again, and the worker may repeat its fault each time.
LogLimit& StepsLogLimit() {
  static LogLimit* const limit = new LogLimit;
  return *limit;
}

// Lives until gRPC is done with the call (OnDone), or until the coordinator drops the connection,
// whichever is later.
class StepsCall : public grpc::ClientBidiReactor<v1::ToWorkerFrame, v1::FromWorkerFrame> {
 public:
  StepsCall(CallEnvironment environment, std::shared_ptr<v1::Worker::Stub> stub,
            std::shared_ptr<StreamListener<FromWorker>> listener)
      : environment_(std::move(environment)),
        stub_(std::move(stub)),
        listener_(std::move(listener)) {}

  void Start(const std::shared_ptr<StepsCall>& self, absl::Duration silence) {
    self_ = self;
    if (!environment_.open->Begin({self, &context_})) return OnBegunTooLate();
    watch_ = SilenceWatch::Start(environment_.executor, silence,
                                 [call = std::weak_ptr<StepsCall>(self), silence] {
                                   if (const std::shared_ptr<StepsCall> alive = call.lock())
                                     alive->OnSilence(silence);
                                 });
    stub_->async()->Steps(&context_, this);
    // Sends begin outside of gRPC's callbacks.
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }

  void Send(const StreamFrame<ToWorker>& frame) {
    v1::ToWorkerFrame encoded = wire::ToProto(frame);
    MutexLock lock(mu_);
    if (ended_) return;
    if (const v1::ToWorkerFrame* const message = outgoing_.Add(std::move(encoded)))
      StartWrite(message);
  }

  void Close() {
    {
      MutexLock lock(mu_);
      closed_ = true;
    }
    context_.TryCancel();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End();
    watch_->Heard();
    absl::StatusOr<std::vector<StreamFrame<FromWorker>>> frames = FramesOf<FromWorker>(incoming_);
    if (!frames.ok()) return OnNonsense(frames.status());
    if (Admit(incoming_)) listener_->OnFrames(*std::move(frames));
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(mu_);
    if (!ok || ended_) outgoing_.Clear();
    if (const v1::ToWorkerFrame* const message = outgoing_.Next()) StartWrite(message);
  }

  // The last task on the Executor drops everything that holds the channel (see open_calls.h).
  void OnDone(const grpc::Status&) override {
    watch_->Stop();
    const std::shared_ptr<OpenCalls> open = environment_.open;
    // `this` may be destroyed before Post returns.
    Executor& executor = environment_.executor;
    executor.Post(
        [self = std::move(self_), held = open->Take(context_)]() mutable { self->TellBroken(); });
    open->End();
  }

 private:
  // Starts no further write, so that the call can end.
  void End() {
    {
      MutexLock lock(mu_);
      if (std::exchange(ended_, true)) return;
    }
    RemoveHold();
  }

  void OnNonsense(const absl::Status& why) {
    const std::string text =
        absl::StrCat("the worker at ", environment_.address, " sent an invalid frame (",
                     why.message(), "): its stream is closed");
    if (StepsLogLimit().Admit(text)) DIVVY_LOG(ERROR) << text;
    context_.TryCancel();
    End();
  }

  void OnSilence(absl::Duration silence) {
    const std::string text =
        absl::StrCat("nothing has arrived from the worker at ", environment_.address, " for ",
                     absl::FormatDuration(silence), ": its stream is closed");
    if (StepsLogLimit().Admit(text)) DIVVY_LOG(WARNING) << text;
    context_.TryCancel();
  }

  void OnBegunTooLate() {
    {
      MutexLock lock(mu_);
      ended_ = true;
    }
    environment_.executor.Post([self = std::move(self_)] { self->TellBroken(); });
  }

  void TellBroken() {
    if (!closed()) listener_->OnBroken();
  }

  bool closed() {
    MutexLock lock(mu_);
    return closed_;
  }

  // A message was read. False: the coordinator has closed the connection, and the message is
  // dropped.
  bool Admit(const v1::FromWorkerFrame& message) {
    MutexLock lock(mu_);
    outgoing_.OnRead(message);
    return !closed_;
  }

  const CallEnvironment environment_;
  const std::shared_ptr<v1::Worker::Stub> stub_;
  const std::shared_ptr<StreamListener<FromWorker>> listener_;
  std::shared_ptr<StepsCall> self_;
  std::shared_ptr<SilenceWatch> watch_;
  grpc::ClientContext context_;
  v1::FromWorkerFrame incoming_;
  Mutex mu_;
  FrameQueue<v1::ToWorkerFrame> outgoing_ DIVVY_GUARDED_BY(mu_);
  bool ended_ DIVVY_GUARDED_BY(mu_) = false, closed_ DIVVY_GUARDED_BY(mu_) = false;
};

// The coordinator's handle of the stream. Its destructor cancels the call.
class Connection : public StreamConnection<ToWorker> {
 public:
  explicit Connection(std::shared_ptr<StepsCall> call) : call_(std::move(call)) {}
  ~Connection() override { call_->Close(); }
  void Send(StreamFrame<ToWorker> frame) override { call_->Send(frame); }
  void Close() override { call_->Close(); }

 private:
  const std::shared_ptr<StepsCall> call_;
};

}  // namespace

std::shared_ptr<StreamConnection<ToWorker>> OpenStepsStream(
    const CallEnvironment& environment, const std::shared_ptr<v1::Worker::Stub>& stub,
    std::shared_ptr<StreamListener<FromWorker>> listener, absl::Duration silence) {
  auto call = std::make_shared<StepsCall>(environment, stub, std::move(listener));
  call->Start(call, silence);
  return std::make_shared<Connection>(std::move(call));
}

}  // namespace divvy
