// Sends any bytes to the methods of Admin, over a connection to a real server. Each call is
// answered, and a request for another life of the coordinator has no effect.
#include <atomic>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/testing/fuzz.h"
#include "grpcpp/generic/generic_stub.h"
#include "proto/divvy.grpc.pb.h"
#include "rpc/admin_service.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/raw_server.h"

namespace divvy {
namespace {

constexpr Incarnation kOwn{7};

// How an operator's request ends: with a reply, an error, or no answer.
enum class Answer { kReply, kError, kNone };

// The operator's side of a coordinator.
class Operated {
 public:
  OperatorCalls Calls() {
    return {kOwn, [this](ResultCallback<v1::RequestCheckpointReply> done) { Do(std::move(done)); },
            [this](ResultCallback<v1::DrainReply> done) { Do(std::move(done)); },
            [this](int, ResultCallback<v1::ResizeReply> done) { Do(std::move(done)); },
            [this](ResultCallback<v1::RebalanceReply> done) { Do(std::move(done)); }};
  }
  void AnswerBy(Answer answer) { answer_ = answer; }
  int TakeAsked() { return asked_.exchange(0); }

 private:
  template <typename Reply>
  void Do(ResultCallback<Reply> done) {
    ++asked_;
    if (answer_ == Answer::kReply) done(Reply());
    if (answer_ == Answer::kError) done(absl::UnavailableError("not now"));
  }

  std::atomic<Answer> answer_{Answer::kReply};
  std::atomic<int> asked_{0};
};

struct World {
  Operated operated;
  AdminService admin{[] { return v1::TaskStatus(); }, operated.Calls()};
  fuzz::RawServer server{{&admin}, nullptr};
};

std::string Request(fuzz::Choices& choices) {
  std::string bytes;
  if (choices.Often()) {
    v1::ResizeRequest request;  // the other requests are its first field
    request.set_target_incarnation(choices.Nearly(kOwn).value());
    if (choices.Often()) request.set_num_ps(static_cast<int32_t>(choices.Number()));
    bytes = request.SerializeAsString();
  }
  for (uint64_t i = choices.Often() ? 0 : choices.Below(40); i > 0; --i)
    bytes.push_back(static_cast<char>(choices.Below(256)));
  return bytes;
}

// Whether the bytes, as gRPC parses them for this method, name this life of the coordinator.
bool MeansThisLife(const std::string& bytes, bool is_resize) {
  v1::ResizeRequest resize;
  v1::DrainRequest other;
  if (is_resize)
    return resize.ParseFromString(bytes) && resize.target_incarnation() == kOwn.value();
  return other.ParseFromString(bytes) && other.target_incarnation() == kOwn.value();
}

void Call(World& world, fuzz::Choices& choices) {
  constexpr const char* kMethods[] = {"GetStatus", "RequestCheckpoint", "Drain",
                                      "Resize",    "Rebalance",         "Steal",
                                      "GetLogs",   "GetTraces"};
  const uint64_t method = choices.Below(std::size(kMethods));
  world.operated.AnswerBy(static_cast<Answer>(choices.Below(3)));
  const std::string bytes = Request(choices);
  const bool has_deadline = choices.Often();
  grpc::ClientContext context;
  if (has_deadline) context.set_deadline(GrpcDeadline(2 * fuzz::kHang));
  grpc::CompletionQueue queue;
  grpc::ByteBuffer reply;
  grpc::Status status;
  const auto call =
      grpc::GenericStub(world.server.channel())
          .PrepareUnaryCall(&context, std::string("/divvy.v1.Admin/") + kMethods[method],
                            fuzz::BufferOf(bytes), &queue);
  call->StartCall();
  call->Finish(&reply, &status, call.get());
  fuzz::Await(queue);
  const bool is_operators = method >= 1 && method <= 4;
  const bool may = has_deadline && is_operators && MeansThisLife(bytes, method == 3);
  fuzz::Require(world.operated.TakeAsked() == (may ? 1 : 0),
                "a request for another life had an effect, or one for this life had none");
  if (is_operators && !may) fuzz::Require(!status.ok(), "a refused request is answered with OK");
}

void Try(absl::string_view bytes) {
  static World world;
  fuzz::Choices choices(bytes);
  for (int i = 0; i < 32 && !choices.done(); ++i) Call(world, choices);
}

}  // namespace
}  // namespace divvy

DIVVY_FUZZ(divvy::Try)
