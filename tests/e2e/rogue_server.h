// A lying parameter server: a proxy before a real one, with the same certificate.
#ifndef DIVVY_TESTS_E2E_ROGUE_SERVER_H_
#define DIVVY_TESTS_E2E_ROGUE_SERVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/random.h"
#include "grpcpp/channel.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/server.h"
#include "tests/e2e/hostile_peers.h"

namespace divvy {

// What happens to an answer of the real server.
enum class Lie {
  // It is passed on.
  kNone,
  // Some of its bytes are changed, or the call is refused with any status.
  kOther,
  // The reply to a pull or a commit has other types, shapes, parts and sizes than requested.
  kUnfit,
  // Bytes that are no message, a message of another method, or frames out of order.
  kGarbage,
  // The answer is cut short, and the call ends as if it were complete.
  kHalf,
  // 128 MiB that were not requested, a message above the limit, or 64 MiB of zeros, compressed.
  kHuge,
  // The answer never comes.
  kSilent,
};
inline constexpr Lie kLies[] = {Lie::kOther, Lie::kUnfit, Lie::kGarbage,
                                Lie::kHalf,  Lie::kHuge,  Lie::kSilent};
const char* NameOf(Lie lie);

// What is sent in place of one message.
struct Told {
  std::vector<std::string> messages;
  bool ends = false;        // then the call ends, with `refusal`
  grpc::Status refusal;     // may be OK
  bool silent = false;      // nothing more is sent
  bool compressed = false;  // by gzip
};
// Makes a lie from `answer`, which the real server sent on `method`
// ("/divvy.v1.ParameterServer/Sync"). REQUIRES: `lie` is not kNone.
Told Instead(Lie lie, const std::string& method, const std::string& answer, Random& random);

// Forwards every call to the real server, with the certificate of the caller. Answers with the real
// reply or, now and then, with a lie. Requests arrive unchanged, so the real server knows what was
// asked of it. Thread-safe.
class RogueServer final : private grpc::CallbackGenericService {
 public:
  struct Options {
    std::string task;     // the task whose certificate it shows, for example "ps-1"
    std::string backend;  // the address of the real server, "127.0.0.1:port"
    uint64_t seed = 1;
    double rate = 0.2;  // the share of lies among the answers
  };
  // REQUIRES: `certificates` outlives it.
  static absl::StatusOr<std::unique_ptr<RogueServer>> Start(const HostileCertificates& certificates,
                                                            Options options);
  ~RogueServer() override;  // ends all calls

  const std::string& address() const { return address_; }
  void Tell(Lie lie);
  int64_t lies() const;  // so far

 private:
  class Call;
  RogueServer(const HostileCertificates& certificates, Options options);
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;
  std::shared_ptr<grpc::Channel> ChannelAs(const std::string& member);
  void CallIsOver();
  // Whether to lie; if so, `told` is what to send. Otherwise the answer is passed on.
  bool Lies(const std::string& method, const std::string& answer, Told& told);

  const HostileCertificates& certificates_;
  const Options options_;
  mutable Mutex mu_;
  Random random_ DIVVY_GUARDED_BY(mu_);
  Lie lie_ DIVVY_GUARDED_BY(mu_) = Lie::kNone;
  int64_t lies_ DIVVY_GUARDED_BY(mu_) = 0;
  int calls_ DIVVY_GUARDED_BY(mu_) = 0;  // in flight
  CondVar over_;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_ DIVVY_GUARDED_BY(mu_);
  std::string address_;
  ThreadPoolExecutor executor_{2};
  std::unique_ptr<grpc::Server> server_;  // the last member, so it is destroyed first
};

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_ROGUE_SERVER_H_
