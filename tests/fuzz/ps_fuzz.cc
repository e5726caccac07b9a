// A parameter server in virtual time, with any messages in any order. It does not crash, holds no
// more memory than it may, answers each request once, and is idle in the end.
#include <algorithm>
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
#include "variables/table_keys.h"

namespace divvy {
namespace {

constexpr int64_t kMemory = 1 << 20;
constexpr Incarnation kOwn{7};
constexpr int64_t kTableWidth = 3;

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
    if (choices_.Below(2) == 0) BeginJob();
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
  // A job with a table, so that the other choices reach its rows.
  void BeginJob() {
    const Fence fence{JobId(1), Epoch(1), Incarnation(1), kCoordinatorSession, kOwn};
    const auto send = [&](auto request) {
      request.fence = fence;
      core_->Call(request, fuzz::Once<ReplyTo<decltype(request)>>(open_));
      executor_.RunFor(absl::Seconds(1));
    };
    send(PsAttachRequest());
    LoadRequest load;
    load.horizon.next = EntryId(1);
    send(load);
    CreateShardsRequest create;
    create.layout_version = create.layout_hash = 1;
    create.shards = {MakeTable()};
    send(create);
    SyncRequest sync;
    sync.seq = 1;
    sync.horizon.next = EntryId(1);
    sync.sessions = {SessionId(1), SessionId(2)};
    sync.workers = {0, 1};
    send(sync);
  }
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
    if (choices_.Below(2) == 0) specs.push_back(MakeTable());
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
  // A part of the dynamic table "variable 5", as a rule a good one.
  static constexpr VariableId kTable{5};
  ShardSpec MakeTable() {
    ShardSpec spec;
    spec.key = {kTable, 0, 0};
    spec.name = "table";
    spec.first_row = choices_.Often() ? 0 : static_cast<int64_t>(choices_.Number());
    spec.full_shape = {kTableBuckets, kTableWidth};
    spec.shape = {choices_.Often() ? kTableBuckets : static_cast<int64_t>(choices_.Number()),
                  kTableWidth};
    spec.dtype = choices_.Often() ? DType::kFloat16 : MakeDType();
    spec.optimizer = Adagrad{0.1};
    spec.table = choices_.Often()
                     ? TableOptions{AdmitAfter{1 + static_cast<int64_t>(choices_.Below(3))},
                                    EvictUnusedFor{absl::Minutes(1)},
                                    {},
                                    static_cast<int64_t>(choices_.Below(200))}
                     : choices_.Any<TableOptions>();
    if (choices_.Below(4) == 0) spec.table->eviction = EvictBelowNorm{0.1f};
    if (choices_.Below(4) == 0) spec.table->eviction = EvictLeastRecent();
    if (!Validate(*spec.table).ok()) spec.table->eviction = EvictNever();
    return spec;
  }
  // As a rule in the order in which a worker sends them.
  Tensor MakeKeys() {
    std::vector<int64_t> keys;
    for (uint64_t i = choices_.Below(40); i > 0; --i)
      keys.push_back(static_cast<int64_t>(choices_.Number()) - 100);
    const auto before = [](int64_t a, int64_t b) { return KeyRank(a) < KeyRank(b); };
    if (choices_.Often()) {
      std::sort(keys.begin(), keys.end(), before);
      keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    }
    return Tensor::Vector<int64_t>(keys);
  }
  CommitPart MakeTablePart() {
    CommitPart part;
    part.shard = {kTable, 0, 0};
    if (choices_.Below(4) == 0) {
      part.op = WriteOp::kEvict;
      const auto now = static_cast<int64_t>(choices_.Number()),
                 first = static_cast<int64_t>(choices_.Number());
      part.rows = Tensor::Vector<int64_t>(
          {now, first, choices_.Often() ? kTableBuckets : static_cast<int64_t>(choices_.Number())});
      return part;
    }
    part.op = choices_.Often() ? WriteOp::kGradient : choices_.Any<CommitPart>().op;
    part.rows = MakeKeys();
    const int64_t width = choices_.Often() ? kTableWidth : static_cast<int64_t>(choices_.Below(6));
    part.values = MakeTensor(choices_.Often() ? DType::kFloat32 : MakeDType(),
                             {part.rows->shape().dim(0), width});
    if (part.op == WriteOp::kGradient) part.optimizer = StepOf(Adagrad{0.1}, 0);
    return part;
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
    request.tick = static_cast<uint32_t>(choices_.Number());
    for (CommitPart& part : request.parts) {
      if (choices_.Below(2) == 0) {
        part = MakeTablePart();
        continue;
      }
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
    for (uint64_t i = choices_.Below(4); i > 0; --i) {
      if (choices_.Below(3) == 0)
        request.parts.push_back({{kTable, 0, 0}, MakeKeys()});
      else
        request.parts.push_back({Key(), MakeRows()});
    }
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
