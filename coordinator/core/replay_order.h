// Decides which entry of the redo log may begin again, so that a replay undoes nothing that a
// program has seen finished.
#ifndef DIVVY_COORDINATOR_CORE_REPLAY_ORDER_H_
#define DIVVY_COORDINATOR_CORE_REPLAY_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace divvy {

// The log numbers its entries in the order in which they finished. For each entry it also keeps the
// number of the last entry that had finished when this one began (RedoLog::Entry::begun). An entry
// may begin again when all entries up to that number have finished again. So if one entry finished
// before another began in the first run, it does so in the replay. Entries that overlapped in the
// first run may run in any order, as they could then.
//
// Pure; not thread-safe.
//
//   ReplayOrder order({1, 2});
//   order.MayBegin(1);   // false: entry 1 comes first
//   order.Finish(1);
//   order.MayBegin(1);   // true
class ReplayOrder {
 public:
  // An empty order: nothing is to be replayed.
  ReplayOrder() = default;
  // `numbers`: the numbers of the entries to be replayed, each once, in any order.
  explicit ReplayOrder(std::vector<uint64_t> numbers);

  // Whether every entry with a number up to `begun` has finished again.
  bool MayBegin(uint64_t begun) const {
    return first_missing_ == numbers_.size() || numbers_[first_missing_] > begun;
  }
  // The entry has finished again. Does nothing for a number that the order does not have.
  void Finish(uint64_t number);

 private:
  std::vector<uint64_t> numbers_;  // sorted
  // Parallel to numbers_.
  std::vector<bool> finished_;
  // All numbers before this index have finished again.
  size_t first_missing_ = 0;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_REPLAY_ORDER_H_
