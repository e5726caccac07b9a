#include "base/memory_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "base/testing/sim_executor.h"

namespace divvy {
namespace {

constexpr size_t kMiB = 1 << 20;

class MemoryPoolTest : public testing::Test {
 protected:
  SimClock clock_;
  MemoryPool pool_{8 * kMiB, clock_};
};

TEST_F(MemoryPoolTest, ABlockIsTakenAgainForASizeOfItsClass) {
  void* const first = pool_.Take(kMiB);
  pool_.Return(first, kMiB);
  void* const again = pool_.Take(kMiB - 1000);
  EXPECT_EQ(again, first);
  EXPECT_EQ(pool_.kept_bytes(), 0u);
  pool_.Return(again, kMiB - 1000);
  EXPECT_EQ(pool_.kept_bytes(), kMiB);
}

TEST_F(MemoryPoolTest, TheBlockReturnedLastIsTakenFirst) {
  void* const first = pool_.Take(kMiB);
  void* const second = pool_.Take(kMiB);
  pool_.Return(second, kMiB);
  pool_.Return(first, kMiB);
  EXPECT_EQ(pool_.Take(kMiB), first);
  EXPECT_EQ(pool_.Take(kMiB), second);
  pool_.Return(first, kMiB);
  pool_.Return(second, kMiB);
}

TEST_F(MemoryPoolTest, EveryByteOfEverySizeCanBeWritten) {
  for (size_t bytes : {MemoryPool::kSmallest, MemoryPool::kSmallest + 1, 3 * kMiB / 2, 2 * kMiB,
                       2 * kMiB + 4097, 5 * kMiB}) {
    void* const data = pool_.Take(bytes);
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
    std::memset(data, 1, bytes);
    pool_.Return(data, bytes);
  }
}

TEST_F(MemoryPoolTest, KeepsNoMoreThanItsLimit) {
  void* const small = pool_.Take(kMiB);
  void* const large = pool_.Take(8 * kMiB);
  pool_.Return(small, kMiB);
  pool_.Return(large, 8 * kMiB);
  EXPECT_EQ(pool_.kept_bytes(), kMiB);
}

TEST_F(MemoryPoolTest, TrimUnmapsWhatWasNotTakenForSoLong) {
  void* const old = pool_.Take(kMiB);
  void* const used = pool_.Take(2 * kMiB);
  pool_.Return(old, kMiB);
  clock_.Advance(absl::Seconds(1));
  pool_.Return(used, 2 * kMiB);
  pool_.Trim(absl::Seconds(1));
  EXPECT_EQ(pool_.kept_bytes(), 2 * kMiB);
  pool_.Trim(absl::ZeroDuration());
  EXPECT_EQ(pool_.kept_bytes(), 0u);
}

TEST_F(MemoryPoolTest, MoreMemoryThanThereIsGivesNull) {
  EXPECT_EQ(pool_.Take(size_t{1} << 50), nullptr);
}

}  // namespace
}  // namespace divvy
