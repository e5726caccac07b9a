#include "base/cpu_limit.h"

#include <map>
#include <string>

#include "gtest/gtest.h"

namespace divvy {
namespace {

std::optional<int> LimitWith(absl::string_view groups,
                             const std::map<std::string, std::string>& files) {
  return CpuLimit(groups, [&files](const std::string& path) {
    const auto found = files.find(path);
    return found == files.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
}

TEST(CpuLimitTest, IsTheTightestFromTheProcessOwnGroupUp) {
  EXPECT_EQ(LimitWith("0::/a/b\n", {{"/sys/fs/cgroup/a/b/cpu.max", "400000 100000\n"}}), 4);
  EXPECT_EQ(LimitWith("0::/a/b\n", {{"/sys/fs/cgroup/a/b/cpu.max", "400000 100000\n"},
                                    {"/sys/fs/cgroup/a/cpu.max", "200000 100000\n"}}),
            2);
  EXPECT_EQ(LimitWith("0::/\n", {{"/sys/fs/cgroup/cpu.max", "150000 100000\n"}}), 2)
      << "one and a half, rounded up";
  EXPECT_EQ(LimitWith("0::/of/the/host\n", {{"/sys/fs/cgroup/cpu.max", "10000 100000\n"}}), 1)
      << "in a container";
}

TEST(CpuLimitTest, IsNoneWhereNoGroupHasOne) {
  EXPECT_EQ(LimitWith("0::/a\n", {{"/sys/fs/cgroup/a/cpu.max", "max 100000\n"}}), std::nullopt);
  EXPECT_EQ(LimitWith("0::/a\n", {}), std::nullopt);
  EXPECT_EQ(LimitWith("", {}), std::nullopt);
  EXPECT_EQ(LimitWith("nonsense\n0::/a", {{"/sys/fs/cgroup/a/cpu.max", "1 2 3"}}), std::nullopt);
}

TEST(CpuLimitTest, OfVersionOneIsQuotaOverPeriod) {
  const std::string groups = "5:cpu,cpuacct:/docker/x\n3:memory:/docker/x\n";
  EXPECT_EQ(LimitWith(groups, {{"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n"},
                               {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}}),
            3);
  EXPECT_EQ(LimitWith(groups, {{"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
                               {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}}),
            std::nullopt);
}

TEST(MemoryLimitTest, IsTheTightestOfEitherVersion) {
  const auto limit = [](absl::string_view groups, const std::map<std::string, std::string>& files) {
    return MemoryLimit(groups, [&files](const std::string& path) {
      const auto found = files.find(path);
      return found == files.end() ? std::nullopt : std::optional<std::string>(found->second);
    });
  };
  EXPECT_EQ(limit("0::/a/b\n", {{"/sys/fs/cgroup/a/b/memory.max", "4096000\n"},
                                {"/sys/fs/cgroup/a/memory.max", "2048000\n"}}),
            2'048'000);
  EXPECT_EQ(limit("0::/a\n", {{"/sys/fs/cgroup/a/memory.max", "max\n"}}), std::nullopt);
  EXPECT_EQ(limit("3:memory:/x\n", {{"/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1000\n"}}),
            1000);
  EXPECT_EQ(limit("", {}), std::nullopt);
}

}  // namespace
}  // namespace divvy
