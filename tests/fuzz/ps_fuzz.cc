// A parameter server in virtual time, with any messages in any order. It does not crash, holds no
// more memory than it may, answers each request once, and is idle in the end.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/testing/fuzz.h"
#include "base/testing/in_memory_file_system.h"
#include "base/testing/sim_executor.h"
#include "ps_server/checkpoint/bundle_files.h"
#include "ps_server/core/parameter_server_core.h"
#include "tests/fuzz/choices.h"

namespace divvy {
namespace {

constexpr int64_t kMemory = 1 << 20;
constexpr Incarnation kOwn{7};

class Run {
 public:
  explicit Run(absl::string_view bytes) : choices_(bytes) {
    (void)files_.CreateDirectory("/checkpoints");
    ParameterServerOptions options;
    options.incarnation = kOwn;
    options.address = "ps";
    options.block_bytes = 16;
    options.memory_limit_bytes = kMemory;
    options.max_pull_bytes = kMemory;
    checkpoint_files_ = MakeBundleFiles(files_, "/checkpoints");
    options.checkpoint_files = checkpoint_files_.get();
    options.slice_bytes = 32;
    options.clock = &executor_.clock();
    options.snapshot_buffer_bytes = 64;
    core_ = *ParameterServerCore::Start(options, executor_, nullptr,
                                        [this](int, const std::string&) { exited_ = true; });
  }

  void Play() {
    while (!choices_.done()) {
      Next();
      fuzz::Require(
          core_->Inspect(ParameterServerCore::Detail::kWithoutValues).memory_bytes <= kMemory,
          "more memory than it may hold");
    }
    executor_.RunFor(absl::Minutes(5));
    fuzz::Require(exited_ || *open_ == 0, "a request was not answered");
    (void)core_->StateHash();
  }

 private:
  Fence MakeFence() {
    Fence fence;
    fence.job = choices_.Nearly(JobId(1));
    if (!choices_.Often()) epoch_ = choices_.Often() ? epoch_ + 1 : choices_.Number();
    fence.epoch = Epoch(epoch_);
    fence.coordinator = choices_.Nearly(Incarnation(1));
    fence.session = SessionId(static_cast<uint32_t>(choices_.Below(4)));
    fence.target = choices_.Nearly(kOwn);
    return fence;
  }
  ShardKey Key() {
    return {VariableId(static_cast<uint32_t>(choices_.Below(4))),
            static_cast<uint8_t>(choices_.Below(3)), static_cast<uint16_t>(choices_.Below(3))};
  }
  Shape MakeShape() {
    std::vector<int64_t> dims;
    for (uint64_t i = choices_.Below(4); i > 0; --i)
      dims.push_back(static_cast<int64_t>(choices_.Below(6)));
    return Shape(dims);
  }
  DType MakeDType() {
    return choices_.Often()   ? DType::kFloat32
           : choices_.Often() ? DType::kInt64
                              : choices_.Any<ShardSpec>().dtype;
  }
  Tensor MakeTensor(DType dtype, const Shape& shape) { return *Tensor::Zeros(dtype, shape); }
  Horizon MakeHorizon() {
    Horizon horizon;
    horizon.next = EntryId(choices_.Number());
    horizon.open = choices_.Rising<EntryId>();
    return horizon;
  }
  std::vector<ShardSpec> MakeSpecs() {
    std::vector<ShardSpec> specs;
    for (uint64_t i = choices_.Below(4); i > 0; --i) {
      auto spec = choices_.Any<ShardSpec>();
      spec.key = Key();
      if (choices_.Often()) {
        spec.dtype = MakeDType();
        spec.shape = spec.full_shape = MakeShape();
        spec.first_row = 0;
      }
      specs.push_back(std::move(spec));
    }
    return specs;
  }
  std::optional<Tensor> MakeRows() {
    if (choices_.Often()) return std::nullopt;
    std::vector<int64_t> rows;
    for (uint64_t i = choices_.Below(5); i > 0; --i)
      rows.push_back(
          static_cast<int64_t>(choices_.Often() ? choices_.Below(6) : choices_.Number()));
    return Tensor::Vector<int64_t>(rows);
  }

  template <typename Request>
  void Send(Request request) {
    request.fence = MakeFence();
    core_->Call(std::move(request), fuzz::Once<ReplyTo<Request>>(open_));
  }

  void SendLoad() {
    auto request = choices_.Any<LoadRequest>();
    request.horizon = MakeHorizon();
    if (choices_.Often()) request.from = LoadRequest::From::kEmpty;
    if (choices_.Often()) request.shards = MakeSpecs();
    Send(std::move(request));
  }
  void SendSync() {
    SyncRequest request;
    request.seq = choices_.Number();
    request.horizon = MakeHorizon();
    request.sessions = choices_.Rising<SessionId>();
    request.query = choices_.Rising<EntryId>();
    if (choices_.Often())
      request.workers.assign(request.sessions.size(), static_cast<int>(choices_.Below(3)));
    Send(std::move(request));
  }
  void SendCommit() {
    auto request = choices_.Any<CommitRequest>();
    request.entry = EntryId(choices_.Number());
    for (CommitPart& part : request.parts) {
      part.shard = Key();
      if (!choices_.Often()) continue;
      part.rows = MakeRows();
      part.values = MakeTensor(MakeDType(), MakeShape());
    }
    if (!choices_.Often())
      (void)core_->CheckCommit(MakeFence(), static_cast<int>(choices_.Below(3)));
    Send(std::move(request));
  }
  void SendPull() {
    PullRequest request;
    for (uint64_t i = choices_.Below(4); i > 0; --i) request.parts.push_back({Key(), MakeRows()});
    request.fence = MakeFence();
    fuzz::Require(core_->PullReplyBytes(request) >= 0, "a reply has a negative size");
    Send(std::move(request));
  }

  void Next() {
    switch (choices_.Below(16)) {
      case 0: return Send(choices_.Any<PsAttachRequest>());
      case 1: return SendLoad();
      case 2:
      case 3: return SendSync();
      case 4: {
        auto request = choices_.Any<CreateShardsRequest>();
        request.shards = MakeSpecs();
        return Send(std::move(request));
      }
      case 5: {
        auto request = choices_.Any<DeleteShardsRequest>();
        request.shards = {Key()};
        return Send(std::move(request));
      }
      case 6: return Send(choices_.Any<SnapshotRequest>());
      case 7:
        if (!choices_.Often()) Send(choices_.Any<ShutdownRequest>());
        return;
      case 8:
      case 9: return SendPull();
      case 10: return executor_.RunFor(choices_.Time());
      case 11:
        for (uint64_t i = choices_.Below(16); i > 0; --i) executor_.RunOne();
        return;
      default: return SendCommit();
    }
  }

  fuzz::Choices choices_;
  SimExecutor executor_{1};
  InMemoryFileSystem files_;
  std::unique_ptr<CheckpointFiles> checkpoint_files_;
  const std::shared_ptr<int> open_ = std::make_shared<int>(0);
  uint64_t epoch_ = 1;
  bool exited_ = false;
  std::shared_ptr<ParameterServerCore> core_;
};

void Try(absl::string_view bytes) { Run(bytes).Play(); }

}  // namespace
}  // namespace divvy

DIVVY_FUZZ(divvy::Try)
