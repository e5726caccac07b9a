#include "tests/sim/lying_server.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "protocol/error.h"

namespace divvy::sim {

LyingServer::LyingServer(int index, uint64_t seed)
    : index_(index), random_(seed), any_(MixSeeds(seed, 1)) {
  constexpr double kRates[] = {0.01, 0.05, 0.3};
  rate_ = kRates[random_.Below(std::size(kRates))];
}

absl::Status LyingServer::Refusal(Epoch epoch) {
  ErrorDetail detail;
  constexpr Reason kOften[] = {Reason::kStaleEpoch, Reason::kWrongJob, Reason::kSecondCoordinator,
                               Reason::kWrongIncarnation};
  detail.reason = random_.Chance(0.5)
                      ? kOften[random_.Below(std::size(kOften))]
                      : static_cast<Reason>(random_.Below(static_cast<uint64_t>(kLastReason) + 1));
  detail.role = Role::kPs;
  detail.index = index_;
  detail.epoch =
      random_.Chance(0.5)
          ? any_.MakeId<Epoch>()
          : Epoch(epoch.value() + random_.Below(5) - std::min<uint64_t>(epoch.value(), 2));
  return MakeError(detail, absl::StrCat("ps ", index_, ": so it says"));
}

void LyingServer::Bend(const PsAttachRequest& request, PsAttachReply& reply) {
  const auto other = any_.Make<PsAttachReply>();
  switch (random_.Below(7)) {
    case 0: reply.incarnation = other.incarnation; break;
    case 1: reply.state = other.state; break;
    case 2:
      reply.lineage = random_.Chance(0.5) ? other.lineage
                                          : Epoch(request.fence.epoch.value() + random_.Below(3));
      break;
    case 3: reply.layout_version += random_.Below(3), reply.layout_hash = other.layout_hash; break;
    case 4: reply.horizon = other.horizon; break;
    case 5: reply.remembered = other.remembered; break;
    default: reply.max_commit_bytes = other.max_commit_bytes; break;
  }
}

void LyingServer::Bend(const LoadRequest&, LoadReply& reply) {
  if (random_.Chance(0.5)) {
    reply.loading = !reply.loading;
  } else {
    reply.layout_hash = any_.Number();
  }
}

// A false answer says that the server has applied entries that it has not, or the reverse.
void LyingServer::Bend(const SyncRequest& request, SyncReply& reply) {
  const auto other = any_.Make<SyncReply>();
  switch (random_.Below(5)) {
    case 0: reply.seq = random_.Chance(0.5) ? other.seq : reply.seq + 1; break;
    case 1: reply.draining = true; break;
    case 2: reply.applied.clear(); break;
    case 3:
      for (const EntryId id : request.query)
        reply.applied.push_back({id, 1 + static_cast<int>(random_.Below(3)), EntryKind::kStep});
      break;
    default: reply.applied = other.applied; break;
  }
}

}  // namespace divvy::sim
