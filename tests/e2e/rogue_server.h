// A parameter server that answers what it likes: it stands before a real one, with the same
// certificate.
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

// What becomes of an answer of the real server.
enum class Lie {
  // passed on as it is
  kNone,
  // bytes of it are changed, or the call is refused with any status
  kOther,
  // Of a pull or a commit: other types, shapes, parts and sizes than were asked for.
  kUnfit,
  // bytes that are no message, a message of another method, frames out of turn
  kGarbage,
  // cut short, and the call ends as if all were well
  kHalf,
  // 128 MiB that nobody asked for, a message above the limit, 64 MiB of zeros in a compressed one
  kHuge,
  // Never comes.
  kSilent,
};
inline constexpr Lie kLies[] = {Lie::kOther, Lie::kUnfit, Lie::kGarbage,
                                Lie::kHalf,  Lie::kHuge,  Lie::kSilent};
const char* NameOf(Lie lie);

// What leaves in place of one message.
struct Told {
  std::vector<std::string> messages;
  bool ends = false;        // the call ends behind them, with `refusal`
  grpc::Status refusal;     // or OK
  bool silent = false;      // nothing comes any more
  bool compressed = false;  // by gzip
};
// `answer` is what the real server sent on `method` ("/divvy.v1.ParameterServer/Sync"). REQUIRES:
// lie is not kNone.
Told Instead(Lie lie, const std::string& method, const std::string& answer, Random& random);

// Passes every call on to the real server, as the caller (whose certificate it has, too), and
// answers with what came back or, now and then, with a lie. Requests arrive as they are, so the
// real server knows what was asked of it. Thread-safe.
class RogueServer final : private grpc::CallbackGenericService {
 public:
  struct Options {
    std::string task;     // "ps-1": whose certificate it shows
    std::string backend;  // the real server's "127.0.0.1:port"
    uint64_t seed = 1;
    double rate = 0.2;  // of answers that are lies
  };
  // REQUIRES: `certificates` outlives it.
  static absl::StatusOr<std::unique_ptr<RogueServer>> Start(const HostileCertificates& certificates,
                                                            Options options);
  ~RogueServer() override;  // ends all calls

  const std::string& address() const { return address_; }
  void Tell(Lie lie);
  int64_t lies() const;  // told so far

 private:
  class Call;
  RogueServer(const HostileCertificates& certificates, Options options);
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;
  std::shared_ptr<grpc::Channel> ChannelAs(const std::string& member);
  void CallIsOver();
  // False: the answer is passed on.
  bool Lies(const std::string& method, const std::string& answer, Told& told);

  const HostileCertificates& certificates_;
  const Options options_;
  mutable Mutex mu_;
  Random random_ DIVVY_GUARDED_BY(mu_);
  Lie lie_ DIVVY_GUARDED_BY(mu_) = Lie::kNone;
  int64_t lies_ DIVVY_GUARDED_BY(mu_) = 0;
  int calls_ DIVVY_GUARDED_BY(mu_) = 0;  // that are not over
  CondVar over_;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_ DIVVY_GUARDED_BY(mu_);
  std::string address_;
  ThreadPoolExecutor executor_{2};
  std::unique_ptr<grpc::Server> server_;  // last: goes first
};

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_ROGUE_SERVER_H_
