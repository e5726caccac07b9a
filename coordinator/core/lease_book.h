// Who reads which elements of a leased dataset: each position of a pass is given to one step, once.
#ifndef DIVVY_COORDINATOR_CORE_LEASE_BOOK_H_
#define DIVVY_COORDINATOR_CORE_LEASE_BOOK_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "cluster/horizon.h"

namespace divvy {

// The positions of one pass. A worker is given them in chunks of up to `kChunk` steps, so that it
// reads forward; what it has not begun when it is lost goes first to the others, and one that finds
// nothing else takes half of the longest chunk of another: all workers are busy to the end. Pure;
// not thread-safe.
//
//   book.Take(/*worker=*/0, /*per_step=*/2);    // {0, 2}: elements 0 and 1
//   book.Take(/*worker=*/1, 2);                 // {2, 2}, of a chunk of its own
//   // that step will never run: the next Take, whoever asks, gives {0, 2}
//   book.GiveBack(0, 2);
class LeaseBook {
 public:
  static constexpr int64_t kChunk = 64;  // steps

  LeaseBook() = default;
  // Goes on where `pass` stopped: what it has not read is given first.
  explicit LeaseBook(const PassProgress& pass);
  // Writes what has not been given to any step, and where the data ends.
  void Save(PassProgress& pass) const;

  // The elements of the pass, where known: none from here on is given. Told again, the smallest
  // stands. `exact`: it is the size of the data, not merely a position where somebody found
  // nothing.
  void SetEnd(int64_t elements, bool exact = false);
  // Replaces what was told of the end before: that was wrong. Nullopt: nobody knows.
  void SetSize(std::optional<int64_t> elements) {
    end_ = elements, end_known_ = elements.has_value();
  }
  std::optional<int64_t> end() const { return end_; }
  bool end_is_exact() const { return end_known_; }

  // What an earlier pass had: chunks are cut to it. The pass may be longer or shorter all the same.
  void SetHint(int64_t elements) { hint_ = elements; }
  // The elements of the pass as far as anybody can tell.
  std::optional<int64_t> expected() const {
    return hint_ ? hint_ : end_known_ ? end_ : std::nullopt;
  }

  // Positions [first, first + count) for a step of `worker`; count is `per_step`, less at the very
  // end. Nullopt: none are left. REQUIRES: per_step > 0, the same in all calls.
  std::optional<std::pair<int64_t, int64_t>> Take(int worker, int64_t per_step);

  // A step that was given these positions will never run: they are given again, before any other.
  void GiveBack(int64_t first, int64_t count) {
    if (count > 0) returned_.emplace(first, count);
  }

  // `worker` is gone: what it had not begun of its chunk is for the others.
  void WorkerGone(int worker);

  // Whether Take would find nothing for any worker.
  bool exhausted() const;

 private:
  struct Range {
    int64_t first, count;
  };
  std::optional<std::pair<int64_t, int64_t>> TakeFrom(Range& range, int64_t per_step) const;
  int64_t Usable(const Range& range) const;  // positions of it before the end
  Range NewChunk(int64_t per_step);
  Range Steal(int64_t per_step);

  std::optional<int64_t> end_, hint_;
  bool end_known_ = false;
  int64_t next_ = 0;                     // positions from here on are in no chunk
  std::map<int, Range> chunks_;          // by worker: what is left of its chunk
  std::map<int64_t, int64_t> returned_;  // first -> count
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_LEASE_BOOK_H_
