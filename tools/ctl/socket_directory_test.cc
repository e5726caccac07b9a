#include "tools/ctl/socket_directory.h"

#include "base/testing/in_memory_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

TEST(SocketDirectoryTest, NamesTheTasksOfALaunchAndNotTheirLocks) {
  InMemoryFileSystem files;
  ASSERT_TRUE(files.CreateDirectory("/run/launch").ok());
  for (const char* name : {"worker-0", "worker-0.lock", "chief", "chief.lock"})
    ASSERT_TRUE(files.ReplaceFile(std::string("/run/launch/") + name, "").ok());
  EXPECT_THAT(SocketsIn("unix:/run/launch", files),
              testing::ElementsAre("unix:/run/launch/chief", "unix:/run/launch/worker-0"));
  EXPECT_THAT(SocketsIn("unix:/run/launch/chief", files), testing::IsEmpty());
  EXPECT_THAT(SocketsIn("localhost:80", files), testing::IsEmpty());
}

TEST(SocketDirectoryTest, ASocketHasTheNameOfItsTask) {
  EXPECT_EQ(TaskOfSocket("unix:/tmp/divvy-launch-1/sockets/chief"), "chief");
  EXPECT_EQ(TaskOfSocket("unix:/tmp/divvy-launch-1/sockets/worker-12"), "worker 12");
}

}  // namespace
}  // namespace divvy
