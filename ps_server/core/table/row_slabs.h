// The memory of a table's rows.
#ifndef DIVVY_PS_SERVER_CORE_TABLE_ROW_SLABS_H_
#define DIVVY_PS_SERVER_CORE_TABLE_ROW_SLABS_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace divvy {

// What a row has in front of its values.
struct RowHead {
  int64_t key = 0;
  // Finished steps that named the key since its row, or the count before it, began.
  uint32_t count = 0;
  // The latest tick of these steps, in minutes, below kFreeTick. kFreeTick: the row is free.
  uint32_t tick = 0;
};
constexpr uint32_t kFreeTick = std::numeric_limits<uint32_t>::max();

// Rows of one size, in slabs that never move. A freed row is used again before a new one. Not
// thread-safe.
class RowSlabs {
 public:
  static constexpr uint32_t kNoRow = std::numeric_limits<uint32_t>::max();

  // `row_bytes` counts the head, and is a multiple of 8.
  explicit RowSlabs(int64_t row_bytes) : row_bytes_(row_bytes), shift_(ShiftFor(row_bytes)) {}

  // A row with undefined bytes behind its head. kNoRow: there is no memory.
  uint32_t Take() {
    if (free_ != kNoRow) {
      const uint32_t row = free_;
      free_ = static_cast<uint32_t>(head(row).key);
      head(row) = RowHead();
      ++rows_;
      return row;
    }
    if (end_ == slabs_.size() << shift_ && !AddSlab()) return kNoRow;
    new (at(end_)) RowHead();
    ++rows_;
    return end_++;
  }
  void Free(uint32_t row) {
    head(row) = {free_, 0, kFreeTick};
    free_ = row;
    --rows_;
  }

  RowHead& head(uint32_t row) { return *reinterpret_cast<RowHead*>(at(row)); }
  const RowHead& head(uint32_t row) const { return *reinterpret_cast<const RowHead*>(at(row)); }
  char* at(uint32_t row) const {
    return slabs_[row >> shift_].get() + (row & Mask()) * static_cast<size_t>(row_bytes_);
  }
  bool is_free(uint32_t row) const { return head(row).tick == kFreeTick; }

  // Rows in use.
  int64_t rows() const { return rows_; }
  // Every row in use is below it.
  uint32_t end() const { return end_; }
  int64_t bytes() const { return static_cast<int64_t>(slabs_.size()) * SlabBytes(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Delete {
    void operator()(char* slab) const { operator delete(slab, kAlignment); }
  };

  // A slab has about 8 KiB, so that little is unused.
  static int ShiftFor(int64_t row_bytes) {
    constexpr int64_t kSlabBytes = 8 << 10;
    int shift = 3;
    while (row_bytes << (shift + 1) <= kSlabBytes) ++shift;
    return shift;
  }
  uint32_t RowsOfSlab() const { return uint32_t{1} << shift_; }
  int64_t SlabBytes() const { return row_bytes_ << shift_; }
  uint32_t Mask() const { return RowsOfSlab() - 1; }
  bool AddSlab() {
    if (end_ > kNoRow - RowsOfSlab()) return false;
    std::unique_ptr<char, Delete> slab(static_cast<char*>(operator new(
        static_cast<size_t>(SlabBytes()), kAlignment, std::nothrow)));
    if (slab == nullptr) return false;
    slabs_.push_back(std::move(slab));
    return true;
  }

  const int64_t row_bytes_;
  const int shift_;
  std::vector<std::unique_ptr<char, Delete>> slabs_;
  uint32_t end_ = 0;
  // A list of free rows: the key of each is the next one.
  uint32_t free_ = kNoRow;
  int64_t rows_ = 0;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_TABLE_ROW_SLABS_H_
