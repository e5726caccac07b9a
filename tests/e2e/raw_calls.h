// gRPC calls whose messages are any bytes.
#ifndef DIVVY_TESTS_E2E_RAW_CALLS_H_
#define DIVVY_TESTS_E2E_RAW_CALLS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"

namespace divvy {

grpc::ByteBuffer BufferOf(const std::string& bytes);
std::string BytesOf(const grpc::ByteBuffer& buffer);  // empty for an invalid buffer too

// A channel to one task. Every call has a deadline, and no method blocks for longer. Not
// thread-safe.
class RawCalls {
 public:
  RawCalls(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
           absl::Duration deadline = absl::Seconds(20));

  struct Options {
    int at_once = 64;
    bool gzip = false;         // compresses the messages
    std::string large_header;  // sent with every call; may be empty
  };
  // Calls `method` once for each message. `ended` gets the status and the reply of each call.
  using Ended =
      std::function<void(size_t message, const grpc::Status& status, const std::string& reply)>;
  void CallEach(const std::string& method, const std::vector<std::string>& messages,
                const Options& options, const Ended& ended);
  void CallEach(const std::string& method, const std::vector<std::string>& messages,
                const Ended& ended) {
    CallEach(method, messages, Options(), ended);
  }

  struct StreamEnd {
    std::vector<std::string> replies;
    grpc::Status status;
  };
  // Opens a stream, sends all messages and closes this side, then reads until the server ends it.
  // The status is DEADLINE_EXCEEDED if the server does not.
  StreamEnd Stream(const std::string& method, const std::vector<std::string>& messages,
                   bool gzip = false);
  StreamEnd HeldStream(const std::string& method, const std::vector<std::string>& messages,
                       absl::Duration hold);

 private:
  StreamEnd Run(const std::string& method, const std::vector<std::string>& messages,
                absl::Duration deadline, bool ends, bool gzip);

  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  const absl::Duration deadline_;
};

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_RAW_CALLS_H_
