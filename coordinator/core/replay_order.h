// Which entry of the redo log may begin again, so that nothing a program saw finished is undone.
#ifndef DIVVY_COORDINATOR_CORE_REPLAY_ORDER_H_
#define DIVVY_COORDINATOR_CORE_REPLAY_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace divvy {

// The log numbers its entries in the order in which they finished, and keeps of each the number of
// the last one that had finished when it began (RedoLog::Entry::begun). An entry may begin again
// when all entries up to that number have finished again: then a replay keeps every "finished
// before began" of the first run. Entries that overlapped in the first run may come in any order,
// as they may have then.
//
// Pure; not thread-safe.
//
//   ReplayOrder order({1, 2});
//   order.MayBegin(1);   // false: entry 1 comes first
//   order.Finish(1);
//   order.MayBegin(1);   // true
class ReplayOrder {
 public:
  // Nothing is to be run again.
  ReplayOrder() = default;
  // `numbers` of the entries that are to be run again, each once, in any order.
  explicit ReplayOrder(std::vector<uint64_t> numbers);

  bool MayBegin(uint64_t begun) const {
    return first_missing_ == numbers_.size() || numbers_[first_missing_] > begun;
  }
  // The entry has finished again. A number that the order does not know: nothing is done.
  void Finish(uint64_t number);

 private:
  std::vector<uint64_t> numbers_;  // sorted
  std::vector<bool> finished_;     // beside numbers_
  size_t first_missing_ = 0;       // all before it have finished again
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_REPLAY_ORDER_H_
