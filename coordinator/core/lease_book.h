// Assigns the elements of a leased dataset: each position of a pass goes to one step, once.
#ifndef DIVVY_COORDINATOR_CORE_LEASE_BOOK_H_
#define DIVVY_COORDINATOR_CORE_LEASE_BOOK_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "protocol/horizon.h"

namespace divvy {

// The positions of one pass. A worker gets positions in chunks of up to `kChunk` steps, so that it
// reads forward. When a worker is lost, the other workers get the rest of its chunk before anything
// else. A worker for which no other positions are left takes half of the longest chunk of another
// worker, so all workers are busy to the end. Pure; not thread-safe.
//
//   book.Take(/*worker=*/0, /*per_step=*/2);    // {0, 2}: elements 0 and 1
//   book.Take(/*worker=*/1, 2);                 // the first two of a chunk of its own
//   book.GiveBack(0, 2);                        // that step will never run
//   book.Take(/*worker=*/1, 2);                 // {0, 2}: what was given back comes first
class LeaseBook {
 public:
  // The size of a chunk, in steps.
  static constexpr int64_t kChunk = 64;

  LeaseBook() = default;
  // Resumes `pass`: the positions that it has not read are given first.
  explicit LeaseBook(const PassProgress& pass);
  // Writes to `pass` the positions that no step has, and the position where the data ends.
  void Save(PassProgress& pass) const;

  // Sets the number of elements; Take gives no position from `elements` on. Of several calls the
  // smallest number counts. `exact`: `elements` is the size of the data. Otherwise it is only a
  // position where a worker found no element.
  void SetEnd(int64_t elements, bool exact = false);
  // Replaces what earlier calls of SetEnd said, because it was wrong. Nullopt: the size is unknown.
  void SetSize(std::optional<int64_t> elements) {
    end_ = elements, end_known_ = elements.has_value();
  }
  // Where the data ends: Take gives no position from here on. Nullopt: not known.
  std::optional<int64_t> end() const { return end_; }
  // Whether end() is the size of the data.
  bool end_is_exact() const { return end_known_; }

  // The number of elements of an earlier pass over the same data. Chunks are sized for it. This
  // pass may still be longer or shorter.
  void SetHint(int64_t elements) { hint_ = elements; }
  // The best estimate of the number of elements.
  std::optional<int64_t> expected() const {
    return hint_ ? hint_ : end_known_ ? end_ : std::nullopt;
  }

  // Positions [first, first + count) for a step of `worker`. `count` is `per_step`, or less at the
  // end of the data. Nullopt: no positions are left. REQUIRES: per_step > 0, and the same in all
  // calls.
  std::optional<std::pair<int64_t, int64_t>> Take(int worker, int64_t per_step);

  // The step that got these positions will never run. They are given again before any others.
  void GiveBack(int64_t first, int64_t count) {
    if (count > 0) returned_.emplace(first, count);
  }

  // `worker` is gone. The rest of its chunk goes to the other workers.
  void WorkerGone(int worker);

  // Whether Take would return nullopt for every worker.
  bool exhausted() const;

 private:
  struct Range {
    int64_t first, count;
  };
  std::optional<std::pair<int64_t, int64_t>> TakeFrom(Range& range, int64_t per_step) const;
  // How many positions of the range lie before the end.
  int64_t Usable(const Range& range) const;
  Range NewChunk(int64_t per_step);
  Range Steal(int64_t per_step);

  std::optional<int64_t> end_, hint_;
  bool end_known_ = false;
  // Positions from here on are in no chunk.
  int64_t next_ = 0;
  // The rest of each worker's chunk.
  std::map<int, Range> chunks_;
  // First position -> count.
  std::map<int64_t, int64_t> returned_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_LEASE_BOOK_H_
