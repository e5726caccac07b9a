// The sessions that may commit to a parameter server.
#ifndef DIVVY_PS_SERVER_CORE_SESSION_SET_H_
#define DIVVY_PS_SERVER_CORE_SESSION_SET_H_

#include <cstdint>
#include <map>
#include <vector>

#include "protocol/ids.h"
#include "protocol/messages.h"

namespace divvy {

// The sessions of the newest Sync of the epoch, and always the coordinator's own session. Not
// thread-safe: the core's lock guards it.
class SessionSet {
 public:
  static constexpr int kAnyWorker = -1;

  // Another epoch has begun: only the coordinator may commit until its first Sync.
  void Clear();

  // Takes the sessions of `request`. Returns false, and does nothing, if an equal or newer Sync of
  // this epoch has been taken.
  bool Take(const SyncRequest& request);

  bool Has(SessionId session) const {
    return session == kCoordinatorSession || workers_.count(session) > 0;
  }

  // The worker that has this session. kAnyWorker: no Sync has named its worker.
  int WorkerOf(SessionId session) const;

  // How many sessions the coordinator has taken out of the set since the server was started.
  int64_t num_fenced() const { return num_fenced_; }

  // The sessions of the newest Sync, sorted.
  std::vector<SessionId> sessions() const;

 private:
  uint64_t newest_seq_ = 0;
  int64_t num_fenced_ = 0;
  std::map<SessionId, int> workers_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_SESSION_SET_H_
