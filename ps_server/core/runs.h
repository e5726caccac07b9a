// The core's data of a request while block tasks work for it. Internal to this folder.
#ifndef DIVVY_PS_SERVER_CORE_RUNS_H_
#define DIVVY_PS_SERVER_CORE_RUNS_H_

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ps_server/core/block_work.h"
#include "ps_server/core/checkpoint_files.h"
#include "ps_server/core/commit_plan.h"
#include "ps_server/core/frozen_shards.h"
#include "ps_server/core/parameter_server_core.h"
#include "ps_server/core/read_plan.h"
#include "ps_server/core/table_files.h"

namespace divvy {

struct ParameterServerCore::CommitRun {
  CommitRequest request;  // without its parts, which are in the plan
  ResultCallback<CommitReply> done;
  // ShardSet::table_version of the shards with which the plan was made.
  uint64_t planned_with = 0;
  absl::StatusOr<CommitPlan> plan;
  // The checkpoint that is being written; called before a block is changed (but not of a table,
  // whose segments know it). Null: none.
  std::shared_ptr<FrozenShards> frozen;
};

struct ParameterServerCore::ReadRun {
  struct Seen {
    uint64_t version = 0;
    bool being_written = false;
  };
  Fence fence;
  ResultCallback<PullReply> done;
  ReadPlan plan;
  std::vector<Seen> at_start;  // for each part
};

// Shards whose initial values are being computed.
struct ParameterServerCore::CreateRun {
  CreateRun(HeldCreate call, int64_t unit_bytes)
      : batch(std::move(call.request)), done(std::move(call.done)), units(unit_bytes) {}
  void CutIntoUnits();  // REQUIRES: the batch has begun
  void Initialize(int64_t unit);

  ShardBatch batch;
  ResultCallback<LayoutReply> done;
  struct Piece {
    Shard* shard = nullptr;
    int64_t block = 0;
    // The block is a segment of a table that exists, and gets other options.
    bool changes = false;
  };
  std::vector<Piece> pieces;
  UnitList units;
  Mutex mu;
  absl::Status error DIVVY_GUARDED_BY(mu);  // the first error of a block
};

// This server's part of a checkpoint, while it is written and until another one is requested. Only
// one blocking task at a time uses the fields above `Under the core's lock`.
struct ParameterServerCore::SnapshotRun {
  SnapshotRun(SnapshotRequest request, const ShardTable& shards, int64_t slice_bytes)
      : request(std::move(request)),
        frozen(std::make_shared<FrozenShards>(shards, slice_bytes)),
        total_bytes(TotalBytes(frozen->slices())) {}
  // Writes the next slice. The last one completes the file.
  absl::Status WriteNext(CheckpointFiles& files);
  absl::Status Write(const ShardSlice& slice);
  bool finished() const { return next == frozen->slices().size() && part == nullptr; }

  const SnapshotRequest request;  // the request that began it
  std::shared_ptr<FrozenShards> frozen;
  const int64_t total_bytes;  // of all slices
  // Null before the first slice, and after the file is complete.
  std::unique_ptr<CheckpointPart> part;
  size_t next = 0;
  int64_t written_bytes = 0;
  std::vector<SavedSlice> slices;
  std::atomic<bool> dropped{false};  // nobody needs the part any more
  // Under the core's lock.
  std::vector<ResultCallback<SnapshotReply>> waiting;
  int64_t told_bytes = 0;
  int64_t expected_bytes = 0;  // upper bound of the copies that running commits may still cause
  uint64_t applied_seq = 0;    // commits applied when the last slice had been written
  absl::Duration paused;       // so far
  bool is_pausing = false;     // the next slice has not been begun
  bool over = false;
  absl::Status error;
};

// A checkpoint that is being read. Threads as for SnapshotRun.
struct ParameterServerCore::LoadRun {
  LoadRun(LoadRequest request, CreateShardsRequest create)
      : request(std::move(request)), batch(std::move(create)) {}
  absl::Status ReadNext(CheckpointFiles& files);

  const LoadRequest request;  // without its shards
  ShardBatch batch;
  std::vector<ShardSlice> slices;
  // Of all slices, but the rows of tables only after the first call of ReadNext.
  int64_t bytes_to_read = 0;
  std::unique_ptr<CheckpointValues> values;
  // Of the table that is being read.
  std::unique_ptr<TableReader> table;
  size_t next = 0;
  int64_t read_bytes = 0;
  // Under the core's lock.
  std::vector<ResultCallback<LoadReply>> waiting;
  // 0 total bytes: not known yet.
  int64_t told_bytes = 0, total_bytes = 0;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_RUNS_H_
