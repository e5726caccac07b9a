#include "ps_server/core/shard_set.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "protocol/error.h"

namespace divvy {
namespace {

ShardKey WholeOf(ShardKey key) { return {key.variable, 0, key.part}; }

absl::Status Invalid(const ShardSpec& spec, absl::string_view why) {
  return MakeError(Reason::kInvalid, absl::StrCat("CreateShards, ", ShardText(spec), ": ", why));
}

}  // namespace

ShardBatch::ShardBatch(CreateShardsRequest wanted) : request(std::move(wanted)) {
  const auto by_key = [](const ShardSpec& a, const ShardSpec& b) { return a.key < b.key; };
  std::sort(request.shards.begin(), request.shards.end(), by_key);
}

ShardSet::ShardSet(int64_t memory_limit_bytes, int64_t block_bytes)
    : memory_limit_bytes_(memory_limit_bytes),
      block_bytes_(block_bytes),
      table_memory_(std::make_shared<TableMemory>(memory_limit_bytes)) {}

int64_t ShardSet::slot_bytes() const {
  int64_t bytes = 0;
  for (const auto& [key, shard] : *table_) bytes += key.slot == 0 ? 0 : shard->size_bytes();
  return bytes;
}

bool ShardSet::IsMaking(const std::vector<ShardSpec>& specs) const {
  return std::any_of(specs.begin(), specs.end(),
                     [this](const ShardSpec& spec) { return makers_.count(spec.key) > 0; });
}

absl::Status ShardSet::Begin(ShardBatch& batch) {
  for (const ShardSpec& spec : batch.request.shards) RETURN_IF_ERROR(AddToBatch(spec, batch));
  RETURN_IF_ERROR(MakeShards(batch));
  for (const auto& [key, shard] : batch.fresh) makers_[key] = &batch;
  for (const auto& [shard, options] : batch.changed) makers_[shard->spec().key] = &batch;
  bytes_being_made_ += batch.bytes;
  TellTables();
  // A change of options may end half done, with the epoch. The next coordinator must not take this
  // server for one of the layout before.
  if (!batch.changed.empty()) RaiseLayout(batch.request.layout_version, batch.request.layout_hash);
  return absl::OkStatus();
}

absl::Status ShardSet::AddToBatch(const ShardSpec& spec, ShardBatch& batch) const {
  if (const auto known = table_->find(spec.key); known != table_->end()) {
    const std::shared_ptr<Shard>& shard = known->second;
    if (!shard->MadeFrom(spec, batch.request.job_seed))
      return Invalid(spec, "it exists already, made from another spec");
    if (shard->table() == nullptr || *spec.table == *shard->table()->options())
      return absl::OkStatus();
    if (const absl::Status valid = Validate(*spec.table); !valid.ok())
      return Invalid(spec, valid.message());
    batch.changed.emplace_back(shard, *spec.table);
    return absl::OkStatus();
  }
  if (batch.specs.count(spec.key) > 0) return Invalid(spec, "it is named twice");
  if (spec.key.slot == 0 && deleted_.count(spec.key.variable) > 0)
    return Invalid(spec, "it was deleted, and ids are never used again");
  if (const absl::Status status = Shard::Check(spec, VariableOf(spec, batch)); !status.ok())
    return MakeError(Reason::kInvalid, status.message());
  // The rows of a table come later.
  const int64_t bytes = spec.table ? 0 : spec.shape.num_elements() * DTypeSize(spec.dtype);
  const int64_t free_bytes = memory_limit_bytes_ - this->bytes() - bytes_being_made_ - batch.bytes;
  if (bytes > free_bytes) {
    return MakeError(Reason::kMemoryLimit,
                     absl::StrCat(ShardText(spec), " takes ", bytes, " bytes, and ", free_bytes,
                                  " of --memory_limit_bytes=", memory_limit_bytes_,
                                  " are left. Raise it, or add parameter servers"));
  }
  batch.bytes += bytes;
  batch.specs[spec.key] = &spec;
  batch.fresh[spec.key] = nullptr;
  return absl::OkStatus();
}

// The spec of a slot's variable, which the same request makes or which exists already. Null:
// neither.
const ShardSpec* ShardSet::VariableOf(const ShardSpec& spec, const ShardBatch& batch) const {
  const ShardKey whole = WholeOf(spec.key);
  if (const auto found = batch.specs.find(whole); found != batch.specs.end()) return found->second;
  const auto known = table_->find(whole);
  return known == table_->end() ? nullptr : &known->second->spec();
}

// A variable comes before its slots in `fresh`, so its blocks exist when its slots need them.
absl::Status ShardSet::MakeShards(ShardBatch& batch) const {
  for (auto& [key, shard] : batch.fresh) {
    const ShardKey whole = WholeOf(key);
    const Shard* const variable =
        key.slot == 0 ? nullptr
                      : (batch.fresh.count(whole) > 0 ? batch.fresh : *table_).at(whole).get();
    absl::StatusOr<std::shared_ptr<Shard>> made = Shard::Create(
        *batch.specs.at(key), batch.request.job_seed, block_bytes_, variable, table_memory_);
    if (!made.ok()) return MakeError(Reason::kMemoryLimit, made.status().message());
    shard = *std::move(made);
  }
  return absl::OkStatus();
}

absl::Status ShardSet::End(const ShardBatch& batch) {
  // False: the shard has been deleted meanwhile.
  const auto release = [&](ShardKey key) {
    const auto found = makers_.find(key);
    const bool is_own = found != makers_.end() && found->second == &batch;
    if (is_own) makers_.erase(found);
    return is_own;
  };
  absl::Status status;
  for (const auto& [key, shard] : batch.fresh) {
    if (!release(key))
      status.Update(MakeError(Reason::kInvalid, absl::StrCat(ShardText(shard->spec()),
                                                             " was deleted while it was made")));
  }
  for (const auto& [shard, options] : batch.changed) release(shard->spec().key);
  bytes_being_made_ -= batch.bytes;
  TellTables();
  return status;
}

void ShardSet::Install(const ShardBatch& batch) {
  auto table = std::make_shared<ShardTable>(*table_);
  table->insert(batch.fresh.begin(), batch.fresh.end());
  Swap(std::move(table));
  bytes_ += batch.bytes;
  TellTables();
  RaiseLayout(batch.request.layout_version, batch.request.layout_hash);
}

ShardSet::Table ShardSet::Delete(const DeleteShardsRequest& request) {
  auto table = std::make_shared<ShardTable>(*table_);
  for (const ShardKey key : request.shards) {
    if (key.slot == 0) deleted_.insert(key.variable);
    makers_.erase(key);
    const auto found = table->find(key);
    if (found == table->end()) continue;
    bytes_ -= found->second->size_bytes();
    table->erase(found);
  }
  RaiseLayout(request.layout_version, request.layout_hash);
  return Swap(std::move(table));
}

ShardSet::Table ShardSet::Clear() {
  makers_.clear();
  deleted_.clear();
  bytes_ = 0;
  // The dropped tables are freed later, and must not take the room of what is loaded next.
  table_memory_ = std::make_shared<TableMemory>(memory_limit_bytes_);
  layout_version_ = layout_hash_ = 0;
  return Swap(std::make_shared<const ShardTable>());
}

ShardSet::Table ShardSet::Swap(Table table) {
  ++table_version_;
  TellTables();
  parts_of_tables_.clear();
  for (const auto& [key, shard] : *table) {
    if (shard->table() != nullptr) parts_of_tables_.push_back(shard);
  }
  return std::exchange(table_, std::move(table));
}

void ShardSet::SetLayout(uint64_t version, uint64_t hash) {
  layout_version_ = version;
  layout_hash_ = hash;
}

// A late request does not lower the version of the layout.
void ShardSet::RaiseLayout(uint64_t version, uint64_t hash) {
  if (version >= layout_version_) SetLayout(version, hash);
}

}  // namespace divvy
