// The memory of a table's rows.
#ifndef DIVVY_PS_SERVER_CORE_TABLE_ROW_SLABS_H_
#define DIVVY_PS_SERVER_CORE_TABLE_ROW_SLABS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
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

// The memory that all tables of a parameter server may take beside its other shards. What is taken
// for rows stays taken until their segment is gone, because freed rows are used again. Thread-safe.
class TableMemory {
 public:
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  explicit TableMemory(int64_t most_bytes = kNoLimit) : most_bytes_(most_bytes) {}
  // What the other shards take.
  void SetOthers(int64_t bytes) { others_.store(bytes, std::memory_order_relaxed); }
  // False: there is no room.
  bool Take(int64_t bytes) {
    const int64_t before = bytes_.fetch_add(bytes, std::memory_order_relaxed);
    if (before + bytes <= most_bytes_ - others_.load(std::memory_order_relaxed)) return true;
    GiveBack(bytes);
    return false;
  }
  void GiveBack(int64_t bytes) { bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  // What tables have taken.
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  const int64_t most_bytes_;
  std::atomic<int64_t> bytes_{0}, others_{0};
};

// Rows of one size, in slabs. The first slab begins with two rows and moves when it grows, so that
// a table of many segments is small as long as it has few rows; the others never move. A freed row
// is used again before a new one. Not thread-safe.
class RowSlabs {
 public:
  static constexpr uint32_t kNoRow = std::numeric_limits<uint32_t>::max();

  // `row_bytes` counts the head, and is a multiple of 8. `memory` limits the slabs, with what an
  // index takes for their rows.
  explicit RowSlabs(int64_t row_bytes,
                    std::shared_ptr<TableMemory> memory = std::make_shared<TableMemory>())
      : row_bytes_(row_bytes), shift_(ShiftFor(row_bytes)), memory_(std::move(memory)) {}
  ~RowSlabs() { memory_->GiveBack(TakenBytes(capacity_)); }
  RowSlabs(const RowSlabs&) = delete;
  RowSlabs& operator=(const RowSlabs&) = delete;

  // A row with undefined bytes behind its head. Other rows may move. kNoRow: there is no memory.
  uint32_t Take() {
    if (free_ != kNoRow) {
      const uint32_t row = free_;
      free_ = static_cast<uint32_t>(head(row).key);
      head(row) = RowHead();
      ++rows_;
      return row;
    }
    if (end_ == capacity_ && !AddRows()) return kNoRow;
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
  int64_t bytes() const { return capacity_ * row_bytes_; }

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
  uint32_t Mask() const { return RowsOfSlab() - 1; }
  // About what an index takes for a row.
  static constexpr int64_t kIndexBytes = 10;
  int64_t TakenBytes(int64_t rows) const { return rows * (row_bytes_ + kIndexBytes); }
  // The first slab doubles until it is as large as the others.
  uint32_t RowsToAdd() const {
    constexpr uint32_t kFirstRows = 2;
    if (capacity_ == 0) return kFirstRows;
    return capacity_ < RowsOfSlab() ? capacity_ : RowsOfSlab();
  }
  bool AddRows() {
    const uint32_t more = RowsToAdd();
    if (end_ > kNoRow - more) return false;
    if (!memory_->Take(TakenBytes(more))) return false;
    const bool grows = capacity_ > 0 && capacity_ < RowsOfSlab();
    const size_t bytes = static_cast<size_t>((grows ? capacity_ + more : more) * row_bytes_);
    std::unique_ptr<char, Delete> slab(
        static_cast<char*>(operator new(bytes, kAlignment, std::nothrow)));
    if (slab == nullptr) {
      memory_->GiveBack(TakenBytes(more));
      return false;
    }
    if (grows)
      std::memcpy(slab.get(), slabs_[0].get(), static_cast<size_t>(capacity_ * row_bytes_));
    if (grows)
      slabs_[0] = std::move(slab);
    else
      slabs_.push_back(std::move(slab));
    capacity_ += more;
    return true;
  }

  const int64_t row_bytes_;
  const int shift_;
  const std::shared_ptr<TableMemory> memory_;
  std::vector<std::unique_ptr<char, Delete>> slabs_;
  // The rows that the slabs have room for.
  uint32_t capacity_ = 0;
  uint32_t end_ = 0;
  // A list of free rows: the key of each is the next one.
  uint32_t free_ = kNoRow;
  int64_t rows_ = 0;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_TABLE_ROW_SLABS_H_
