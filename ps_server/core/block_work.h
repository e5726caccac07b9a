// Work on blocks, in tasks of bounded size.
#ifndef DIVVY_PS_SERVER_CORE_BLOCK_WORK_H_
#define DIVVY_PS_SERVER_CORE_BLOCK_WORK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/executor.h"

namespace divvy {

// Groups pieces of work, in the order given, into units of up to `unit_bytes`, so that many small
// blocks cost one task. A larger piece is a unit of its own.
class UnitList {
 public:
  explicit UnitList(int64_t unit_bytes) : unit_bytes_(unit_bytes) {}
  void AddPiece(int64_t bytes);
  int64_t count() const { return static_cast<int64_t>(begins_.size()); }
  // Of all pieces.
  int64_t bytes() const { return bytes_; }
  // Pieces [first, second) of a unit. REQUIRES: 0 <= unit < count().
  std::pair<size_t, size_t> pieces(int64_t unit) const;

 private:
  const int64_t unit_bytes_;
  std::vector<size_t> begins_;
  size_t pieces_ = 0;
  int64_t last_bytes_ = 0, bytes_ = 0;
};

// Runs unit(0) ... unit(units.count() - 1), and then `done`. If all units together have at most
// `at_once_bytes`, they run within the call, in order. Otherwise the call returns at once: each
// unit runs in a task of its own, several at the same time, and `done` in the last of these tasks.
// `owner` is held while a unit or `done` runs; after `owner` has been destroyed, nothing more runs.
void RunUnits(Executor& executor, std::weak_ptr<void> owner, const UnitList& units,
              int64_t at_once_bytes, std::function<void(int64_t unit)> unit,
              std::function<void()> done);

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_BLOCK_WORK_H_
