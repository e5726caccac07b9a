// Which sessions may commit to a parameter server.
#ifndef DIVVY_PS_SERVER_CORE_SESSION_SET_H_
#define DIVVY_PS_SERVER_CORE_SESSION_SET_H_

#include <cstdint>
#include <map>
#include <vector>

#include "protocol/ids.h"
#include "protocol/messages.h"

namespace divvy {

// The set of the newest Sync of the epoch. The coordinator's own session is always in it. Not
// thread-safe: the core's lock guards it.
class SessionSet {
 public:
  static constexpr int kAnyWorker = -1;

  // Another epoch has begun: only the coordinator may commit until its first Sync.
  void Clear();

  // Takes the sessions of `request`. False, and nothing is done, for a Sync that is not newer than
  // all that were taken in this epoch.
  bool Take(const SyncRequest& request);

  bool Has(SessionId session) const {
    return session == kCoordinatorSession || workers_.count(session) > 0;
  }

  // The worker that has this session. kAnyWorker: no Sync has named one.
  int WorkerOf(SessionId session) const;

  // Those that Sync has named, sorted.
  std::vector<SessionId> sessions() const;

 private:
  uint64_t newest_seq_ = 0;
  std::map<SessionId, int> workers_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_SESSION_SET_H_
