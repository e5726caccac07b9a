// A worker in virtual time, with any messages of a coordinator in any order, and with parameter
// servers that answer. The worker does not crash, and answers no request twice.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/testing/fuzz.h"
#include "base/testing/sim_executor.h"
#include "tests/fuzz/choices.h"
#include "variables/layout.h"
#include "worker/core/testing/fake_parameter_servers.h"
#include "worker/core/testing/scripted_step_runner.h"
#include "worker/core/worker_core.h"

namespace divvy {
namespace {

constexpr Incarnation kOwn{55};

struct Connection : StreamConnection<FromWorker> {
  void Send(StreamFrame<FromWorker> frame) override { number = frame.number; }
  void Close() override { closed = true; }
  uint64_t number = 0;
  bool closed = false;
};

class Run {
 public:
  explicit Run(absl::string_view bytes)
      : choices_(bytes), runner_(executor_), inputs_(executor_), ps_(executor_, 2) {
    layout_ = Layout::Empty()
                  ->With(MakeVariable(1, "w", 4, 1, {0, 1}, Sgd{0.1}))
                  ->With(MakeVariable(2, "b", 1, 1, {1}));
    ps_.Make(*layout_);
    runner_.Define("empty", [](const StepCall&) { return std::vector<script::Move>(); });
    runner_.Define("assign", [](const StepCall&) {
      return std::vector<script::Move>{script::Stage{Assign()}};
    });
    runner_.Define("slow", [](const StepCall&) {
      return std::vector<script::Move>{script::Take{absl::Seconds(3)}, script::Stage{Assign()}};
    });
    inputs_.Define("data", {10, absl::OkStatus(), absl::Milliseconds(5)});
    WorkerOptions options;
    options.incarnation = kOwn;
    options.address = "worker";
    core_ = *WorkerCore::Start(options, executor_, executor_.clock(), runner_, inputs_, ps_,
                               nullptr, [](int, const std::string&) {});
  }
  ~Run() { core_->Abandon(); }

  void Play() {
    while (!choices_.done()) Next();
    executor_.RunFor(absl::Minutes(2));
    fuzz::Require(*open_ == 0, "a request was not answered");
    (void)core_->Inspect();
    (void)core_->StateHash();
  }

 private:
  static StagedWrite Assign() {
    return {"w", WriteOp::kAssign,
            *Tensor::Copy<float>(Shape{4, 1}, std::vector<float>{1, 2, 3, 4}), std::nullopt,
            std::nullopt};
  }

  Fence MakeFence(SessionId session) {
    return {choices_.Nearly(JobId(9)), Epoch(choices_.Nearly(EntryId(1)).value()),
            choices_.Nearly(Incarnation(1)), session, choices_.Nearly(kOwn)};
  }
  void Attach() {
    auto request = choices_.Any<WorkerAttachRequest>();
    if (choices_.Often()) request.view = ps_.view();
    // Addresses that the dialer knows.
    for (PsAddress& ps : request.view) ps.address = ps.index % 2 == 0 ? "ps0" : "ps1";
    if (choices_.Often()) request.layout = layout_;
    if (choices_.Often()) request.protocol = ProtocolRange();
    if (choices_.Often()) ++session_;
    request.fence = MakeFence(
        SessionId(choices_.Often() ? session_ : static_cast<uint32_t>(choices_.Number())));
    core_->Call(std::move(request), fuzz::Once<WorkerAttachReply>(open_));
  }
  void Connect() {
    connection_ = std::make_shared<Connection>();
    listener_ = core_->Accept(connection_);
    said_ = 0;
    if (choices_.Often()) Say({SessionId(session_), true, 0, 0, std::nullopt});
  }
  void Say(StreamFrame<ToWorker> frame) {
    if (listener_ != nullptr) listener_->OnFrame(std::move(frame));
  }
  void SayAny() {
    auto frame = choices_.Any<StreamFrame<ToWorker>>();
    if (choices_.Often()) frame.session = SessionId(session_);
    if (choices_.Often() && frame.message) frame.number = ++said_;
    if (choices_.Often()) frame.acknowledged = connection_ == nullptr ? 0 : connection_->number;
    if (choices_.Often() && frame.message) frame.resume = false;
    Say(std::move(frame));
  }
  void SayDispatch() {
    auto dispatch = choices_.Any<Dispatch>();
    constexpr const char* kFunctions[] = {"empty", "assign", "slow", "nothing"};
    dispatch.function = kFunctions[choices_.Below(4)];
    if (choices_.Often()) dispatch.step = EntryId(++entry_);
    Say({SessionId(session_), false, 0, ++said_, ToWorker(std::move(dispatch))});
  }

  void Next() {
    switch (choices_.Below(12)) {
      case 0: return Attach();
      case 1: return Connect();
      case 2:
        if (listener_ != nullptr) listener_->OnBroken();
        listener_ = nullptr;
        return;
      case 3: {
        ShutdownRequest request{MakeFence(SessionId(0)), static_cast<int>(choices_.Below(200))};
        if (!choices_.Often()) core_->Call(std::move(request), fuzz::Once<ShutdownReply>(open_));
        return;
      }
      case 4: return executor_.RunFor(choices_.Time());
      case 5:
        for (uint64_t i = choices_.Below(16); i > 0; --i) executor_.RunOne();
        return;
      case 6: {
        MakeResource make;
        make.iterator = ResourceId(choices_.Below(4));
        make.source = choices_.Often() ? "data" : "none";
        return Say({SessionId(session_), false, 0, ++said_, ToWorker(std::move(make))});
      }
      case 7:
      case 8:
      case 9: return SayDispatch();
      default: return SayAny();
    }
  }

  fuzz::Choices choices_;
  SimExecutor executor_{1};
  ScriptedStepRunner runner_;
  ScriptedInputOpener inputs_;
  FakeParameterServers ps_;
  std::shared_ptr<const Layout> layout_;
  const std::shared_ptr<int> open_ = std::make_shared<int>(0);
  std::shared_ptr<Connection> connection_;
  std::shared_ptr<StreamListener<ToWorker>> listener_;
  uint32_t session_ = 0;
  uint64_t said_ = 0, entry_ = 0;
  std::shared_ptr<WorkerCore> core_;
};

void Try(absl::string_view bytes) { Run(bytes).Play(); }

}  // namespace
}  // namespace divvy

DIVVY_FUZZ(divvy::Try)
