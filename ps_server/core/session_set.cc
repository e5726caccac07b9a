#include "ps_server/core/session_set.h"

#include <algorithm>

namespace divvy {

void SessionSet::Clear() {
  newest_seq_ = 0;
  workers_.clear();
}

bool SessionSet::Take(const SyncRequest& request) {
  if (request.seq <= newest_seq_) return false;
  newest_seq_ = request.seq;
  for (const auto& [session, worker] : workers_)
    num_fenced_ += !std::binary_search(request.sessions.begin(), request.sessions.end(), session);
  workers_.clear();
  for (size_t i = 0; i < request.sessions.size(); ++i)
    workers_[request.sessions[i]] = i < request.workers.size() ? request.workers[i] : kAnyWorker;
  return true;
}

int SessionSet::WorkerOf(SessionId session) const {
  const auto found = workers_.find(session);
  return found == workers_.end() ? kAnyWorker : found->second;
}

std::vector<SessionId> SessionSet::sessions() const {
  std::vector<SessionId> sessions;
  for (const auto& [session, worker] : workers_) sessions.push_back(session);
  return sessions;
}

}  // namespace divvy
