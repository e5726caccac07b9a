#include "coordinator/core/redo_log.h"

#include <algorithm>
#include <utility>

#include "coordinator/core/shard_specs.h"

namespace divvy {
namespace {

// Estimates of the memory of an entry with its step, and of a shard's description. Args, values and
// names are counted separately.
constexpr int64_t kEntryBytes = 320;
constexpr int64_t kShardBytes = 200;

int64_t BytesOf(const RedoLog::Write& write) {
  int64_t bytes = kEntryBytes;
  for (const auto& [ps, parts] : write.parts) {
    for (const CommitPart& part : parts)
      bytes += static_cast<int64_t>(sizeof(part)) + part.values.size_bytes() +
               (part.rows ? part.rows->size_bytes() : 0);
  }
  return bytes;
}

}  // namespace

int64_t RedoLog::BytesOf(const std::string& function, const Nest& args, size_t inputs) {
  return kEntryBytes + static_cast<int64_t>(function.size() + inputs * sizeof(InputLease)) +
         args.size_bytes();
}

void RedoLog::OpenStep(EntryId id, int64_t bytes) {
  if (!kept_) return;
  bytes_ += bytes;
  entries_.push_back({id, bytes});
}

void RedoLog::AddWrite(EntryId id, Write write) {
  if (!kept_) return;
  const int64_t bytes = divvy::BytesOf(write);
  bytes_ += bytes;
  Entry entry{id, bytes};
  entry.begun = finishes_;
  entry.write = std::make_shared<const Write>(std::move(write));
  entries_.push_back(std::move(entry));
}

RedoLog::Entry* RedoLog::Find(EntryId id) {
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), id,
                       [](const Entry& entry, EntryId wanted) { return entry.id < wanted; });
  return found != entries_.end() && found->id == id && !found->gone ? &*found : nullptr;
}

void RedoLog::FinishStep(EntryId id, Step step, uint64_t begun) {
  Entry* const entry = Find(id);
  if (entry == nullptr) return;
  entry->step = std::make_shared<const Step>(std::move(step));
  entry->begun = begun;
  entry->finished = ++finishes_;
  ++finished_steps_;
}

void RedoLog::Charge(EntryId id, int64_t bytes) {
  Entry* const entry = Find(id);
  if (entry == nullptr) return;
  entry->bytes += bytes;
  bytes_ += bytes;
}

uint64_t RedoLog::FinishWrite(EntryId id) {
  Entry* const entry = Find(id);
  if (entry == nullptr) return 0;
  if (entry->finished == 0) entry->finished = ++finishes_;
  return entry->finished;
}

void RedoLog::Forget(EntryId id) {
  Entry* const entry = Find(id);
  if (entry == nullptr) return;
  bytes_ -= entry->bytes;
  entry->gone = true;
  while (!entries_.empty() && entries_.front().gone) entries_.pop_front();
}

void RedoLog::AddShards(uint64_t version, const std::map<int, std::vector<ShardSpec>>& shards) {
  if (!kept_) return;
  int64_t count = 0;
  for (const auto& [ps, specs] : shards) count += static_cast<int64_t>(specs.size());
  shards_.push_back({version, shards, count * kShardBytes});
  bytes_ += count * kShardBytes;
}

std::deque<RedoLog::Entry> RedoLog::MoveBase(const Horizon& cut, uint64_t layout_version) {
  while (!shards_.empty() && shards_.front().version <= layout_version) {
    bytes_ -= shards_.front().bytes;
    shards_.pop_front();
  }
  std::deque<Entry> covered = std::exchange(entries_, {});
  for (Entry& entry : covered) {
    if (entry.gone) continue;
    if (!cut.IsClosed(entry.id)) {
      entries_.push_back(std::move(entry));
      continue;
    }
    bytes_ -= entry.bytes;
    finished_steps_ -= entry.step != nullptr;
  }
  return covered;
}

const RedoLog::Entry* RedoLog::Next(EntryId id) const {
  auto found =
      std::lower_bound(entries_.begin(), entries_.end(), id,
                       [](const Entry& entry, EntryId wanted) { return entry.id < wanted; });
  found = std::find_if(found, entries_.end(), [](const Entry& entry) {
    return !entry.gone && (entry.step != nullptr || entry.write != nullptr);
  });
  return found == entries_.end() ? nullptr : &*found;
}

std::map<int, std::vector<ShardSpec>> RedoLog::Shards() const {
  std::map<int, std::vector<ShardSpec>> all;
  for (const MadeShards& made : shards_) AppendShards(made.shards, all);
  return all;
}

std::deque<RedoLog::Entry> RedoLog::GiveUp() {
  kept_ = false;
  shards_.clear();
  bytes_ = finished_steps_ = 0;
  return std::exchange(entries_, {});
}

}  // namespace divvy
