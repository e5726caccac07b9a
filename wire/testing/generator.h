// Random values of everything that travels, small and valid: what FromProto accepts.
#ifndef DIVVY_WIRE_TESTING_GENERATOR_H_
#define DIVVY_WIRE_TESTING_GENERATOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "cluster/messages.h"
#include "cluster/resumable_stream.h"
#include "wire/layout.h"

namespace divvy::wire::testing {

// The same values from the same seed. Not thread-safe.
//   const auto request = Generator(seed).Make<SyncRequest>();
class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  template <typename T>
  T Make() {
    T value;
    Fill(value);
    return value;
  }

  void Fill(absl::Status& out);  // may be OK
  void Fill(ErrorDetail& out);
  void Fill(Tensor& out);
  void Fill(Nest& out) { out = MakeNest(4); }
  void Fill(LearningRate& out);
  void Fill(Optimizer& out);
  void Fill(OptimizerStep& out);
  void Fill(Initializer& out) { out = MakeInitializer(false); }
  void Fill(ShardKey& out);
  void Fill(ShardSpec& out);
  void Fill(VariableLayout& out);
  void Fill(std::shared_ptr<const Layout>& out);
  void Fill(Fence& out);
  void Fill(ProtocolRange& out);
  void Fill(PassProgress& out);
  void Fill(Horizon& out);
  void Fill(RememberedEntry& out);
  void Fill(RegisterRequest& out);
  void Fill(ProgramDescription& out);
  void Fill(RegisterReply& out);
  void Fill(PsAttachRequest& out);
  void Fill(PsAttachReply& out);
  void Fill(LoadRequest& out);
  void Fill(LoadReply& out);
  void Fill(CheckpointId& out);
  void Fill(SnapshotRequest& out);
  void Fill(SavedSlice& out);
  void Fill(SnapshotReply& out);
  void Fill(SyncRequest& out);
  void Fill(SyncReply& out);
  void Fill(CreateShardsRequest& out);
  void Fill(DeleteShardsRequest& out);
  void Fill(LayoutReply& out);
  void Fill(ShutdownRequest& out);
  void Fill(ShutdownReply&) {}
  void Fill(PullPart& out);
  void Fill(PullRequest& out);
  void Fill(CommitPart& out);
  void Fill(CommitRequest& out);
  void Fill(PsAddress& out);
  void Fill(WorkerAttachRequest& out);
  void Fill(WorkerAttachReply& out);
  void Fill(InputLease& out);
  void Fill(Dispatch& out);
  void Fill(MakeResource& out);
  void Fill(EndedInput& out);
  void Fill(Report& out);
  void Fill(ResourceReady& out);
  void Fill(NeedSlots& out);
  void Fill(Pong& out);
  void Fill(StreamFrame<ToWorker>& out);
  void Fill(StreamFrame<FromWorker>& out);

  // Answers that fit what was asked.
  PullReply ReplyTo(const PullRequest& asked);
  CommitReply ReplyTo(const CommitRequest& asked);

  // ---- parts ----
  uint64_t Below(uint64_t bound) { return random_.Below(bound); }
  bool Chance() { return random_.Chance(0.5); }
  uint64_t Number();                                               // any, often at an edge
  int64_t Count() { return static_cast<int64_t>(Number() >> 1); }  // not negative
  int Index() { return static_cast<int>(Number() & 0xffff); }
  // finite
  double Real();
  // [0, 1)
  float Fraction() { return static_cast<float>(random_.Below(1 << 20)) / (1 << 20); }
  // Of a variable.
  std::string Name();
  // UTF-8 without control characters, at least one byte
  std::string Text(size_t max_bytes);
  // 0 to a few elements
  Shape MakeShape(int max_rank);
  template <typename Id>
  Id MakeId() {
    return Id(static_cast<typename Id::value_type>(Number()));
  }
  template <typename Id>
  std::vector<Id> RisingIds(uint64_t below);

 private:
  Tensor MakeTensor(DType dtype, const Shape& shape);
  Nest MakeNest(int depth);
  Initializer MakeInitializer(bool constant);  // `constant`: one that every dtype can hold
  ToWorker MakeToWorker();
  FromWorker MakeFromWorker();
  template <typename T>
  void FillAll(std::vector<T>& out) {
    out.resize(Below(4));
    for (T& value : out) Fill(value);
  }

  Random random_;
};

}  // namespace divvy::wire::testing

#endif  // DIVVY_WIRE_TESTING_GENERATOR_H_
