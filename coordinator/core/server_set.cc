#include "coordinator/core/server_set.h"

#include <algorithm>
#include <utility>

#include "base/random.h"

namespace divvy {

void ServerSet::Add(const std::vector<std::string>& addresses) {
  for (const std::string& address : addresses) {
    Ps ps;
    ps.index = size();
    if (!address.empty())
      Dial(ps, address);
    else
      NoteSilent(ps, "it has not registered yet");
    ps.backoff = Backoff(MixSeeds(options_.incarnation.value(), ps.index));
    servers_.push_back(std::move(ps));
  }
}

void ServerSet::Resize(int num, const std::map<int, std::string>& joining, uint64_t tries) {
  servers_.resize(static_cast<size_t>(num));
  for (const auto& [index, address] : joining) {
    Ps& ps = servers_[index];
    ps.index = index;
    ps.tries = tries;
    ps.backoff = Backoff(MixSeeds(options_.incarnation.value(), index));
    Dial(ps, address);
  }
}

void ServerSet::Dial(Ps& ps, const std::string& address) {
  ps.address = address;
  ps.client = dialer_.ParameterServerAt(address, ps.index);
  ps.incarnation = Incarnation();
  ps.backoff.Reset();
}

void ServerSet::ForgetEpoch() {
  for (Ps& ps : servers_) {
    ps.attached = ps.ready = ps.sync_outstanding = ps.sync_wanted = false;
    ps.loaded_bytes = ps.bytes_to_load = 0;
    ps.acked_seq = 0;
    ps.tables.clear();
    ps.loads = ShardLoads();
    ps.claim.reset();
    ++ps.tries;
  }
}

void ServerSet::NoteAnswer(Ps& ps) {
  ps.silent_since.reset();
  ps.backoff.Reset();
}

void ServerSet::NoteSilent(Ps& ps, absl::string_view why) {
  if (!ps.silent_since) ps.silent_since = clock_.Elapsed();
  ps.last_error = std::string(why);
}

std::pair<int64_t, int64_t> ServerSet::Loaded() const {
  int64_t loaded = 0, total = 0;
  for (const Ps& ps : servers_) {
    if (!ps.ready && ps.bytes_to_load == 0) return {0, 0};
    loaded += ps.loaded_bytes;
    total += ps.bytes_to_load;
  }
  return {loaded, total};
}

bool ServerSet::AllAttached() const {
  return std::all_of(begin(), end(), [](const Ps& ps) { return ps.attached; });
}

bool ServerSet::AllReady() const {
  return std::all_of(begin(), end(), [](const Ps& ps) { return ps.ready; });
}

bool ServerSet::AnySilent() const {
  return std::any_of(begin(), end(), [](const Ps& ps) { return ps.silent_since.has_value(); });
}

int ServerSet::NumUp() const {
  return static_cast<int>(
      std::count_if(begin(), end(), [](const Ps& ps) { return ps.attached && !ps.silent_since; }));
}

uint64_t ServerSet::Acked() const {
  return std::min_element(begin(), end(),
                          [](const Ps& a, const Ps& b) { return a.acked_seq < b.acked_seq; })
      ->acked_seq;
}

bool ServerSet::MayComeEarly(int index, absl::Duration patience) {
  const absl::Duration now = clock_.Elapsed();
  return now - early_.emplace(index, now).first->second < patience;
}

}  // namespace divvy
