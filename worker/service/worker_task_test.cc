#include "worker/service/worker_task.h"

#include <string>

#include "gtest/gtest.h"

namespace divvy {
namespace {

int WorkersNear(const std::string& tf_config) { return WorkersOnHostOf(*ParseTfConfig(tf_config)); }

TEST(WorkersOnHostOfTest, CountsThoseWithThisWorkersHost) {
  EXPECT_EQ(
      WorkersNear(
          R"({"cluster":{"chief":["a:1"],"ps":["a:2"],"worker":["a:3","b:3","a:4","a:5"]},"task":{"type":"worker","index":2}})"),
      3);
  EXPECT_EQ(
      WorkersNear(
          R"({"cluster":{"chief":["a:1"],"ps":["a:2"],"worker":["a:3","b:3"]},"task":{"type":"worker","index":1}})"),
      1);
  EXPECT_EQ(
      WorkersNear(
          R"({"cluster":{"worker":["[::1]:3","[::1]:4"]},"task":{"type":"worker","index":1}})"),
      2);
  EXPECT_EQ(
      WorkersNear(
          R"({"cluster":{"worker":["unix:/run/a/w0","unix:/run/b/w1"]},"task":{"type":"worker","index":1}})"),
      2);
}

TEST(WorkersOnHostOfTest, IsOneWhereTheClusterDoesNotNameThisWorker) {
  EXPECT_EQ(WorkersNear(R"({"cluster":{"chief":["a:1"]},"task":{"type":"worker","index":2}})"), 1);
}

TEST(DefaultBlasThreadsTest, FillsTheCoresOnce) {
  EXPECT_EQ(DefaultBlasThreads(8, 1, 1), 8);
  EXPECT_EQ(DefaultBlasThreads(8, 2, 1), 4);
  EXPECT_EQ(DefaultBlasThreads(8, 2, 3), 1);
  EXPECT_EQ(DefaultBlasThreads(2, 4, 1), 1);
}

}  // namespace
}  // namespace divvy
