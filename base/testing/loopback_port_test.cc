#include "base/testing/loopback_port.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

// Listens as a server that sets SO_REUSEADDR.
bool CanListen(int port) {
  const Descriptor server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  setsockopt(server.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  return bind(server.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
         listen(server.get(), 1) == 0;
}

TEST(LoopbackPortTest, AServerCanListenOnAReservedPortAgainAndAgain) {
  const LoopbackPort port = *LoopbackPort::Reserve();
  EXPECT_EQ(port.address(), absl::StrCat("127.0.0.1:", port.number()));
  EXPECT_TRUE(CanListen(port.number()));
  EXPECT_TRUE(CanListen(port.number()));
}

TEST(LoopbackPortTest, NoTwoAreTheSame) {
  std::vector<LoopbackPort> ports;
  std::set<int> numbers;
  for (int i = 0; i < 200; ++i) {
    ports.push_back(*LoopbackPort::Reserve());
    numbers.insert(ports.back().number());
  }
  EXPECT_EQ(numbers.size(), 200u);
}

}  // namespace
}  // namespace divvy
