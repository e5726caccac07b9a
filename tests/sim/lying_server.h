// A parameter server that lies. It does what it should, but now and then sends another answer than
// the true one.
#ifndef DIVVY_TESTS_SIM_LYING_SERVER_H_
#define DIVVY_TESTS_SIM_LYING_SERVER_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "base/random.h"
#include "protocol/messages.h"
#include "wire/testing/generator.h"

namespace divvy::sim {

// Makes the false answers. Each passes the checks of wire/, has the type that was asked for and, if
// it carries values, their sizes. Not thread-safe: the simulation has one thread.
class LyingServer {
 public:
  LyingServer(int index, uint64_t seed);

  // All later answers are true.
  void Stop() { rate_ = 0; }

  // The answer to send in place of `honest`; nullopt: none is sent.
  template <typename Request, typename Reply>
  std::optional<absl::StatusOr<Reply>> Instead(const Request& request,
                                               const absl::StatusOr<Reply>& honest) {
    if (!random_.Chance(rate_)) return honest;
    ++lies_;
    const uint64_t kind = random_.Below(100);
    if (kind < 10) return std::nullopt;
    if (kind < 40) return absl::StatusOr<Reply>(Refusal(request.fence.epoch));
    if (kind < 70 || !honest.ok())
      return absl::StatusOr<Reply>(Any(request, static_cast<const Reply*>(nullptr)));
    Reply bent = *honest;
    Bend(request, bent);
    return absl::StatusOr<Reply>(std::move(bent));
  }
  int64_t lies() const { return lies_; }

 private:
  absl::Status Refusal(Epoch epoch);
  template <typename Request, typename Reply>
  Reply Any(const Request&, const Reply*) {
    return any_.Make<Reply>();
  }
  PullReply Any(const PullRequest& request, const PullReply*) { return any_.ReplyTo(request); }
  CommitReply Any(const CommitRequest& request, const CommitReply*) {
    return any_.ReplyTo(request);
  }

  // Changes a little of a true answer: an answer that is nearly right is believed for longest.
  void Bend(const PsAttachRequest& request, PsAttachReply& reply);
  void Bend(const LoadRequest& request, LoadReply& reply);
  void Bend(const SyncRequest& request, SyncReply& reply);
  void Bend(const CommitRequest& request, CommitReply& reply) {
    reply.duplicate ? reply = any_.ReplyTo(request)
                    : reply = CommitReply{true, reply.applied_seq, {}};
  }
  template <typename Request, typename Reply>
  void Bend(const Request& request, Reply& reply) {
    reply = Any(request, static_cast<const Reply*>(nullptr));
  }

  const int index_;
  Random random_;
  wire::testing::Generator any_;
  double rate_;
  int64_t lies_ = 0;
};

}  // namespace divvy::sim

#endif  // DIVVY_TESTS_SIM_LYING_SERVER_H_
