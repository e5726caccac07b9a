// Whose turn it is to write to which shards.
#ifndef DIVVY_PS_SERVER_CORE_WRITER_QUEUES_H_
#define DIVVY_PS_SERVER_CORE_WRITER_QUEUES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "protocol/ids.h"

namespace divvy {

// A queue of writers for each shard. A writer has its turn when it is first in the queues of all
// its shards; two that share no shard may have theirs at the same time. Each enters all its queues
// at once, so no two wait for each other. Not thread-safe.
//
// Entering and leaving cost a few steps for each shard of the writer itself, whatever the others
// do: a writer counts the queues in which it waits, and is looked at again only when that count
// changes. `Writer` is copied: a shared pointer.
//
//   queues.Enter(run, run->shards());
//   // and when one ends: queues.Leave(shards), and again
//   while (std::optional<Run> next = queues.TakeReady()) Begin(*next);
template <typename Writer>
class WriterQueues {
 public:
  // REQUIRES: `shards` are distinct, and not empty.
  void Enter(const Writer& writer, const std::vector<ShardKey>& shards) {
    const auto place = std::make_shared<Place>(Place{writer, 0});
    for (const ShardKey shard : shards) {
      std::deque<std::shared_ptr<Place>>& queue = queues_[shard];
      place->waits_in += queue.empty() ? 0 : 1;
      queue.push_back(place);
      ++steps_;
    }
    if (place->waits_in == 0) ready_.push_back(writer);
  }

  // The next whose turn has come, each once, in the order of their turns; nullopt: none.
  std::optional<Writer> TakeReady() {
    if (ready_.empty()) return std::nullopt;
    Writer writer = std::move(ready_.front());
    ready_.pop_front();
    return writer;
  }
  bool has_ready() const { return !ready_.empty(); }

  // A writer has ended. REQUIRES: it was taken, and `shards` are those it entered with.
  void Leave(const std::vector<ShardKey>& shards) {
    for (const ShardKey shard : shards) {
      const auto queue = queues_.find(shard);
      queue->second.pop_front();
      ++steps_;
      if (queue->second.empty()) {
        queues_.erase(queue);
      } else if (Place& first = *queue->second.front(); --first.waits_in == 0) {
        ready_.push_back(first.writer);
      }
    }
  }

  // First in the queue of a shard; null: nobody.
  const Writer* First(ShardKey shard) const {
    const auto queue = queues_.find(shard);
    return queue == queues_.end() ? nullptr : &queue->second.front()->writer;
  }
  // Places of queues that were entered or left, since the beginning: the work done.
  uint64_t steps() const { return steps_; }

 private:
  struct Place {
    Writer writer;
    size_t waits_in = 0;  // how many of its queues have another first
  };
  std::map<ShardKey, std::deque<std::shared_ptr<Place>>> queues_;
  std::deque<Writer> ready_;
  uint64_t steps_ = 0;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_WRITER_QUEUES_H_
