// What strangers send to the ports of a running job: it goes on, and memory stays under its limits.
#include <sys/socket.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/divvy.pb.h"
#include "tests/e2e/loopback_client.h"
#include "tests/e2e/process_cluster.h"

namespace divvy {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr int64_t kMostMemoryBytes = int64_t{512} << 20;  // of one task, whatever is sent to it: --rpc_memory_bytes and what it needs anyway

std::string RandomBytes(Random& random, size_t size) {
  std::string bytes(size, 0);
  for (char& byte : bytes) byte = static_cast<char>(random.Next());
  return bytes;
}

// An HTTP/2 frame (RFC 9113, 4.1) that says it is `length` long.
std::string Http2Frame(uint32_t length, uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload) {
  std::string frame = {static_cast<char>(length >> 16), static_cast<char>(length >> 8), static_cast<char>(length), static_cast<char>(type),
                       static_cast<char>(flags)};
  for (int shift = 24; shift >= 0; shift -= 8) frame.push_back(static_cast<char>(stream >> shift));
  return frame + payload;
}

// The most memory that the process ever held, by the kernel's count.
int64_t PeakMemoryBytes(pid_t pid) {
  const std::string status = *FileSystem::Real().ReadFile(absl::StrCat("/proc/", pid, "/status"));
  const size_t at = status.find("VmHWM:");
  int64_t kib = 0;
  EXPECT_TRUE(absl::SimpleAtoi(status.substr(at + 6, status.find("kB", at) - at - 6), &kib)) << status;
  return kib * 1024;
}

class HostileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    seed_ = EntropySeed();
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed_));
    ProcessClusterOptions options;
    options.program = "tests/e2e/counter_program";
    options.num_ps = 2;
    options.num_workers = 2;
    options.flags = {"--stop_file=" + stop_file_};
    cluster_ = *ProcessCluster::Make(std::move(options));
    ASSERT_TRUE(cluster_->StartAll().ok());
    CountOn();
  }
  void TearDown() override {
    CountOn();
    for (const TaskId& task : cluster_->tasks()) {
      ASSERT_TRUE(cluster_->running(task)) << ToString(task) << cluster_->processes().LastLines();
      EXPECT_LT(PeakMemoryBytes(cluster_->processes().pid(ToString(task))), kMostMemoryBytes) << ToString(task);
    }
    ASSERT_TRUE(FileSystem::Real().ReplaceFile(stop_file_, "").ok());
    EXPECT_EQ(cluster_->WaitForExit(kChiefTask, kPatience)->code(), 0) << cluster_->processes().LastLines();
    const absl::Status ended = cluster_->WaitForAll(kPatience);
    EXPECT_TRUE(ended.ok()) << ended;
  }
  void CountOn() {
    for (int i = 0; i < 2; ++i) {
      const absl::Status counted = cluster_->WaitForText(kChiefTask, "counted ", kPatience).status();
      ASSERT_TRUE(counted.ok()) << counted;
    }
  }
  // To each task a connection of its own, which then ends.
  void SendToAll(const std::string& bytes) {
    for (const TaskId& task : cluster_->tasks()) {
      const Descriptor stranger = ConnectTo(cluster_->address(task));
      ASSERT_TRUE(stranger) << ToString(task);
      Send(stranger, bytes, absl::Seconds(5));
      shutdown(stranger.get(), SHUT_WR);
      Receive(stranger, 1 << 20, absl::Milliseconds(50));
    }
  }

  const std::string stop_file_ = absl::StrCat(std::getenv("TEST_TMPDIR"), "/stop_", ::testing::UnitTest::GetInstance()->current_test_info()->name());
  uint64_t seed_ = 0;
  std::unique_ptr<ProcessCluster> cluster_;
};

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

TEST_F(HostileTest, RandomBytesOnAConnection) {
  Random random(seed_);
  for (int i = 0; i < 10; ++i) SendToAll(RandomBytes(random, 1 + random.Below(100'000)));
  SendToAll("GET / HTTP/1.1\r\nHost: divvy\r\n\r\n");
}

TEST_F(HostileTest, RandomTruncatedAndOversizeFramesBehindAGoodPreface) {
  Random random(seed_);
  const std::string settings = Http2Frame(0, 4, 0, 0, "");
  for (int i = 0; i < 20; ++i) {
    const std::string payload = RandomBytes(random, random.Below(2000));
    const auto size = static_cast<uint32_t>(payload.size());
    const uint32_t claimed = i % 3 == 0 ? size : i % 3 == 1 ? 0xffffff : size + 100;  // right; the most there can be; cut short
    SendToAll(
        kPreface + settings +
        Http2Frame(claimed, static_cast<uint8_t>(random.Below(12)), static_cast<uint8_t>(random.Next()), static_cast<uint32_t>(random.Below(8)), payload));
  }
}

TEST_F(HostileTest, ManyConnectionsThatSayNothing) {
  std::vector<Descriptor> idle;
  for (int i = 0; i < 100; ++i) {
    for (const TaskId& task : cluster_->tasks()) {
      idle.push_back(ConnectTo(cluster_->address(task)));
      if (i % 2 == 0) Send(idle.back(), std::string(kPreface).substr(0, static_cast<size_t>(i) % 24), absl::Seconds(5));
    }
  }
  CountOn();
}

constexpr char kDataPlane[] = "/divvy.v1.ParameterServerData/";  // of ps alone; its streams are not in the .proto
constexpr char kGetStatus[] = "/divvy.v1.Admin/GetStatus";       // looks at nothing in its request

// Every RPC that there is, on every port.
std::vector<std::string> Methods() {
  std::vector<std::string> methods;
  const google::protobuf::FileDescriptor* const file = v1::GetStatusRequest::descriptor()->file();
  for (int i = 0; i < file->service_count(); ++i) {
    for (int j = 0; j < file->service(i)->method_count(); ++j) {
      methods.push_back(absl::StrCat("/", file->service(i)->full_name(), "/", file->service(i)->method(j)->name()));
    }
  }
  for (const char* stream : {"Pull", "Commit"}) methods.push_back(absl::StrCat(kDataPlane, stream));
  return methods;
}

// The method is one of the task's own data plane. gRPC itself answers UNIMPLEMENTED where it cannot parse a message, as for a method that is not there; on the
// data plane we parse.
bool IsDataPlane(TaskId task, absl::string_view method) { return task.type == TaskType::kPs && absl::StartsWith(method, kDataPlane); }

// The answer of one call with `bytes` for a message; DEADLINE_EXCEEDED if none came.
grpc::Status Call(grpc::GenericStub& stub, const std::string& method, const std::string& bytes) {
  grpc::ClientContext context;
  context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(300, GPR_TIMESPAN)));
  grpc::CompletionQueue queue;
  grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer reply;
  grpc::Status status;
  const auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
  call->StartCall();
  call->Finish(&reply, &status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);  // the deadline is a watch
  return status;
}

TEST_F(HostileTest, RandomMessagesToEveryMethodAreRefused) {
  Random random(seed_);
  for (const TaskId& task : cluster_->tasks()) {
    grpc::GenericStub stub(grpc::CreateChannel(cluster_->address(task), grpc::InsecureChannelCredentials()));
    for (const std::string& method : Methods()) {
      for (int i = 0; i < 5; ++i) {
        const std::string bytes = RandomBytes(random, 1 + random.Below(300));
        const grpc::Status status = Call(stub, method, bytes);
        EXPECT_TRUE(method == kGetStatus || !status.ok()) << ToString(task) << " " << method;  // bytes may be unknown fields
        EXPECT_FALSE(IsDataPlane(task, method) && status.error_code() == grpc::StatusCode::UNIMPLEMENTED) << ToString(task) << " " << method;
        EXPECT_NE(status.error_code(), grpc::StatusCode::INTERNAL) << ToString(task) << " " << method << ": " << status.error_message();
      }
    }
  }
}

TEST_F(HostileTest, MessagesFarLargerThanAnyShouldBeAreRefused) {
  const std::string large(64 << 20, 'x');
  for (const TaskId& task : cluster_->tasks()) {
    grpc::GenericStub stub(grpc::CreateChannel(cluster_->address(task), grpc::InsecureChannelCredentials()));
    for (const std::string& method : Methods()) {
      const grpc::Status status = Call(stub, method, large);
      EXPECT_FALSE(status.ok()) << ToString(task) << " " << method;
      EXPECT_FALSE(IsDataPlane(task, method) && status.error_code() == grpc::StatusCode::UNIMPLEMENTED) << ToString(task) << " " << method;
    }
  }
}

}  // namespace
}  // namespace divvy
