// The shards of a parameter server: those that it holds, is making and has deleted, with their
// memory.
#ifndef DIVVY_PS_SERVER_CORE_SHARD_SET_H_
#define DIVVY_PS_SERVER_CORE_SHARD_SET_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "protocol/messages.h"
#include "ps_server/core/shard.h"

namespace divvy {

// Shards that one request creates. The caller may read `request`, `fresh`, `changed` and `bytes`.
struct ShardBatch {
  // Sorts the shards: a variable comes before its slots.
  explicit ShardBatch(CreateShardsRequest wanted);
  ShardBatch(const ShardBatch&) = delete;
  ShardBatch& operator=(const ShardBatch&) = delete;

  CreateShardsRequest request;
  std::map<ShardKey, const ShardSpec*> specs;  // the requested shards that do not exist yet
  ShardTable fresh;                            // the shards made from `specs`
  // Parts of tables that exist, with the other options that the request has for them.
  std::vector<std::pair<std::shared_ptr<Shard>, TableOptions>> changed;
  int64_t bytes = 0;  // memory of `fresh`
};

// A batch is begun, the caller computes or reads its values, and it is ended. Then it is installed
// or dropped. Not thread-safe: the core's lock guards it.
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

  // All shards together, with those being made, take at most `memory_limit_bytes`. A shard is cut
  // into blocks of `block_bytes`.
  ShardSet(int64_t memory_limit_bytes, int64_t block_bytes);

  // The complete shards. A table is swapped and never changed, so it may be read without the lock.
  const Table& table() const { return table_; }
  // Those of them that are parts of dynamic tables.
  const std::vector<std::shared_ptr<Shard>>& parts_of_tables() const { return parts_of_tables_; }
  // Changes with every table.
  uint64_t table_version() const { return table_version_; }
  uint64_t layout_version() const { return layout_version_; }
  uint64_t layout_hash() const { return layout_hash_; }
  // Memory of the shards in table(), and of those being made.
  int64_t bytes() const { return bytes_ + table_memory_->bytes(); }
  int64_t bytes_being_made() const { return bytes_being_made_; }
  // The parts of bytes() that optimizers' slots and dynamic tables take. Values of variables take
  // the rest.
  int64_t slot_bytes() const;
  int64_t table_bytes() const { return table_memory_->bytes(); }

  // Whether one of these shards is being made, or a table of them takes other options.
  bool IsMaking(const std::vector<ShardSpec>& specs) const;

  // Allocates all shards of the batch that do not exist yet, or none. Errors have a Reason and name
  // the shard. kMemoryLimit: the shards do not fit. kInvalid: a shard exists and was made from
  // another spec (Shard::MadeFrom); it is named twice; its variable was deleted; or Shard::Check
  // refuses it. After an error the batch is useless. What is in `changed` the caller changes.
  // REQUIRES: the batch was not begun before, and lives until End; none of its shards is being
  // made.
  absl::Status Begin(ShardBatch& batch);
  // The batch's shards are no longer being made. kInvalid, naming the shard: one was deleted
  // meanwhile. REQUIRES: the batch has begun.
  absl::Status End(const ShardBatch& batch);
  // Adds the batch's shards to the table, and takes the layout of the request. REQUIRES: End was
  // OK.
  void Install(const ShardBatch& batch);

  // Deletes shards; those that do not exist are skipped. Ids of deleted variables are never used
  // again. Returns the table without the deletion, which the caller frees outside the lock.
  Table Delete(const DeleteShardsRequest& request);

  // Forgets everything, with deletions and the layout, except the bytes of batches that are being
  // made: their End gives these back. Returns the table, as Delete.
  Table Clear();

  // Takes the layout of a Load, even if its version is lower: a new lineage counts its layouts from
  // the start.
  void SetLayout(uint64_t version, uint64_t hash);

 private:
  absl::Status AddToBatch(const ShardSpec& spec, ShardBatch& batch) const;
  const ShardSpec* VariableOf(const ShardSpec& spec, const ShardBatch& batch) const;
  absl::Status MakeShards(ShardBatch& batch) const;
  void RaiseLayout(uint64_t version, uint64_t hash);

  // Returns the former table.
  Table Swap(Table table);

  // Tells tables what is left for them.
  void TellTables() { table_memory_->SetOthers(bytes_ + bytes_being_made_); }

  const int64_t memory_limit_bytes_, block_bytes_;
  std::shared_ptr<TableMemory> table_memory_;
  Table table_ = std::make_shared<const ShardTable>();
  std::vector<std::shared_ptr<Shard>> parts_of_tables_;
  uint64_t table_version_ = 1;
  uint64_t layout_version_ = 0, layout_hash_ = 0;
  // Variables deleted in this lineage. A late request must not create one of them again.
  std::set<VariableId> deleted_;
  // The batches of the shards that are being made.
  std::map<ShardKey, const ShardBatch*> makers_;
  int64_t bytes_ = 0, bytes_being_made_ = 0;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_SHARD_SET_H_
