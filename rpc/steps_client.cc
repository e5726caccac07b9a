#include "rpc/steps_client.h"

#include <deque>
#include <utility>

#include "base/mutex.h"
#include "wire/steps.h"

namespace divvy {
namespace {

// Lives until gRPC is done with the call (OnDone), or longer where the coordinator still holds the connection.
class StepsCall : public grpc::ClientBidiReactor<v1::ToWorkerFrame, v1::FromWorkerFrame> {
 public:
  StepsCall(const CallEnvironment& environment, std::shared_ptr<v1::Worker::Stub> stub, std::shared_ptr<StreamListener<FromWorker>> listener)
      : open_(environment.open), stub_(std::move(stub)), order_(environment.executor), listener_(std::move(listener)) {}

  void Start(const std::shared_ptr<StepsCall>& self) {
    self_ = self;
    if (!open_->Begin(context_)) return OnBegunTooLate();
    stub_->async()->Steps(&context_, this);
    AddHold();   // sends come from outside of the reactions
    StartRead(&incoming_);
    StartCall();
  }

  void Send(const StreamFrame<ToWorker>& frame) {
    MutexLock lock(mu_);
    if (ended_) return;
    outgoing_.push_back(wire::ToProto(frame));
    if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
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
    absl::StatusOr<StreamFrame<FromWorker>> frame = wire::FromProto(incoming_);
    if (!frame.ok()) {
      context_.TryCancel();
      return End();
    }
    Tell([frame = *std::move(frame)](StreamListener<FromWorker>& listener) mutable { listener.OnFrame(std::move(frame)); });
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(mu_);
    outgoing_.pop_front();
    if (!ok) outgoing_.clear();
    if (!outgoing_.empty()) StartWrite(&outgoing_.front());
  }

  void OnDone(const grpc::Status&) override {
    Tell([](StreamListener<FromWorker>& listener) { listener.OnBroken(); });
    open_->End(context_);
    self_.reset();
  }

 private:
  // Nothing will come any more: no write is begun from here on, so that the call can be done.
  void End() {
    {
      MutexLock lock(mu_);
      if (ended_) return;
      ended_ = true;
    }
    RemoveHold();
  }

  void OnBegunTooLate() {
    Tell([](StreamListener<FromWorker>& listener) { listener.OnBroken(); });
    self_.reset();
  }

  // In order, on the Executor; nothing once the coordinator has closed.
  template <typename Event>
  void Tell(Event event) {
    order_.Post([event = std::move(event), listener = listener_, self = self_]() mutable {
      {
        MutexLock lock(self->mu_);
        if (self->closed_) return;
      }
      event(*listener);
    });
  }

  const std::shared_ptr<OpenCalls> open_;
  const std::shared_ptr<v1::Worker::Stub> stub_;
  SerialExecutor order_;
  const std::shared_ptr<StreamListener<FromWorker>> listener_;
  std::shared_ptr<StepsCall> self_;
  grpc::ClientContext context_;
  v1::FromWorkerFrame incoming_;
  Mutex mu_;
  std::deque<v1::ToWorkerFrame> outgoing_ DIVVY_GUARDED_BY(mu_);   // the first is being written
  bool ended_ DIVVY_GUARDED_BY(mu_) = false, closed_ DIVVY_GUARDED_BY(mu_) = false;
};

// What the coordinator holds: gone, the call is cancelled.
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

std::shared_ptr<StreamConnection<ToWorker>> OpenStepsStream(const CallEnvironment& environment, const std::shared_ptr<v1::Worker::Stub>& stub,
                                                            std::shared_ptr<StreamListener<FromWorker>> listener) {
  auto call = std::make_shared<StepsCall>(environment, stub, std::move(listener));
  call->Start(call);
  return std::make_shared<Connection>(std::move(call));
}

}  // namespace divvy
