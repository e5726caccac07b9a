#include "tests/e2e/raw_calls.h"

#include <utility>

#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "rpc/channel.h"
#include "rpc/time.h"

namespace divvy {
namespace {

struct UnaryCall {
  size_t message;
  grpc::ClientContext context;
  grpc::ByteBuffer reply;
  grpc::Status status;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
};

}  // namespace

grpc::ByteBuffer BufferOf(const std::string& bytes) {
  grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Valid() || !buffer.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& slice : slices)
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

RawCalls::RawCalls(const std::string& address,
                   const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                   absl::Duration deadline)
    : channel_(MakeChannel(address, credentials)), stub_(channel_), deadline_(deadline) {}

void RawCalls::CallEach(const std::string& method, const std::vector<std::string>& messages,
                        const Options& options, const Ended& ended) {
  grpc::CompletionQueue queue;
  const auto begin = [&](size_t message) {
    auto* const call = new UnaryCall{message, {}, {}, {}, nullptr};
    call->context.set_deadline(GrpcDeadline(deadline_));
    call->context.set_wait_for_ready(true);
    if (options.gzip) call->context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    if (!options.large_header.empty()) call->context.AddMetadata("x-hostile", options.large_header);
    call->reader =
        stub_.PrepareUnaryCall(&call->context, method, BufferOf(messages[message]), &queue);
    call->reader->StartCall();
    call->reader->Finish(&call->reply, &call->status, call);
  };
  size_t begun = 0;
  for (; begun < messages.size() && begun < static_cast<size_t>(options.at_once); ++begun)
    begin(begun);
  for (size_t done = 0; done < messages.size(); ++done) {
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);  // returns at the call's deadline at the latest
    const std::unique_ptr<UnaryCall> call(static_cast<UnaryCall*>(tag));
    ended(call->message, call->status, BytesOf(call->reply));
    if (begun < messages.size()) begin(begun++);
  }
}

RawCalls::StreamEnd RawCalls::Stream(const std::string& method,
                                     const std::vector<std::string>& messages, bool gzip) {
  return Run(method, messages, deadline_, true, gzip);
}

RawCalls::StreamEnd RawCalls::HeldStream(const std::string& method,
                                         const std::vector<std::string>& messages,
                                         absl::Duration hold) {
  return Run(method, messages, hold, false, false);
}

RawCalls::StreamEnd RawCalls::Run(const std::string& method,
                                  const std::vector<std::string>& messages, absl::Duration deadline,
                                  bool ends, bool gzip) {
  grpc::CompletionQueue queue;
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(deadline));
  context.set_wait_for_ready(true);
  if (gzip) context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  const std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream =
      stub_.PrepareCall(&context, method, &queue);
  StreamEnd end;
  stream->StartCall(nullptr);
  const bool begun = wait();
  bool takes = begun;
  for (const std::string& message : messages) {
    if (!takes) break;
    stream->Write(BufferOf(message), nullptr);
    takes = wait();
  }
  if (takes && ends) {
    stream->WritesDone(nullptr);
    wait();
  }
  // Reads also when the stream takes no more messages: gRPC returns its status after the last
  // reply.
  for (bool more = begun; more;) {
    grpc::ByteBuffer reply;
    stream->Read(&reply, nullptr);
    if ((more = wait())) end.replies.push_back(BytesOf(reply));
  }
  stream->Finish(&end.status, nullptr);
  wait();
  return end;
}

}  // namespace divvy
