// Which shards a parameter server holds, is making and has deleted, and what memory they take.
#ifndef DIVVY_PS_SERVER_CORE_SHARD_SET_H_
#define DIVVY_PS_SERVER_CORE_SHARD_SET_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "protocol/messages.h"
#include "ps_server/core/shard.h"

namespace divvy {

// Shards that one request makes. `request`, `fresh` and `bytes` are for the caller to read.
struct ShardBatch {
  // Sorts the shards: a variable comes before its slots.
  explicit ShardBatch(CreateShardsRequest wanted);
  ShardBatch(const ShardBatch&) = delete;
  ShardBatch& operator=(const ShardBatch&) = delete;

  CreateShardsRequest request;
  std::map<ShardKey, const ShardSpec*> specs;  // of the request: those that do not exist yet
  ShardTable fresh;                            // made from them
  int64_t bytes = 0;                           // of `fresh`
};

// A batch is begun, its values are computed or read elsewhere, and it is ended. Then it is
// installed or dropped. Not thread-safe: the core's lock guards it.
//
//   Begin  --End-->  Install, or the batch is dropped
//
//   ShardBatch batch(request);
//   RETURN_IF_ERROR(shards.Begin(batch));
//   ...                                                             // gives batch.fresh its values
//   if (shards.End(batch).ok()) shards.Install(batch);
class ShardSet {
 public:
  using Table = std::shared_ptr<const ShardTable>;

  // All shards together, those being made included, take `memory_limit_bytes` at most. A shard is
  // cut into blocks of `block_bytes`.
  ShardSet(int64_t memory_limit_bytes, int64_t block_bytes);

  // The shards that are whole. A table is swapped and never changed, so it may be read without the
  // lock.
  const Table& table() const { return table_; }
  uint64_t layout_version() const { return layout_version_; }
  uint64_t layout_hash() const { return layout_hash_; }
  // Of the shards in table(); of those being made.
  int64_t bytes() const { return bytes_; }
  int64_t bytes_being_made() const { return bytes_being_made_; }

  // Whether one of them is being made.
  bool IsMaking(const std::vector<ShardSpec>& specs) const;

  // Takes memory for all shards of the batch that do not exist yet, or for none. Errors with a
  // Reason, naming the shard. kMemoryLimit: they do not fit. kInvalid: the shard exists, made from
  // another spec; it is named twice; its variable was deleted; or Shard::Check refuses it. After an
  // error the batch is of no use. REQUIRES: the batch was not begun before, and lives until End.
  // Its shards are not being made.
  absl::Status Begin(ShardBatch& batch);
  // They are being made no longer. kInvalid, naming it: one was deleted meanwhile. REQUIRES: begun.
  absl::Status End(const ShardBatch& batch);
  // Adds the shards to the table, and takes in the layout of the request. REQUIRES: End was OK.
  void Install(const ShardBatch& batch);

  // Those that are not there are skipped. The ids of variables are never used again. Returns the
  // table without the deletion, which the caller frees outside the lock.
  Table Delete(const DeleteShardsRequest& request);

  // Forgets all, deletions and the layout included, but for the bytes of batches that are being
  // made: their End gives them back. Returns the table, as Delete.
  Table Clear();

  // The layout that a Load names, also where its version is lower: a new lineage counts its layouts
  // anew.
  void SetLayout(uint64_t version, uint64_t hash);

 private:
  absl::Status AddToBatch(const ShardSpec& spec, ShardBatch& batch) const;
  const ShardSpec* VariableOf(const ShardSpec& spec, const ShardBatch& batch) const;
  absl::Status MakeShards(ShardBatch& batch) const;
  void RaiseLayout(uint64_t version, uint64_t hash);

  const int64_t memory_limit_bytes_, block_bytes_;
  Table table_ = std::make_shared<const ShardTable>();
  uint64_t layout_version_ = 0, layout_hash_ = 0;
  // In this lineage: a late request must not bring one back.
  std::set<VariableId> deleted_;
  // Of the shards that are being made.
  std::map<ShardKey, const ShardBatch*> makers_;
  int64_t bytes_ = 0, bytes_being_made_ = 0;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_SHARD_SET_H_
