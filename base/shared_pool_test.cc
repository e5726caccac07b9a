#include "base/shared_pool.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/descriptor.h"
#include "base/memory_pool.h"
#include "base/process.h"
#include "base/shared_memory.h"

namespace divvy {
namespace {

constexpr size_t kMiB = 1 << 20;

std::shared_ptr<SharedMemory> Created(size_t bytes) {
  auto memory = SharedMemory::Create(bytes);
  EXPECT_TRUE(memory.ok()) << memory.status();
  return *std::move(memory);
}
std::shared_ptr<SharedPool> Pool(size_t bytes, size_t kept_bytes) {
  auto pool = SharedPool::Create(bytes, kept_bytes);
  EXPECT_TRUE(pool.ok()) << pool.status();
  return *std::move(pool);
}

TEST(SharedMemoryTest, AnotherMappingSeesWhatIsWritten) {
  const auto mine = Created(kMiB);
  const auto theirs = SharedMemory::Open(mine->name(), SharedMemory::Access::kRead);
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  EXPECT_NE((*theirs)->data(), mine->data());
  EXPECT_EQ((*theirs)->size(), mine->size());
  std::strcpy(mine->data() + 5000, "written");
  EXPECT_STREQ((*theirs)->data() + 5000, "written");
}

TEST(SharedMemoryTest, AnotherProcessWritesIntoIt) {
  const auto mine = Created(kMiB);
  const pid_t child = fork();
  if (child == 0) {
    const auto theirs = SharedMemory::Open(mine->name(), SharedMemory::Access::kWrite);
    if (theirs.ok()) std::strcpy((*theirs)->data() + 5000, "by the child");
    _exit(theirs.ok() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_STREQ(mine->data() + 5000, "by the child");
}

TEST(SharedMemoryTest, OutlivesTheOneThatMadeIt) {
  auto mine = Created(kMiB);
  const auto theirs = SharedMemory::Open(mine->name(), SharedMemory::Access::kRead);
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  std::strcpy(mine->data() + 5000, "still there");
  const std::string name = mine->name();
  mine = nullptr;
  EXPECT_STREQ((*theirs)->data() + 5000, "still there");
  EXPECT_FALSE(SharedMemory::Open(name, SharedMemory::Access::kRead).ok());
}

TEST(SharedMemoryTest, NamesThatMeanSomethingElseAreNotFound) {
  const auto mine = Created(kMiB);
  const std::vector<std::string> parts = absl::StrSplit(mine->name(), '/');
  const auto named = [&](const std::string& descriptor, const std::string& number) {
    return absl::StrCat(parts[0], "/", parts[1], "/", descriptor, "/", number, "/", parts[4]);
  };
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const Descriptor reads(pipe_ends[0]), writes(pipe_ends[1]);
  const Descriptor file(open("/proc/self/exe", O_RDONLY));
  // Memory that may shrink.
  const Descriptor unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), kMiB), 0);
  std::vector<std::string> names = {
      "",
      "////",
      "no name at all",
      mine->name() + "/1",
      named(parts[2], "1"),
      named("-1", parts[3]),
      named("99999", parts[3]),
      absl::StrCat("another-machine", mine->name().substr(parts[0].size())),
      absl::StrReplaceAll(mine->name(), {{absl::StrCat("/", ProcessId(), "/"), "/0/"}}),
      absl::StrReplaceAll(mine->name(), {{absl::StrCat("/", ProcessId(), "/"), "/../"}}),
      std::string(100'000, '/')};
  for (const Descriptor* other : {&reads, &writes, &file, &unsealed})
    names.push_back(named(absl::StrCat(other->get()), parts[3]));
  for (const std::string& name : names) {
    for (const auto access : {SharedMemory::Access::kRead, SharedMemory::Access::kWrite})
      EXPECT_EQ(SharedMemory::Open(name, access).status().code(), absl::StatusCode::kNotFound)
          << name.substr(0, 100);
  }
}

TEST(SharedMemoryTest, MoreThanCanBeMappedIsAnError) {
  EXPECT_EQ(SharedMemory::Create(size_t{1} << 62).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(SharedPoolTest, TheOtherProcessFindsABlockAtItsOffset) {
  const auto pool = Pool(16 * kMiB, 4 * kMiB);
  const auto theirs = SharedMemory::Open(pool->name(), SharedMemory::Access::kRead);
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  const auto one = pool->Take(kMiB), two = pool->Take(3 * kMiB);
  ASSERT_NE(one, nullptr);
  ASSERT_NE(two, nullptr);
  std::memset(one->data(), 1, one->size());
  std::memset(two->data(), 2, two->size());
  for (const auto& block : {one, two}) {
    EXPECT_EQ(block->offset() % 4096, 0u);
    const char* const seen = (*theirs)->data() + block->offset();
    EXPECT_EQ(std::memcmp(seen, block->data(), block->size()), 0);
  }
}

TEST(SharedPoolTest, AReturnedBlockIsTakenAgainAndAnAbandonedOneNever) {
  const auto pool = Pool(8 * kMiB, 8 * kMiB);
  auto block = pool->Take(2 * kMiB);
  const size_t offset = block->offset();
  block = nullptr;
  block = pool->Take(2 * kMiB);
  EXPECT_EQ(block->offset(), offset);
  block->Abandon();
  block = nullptr;
  for (int i = 0; i < 3; ++i) {
    block = pool->Take(2 * kMiB);
    ASSERT_NE(block, nullptr);
    EXPECT_NE(block->offset(), offset);
    if (i < 2) block->Abandon();
  }
  EXPECT_EQ(pool->Take(2 * kMiB), nullptr) << "it had room for four";
}

TEST(SharedPoolTest, WhatIsNotKeptLosesItsPagesAndIsTakenAgain) {
  const auto pool = Pool(2 * kMiB, 0);
  for (int i = 0; i < 5; ++i) {
    const auto block = pool->Take(2 * kMiB);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(block->data()[kMiB], 0);
    block->data()[kMiB] = 1;
  }
}

TEST(SharedPoolTest, ABlockKeepsItsPool) {
  auto pool = Pool(2 * kMiB, kMiB);
  const auto block = pool->Take(kMiB);
  pool = nullptr;
  std::memset(block->data(), 1, block->size());
}

}  // namespace
}  // namespace divvy
