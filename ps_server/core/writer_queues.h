// The queues in which writers wait for their turn at shards.
#ifndef DIVVY_PS_SERVER_CORE_WRITER_QUEUES_H_
#define DIVVY_PS_SERVER_CORE_WRITER_QUEUES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "protocol/ids.h"

namespace divvy {

// A queue of writers for each shard. A writer has its turn when it is first in the queues of all
// its shards. Two writers without a common shard may have their turns at the same time. A writer
// enters all its queues at once, so writers cannot wait for each other in a circle. Not
// thread-safe.
//
// Entering and leaving cost a few steps for each shard of the writer, however many other writers
// there are: each writer counts the queues in which it waits, and is looked at only when this count
// changes. `Writer` is copied, so use a shared pointer.
//
//   queues.Enter(run, run->shards());
//   // and when one ends: queues.Leave(shards), and again
//   while (std::optional<Run> next = queues.TakeReady()) Begin(*next);
template <typename Writer>
class WriterQueues {
 public:
  WriterQueues() = default;
  WriterQueues(const WriterQueues&) = delete;
  WriterQueues& operator=(const WriterQueues&) = delete;

  // REQUIRES: `shards` are distinct, and not empty.
  void Enter(const Writer& writer, const std::vector<ShardKey>& shards) {
    Place& place = places_.emplace_back();
    place.self = std::prev(places_.end());
    place.writer = writer;
    place.stands.resize(shards.size());
    for (size_t i = 0; i < shards.size(); ++i) {
      Stand& stand = place.stands[i];
      stand.place = &place;
      Queue& queue = queues_[shards[i].packed()];
      if (queue.last == nullptr) {
        queue.first = &stand;
      } else {
        queue.last->next = &stand;
        ++place.waits_in;
      }
      queue.last = &stand;
      ++steps_;
    }
    if (place.waits_in == 0) ready_.push_back(writer);
  }

  // The next writer whose turn has come, in the order of their turns. Each writer is returned once.
  // nullopt: there is none.
  std::optional<Writer> TakeReady() {
    if (ready_.empty()) return std::nullopt;
    Writer writer = std::move(ready_.front());
    ready_.pop_front();
    return writer;
  }
  bool has_ready() const { return !ready_.empty(); }

  // A writer has ended. REQUIRES: TakeReady has returned it, and `shards` are those of its Enter.
  void Leave(const std::vector<ShardKey>& shards) {
    Place* left = nullptr;
    for (const ShardKey shard : shards) {
      const auto queue = queues_.find(shard.packed());
      left = queue->second.first->place;
      Stand* const next = queue->second.first->next;
      ++steps_;
      if (next == nullptr) {
        queues_.erase(queue);
        continue;
      }
      queue->second.first = next;
      if (--next->place->waits_in == 0) ready_.push_back(next->place->writer);
    }
    places_.erase(left->self);
  }

  // The first writer in the queue of a shard; null: there is none.
  const Writer* First(ShardKey shard) const {
    const auto queue = queues_.find(shard.packed());
    return queue == queues_.end() ? nullptr : &queue->second.first->place->writer;
  }
  // Number of queue places entered and left since the beginning, as a measure of the work done.
  uint64_t steps() const { return steps_; }

 private:
  struct Place;
  // Where a writer stands in one queue.
  struct Stand {
    Place* place = nullptr;
    Stand* next = nullptr;
  };
  struct Place {
    Writer writer;
    size_t waits_in = 0;  // number of its queues in which another writer is first
    std::vector<Stand> stands;
    typename std::list<Place>::iterator self;
  };
  struct Queue {
    Stand *first = nullptr, *last = nullptr;
  };
  std::list<Place> places_;
  // by ShardKey::packed; none is empty
  absl::flat_hash_map<uint64_t, Queue> queues_;
  std::deque<Writer> ready_;
  uint64_t steps_ = 0;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_WRITER_QUEUES_H_
