// A parameter server that lies: what it does is right, and now and then another answer leaves it
// than the one that was to.
#ifndef DIVVY_TESTS_SIM_LYING_SERVER_H_
#define DIVVY_TESTS_SIM_LYING_SERVER_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "base/random.h"
#include "protocol/messages.h"
#include "wire/testing/generator.h"

namespace divvy::sim {

// Any answer that the wire lets through, of the type and, for values, of the sizes that were asked
// for. Not thread-safe, as the simulation is not.
class LyingServer {
 public:
  LyingServer(int index, uint64_t seed);

  // From now on its answers are what they should be.
  void Stop() { rate_ = 0; }

  // What leaves it in place of `honest`; none: nothing does.
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

  // A little of an answer is another: what is nearly right is believed for longest.
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
