#include "bench/raw_tcp.h"

#include "base/executor.h"
#include "base/mutex.h"
#include "gtest/gtest.h"

namespace divvy::bench {
namespace {

constexpr int64_t kBytes = 1 << 20;

TEST(RawTcpTest, TransfersBothWaysAreAnswered) {
  const auto server = *RawTcpServer::Listen();
  ThreadPoolExecutor thread(1);
  thread.PostBlocking("serve", [&] { EXPECT_TRUE(server->Serve(kBytes).ok()); });
  const auto tcp = *RawTcp::Connect(server->port(), kBytes);
  EXPECT_TRUE(tcp->Push(kBytes, 3, 2).ok());
  EXPECT_TRUE(tcp->Pull(kBytes, 3, 2).ok());
}

// If the client cannot connect, its program stops the server so that it can end.
TEST(RawTcpTest, AServerThatNobodyConnectsToCanBeStopped) {
  const auto server = *RawTcpServer::Listen();
  absl::Status served;
  {
    ThreadPoolExecutor thread(1);
    Mutex mu;
    CondVar begun;
    bool begins = false;
    thread.PostBlocking("serve", [&] {
      {
        MutexLock lock(mu);
        begins = true;
        begun.NotifyAll();
      }
      served = server->Serve(kBytes);
    });
    {
      MutexLock lock(mu);
      begun.Wait(mu, [&] { return begins; });
    }
    server->Stop();
  }
  EXPECT_EQ(served.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace divvy::bench
