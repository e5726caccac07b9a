// The parameter servers of a job, by index: how far each has come, and what all of them have
// acknowledged.
#ifndef DIVVY_COORDINATOR_CORE_SERVER_SET_H_
#define DIVVY_COORDINATOR_CORE_SERVER_SET_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "cluster/clients.h"
#include "coordinator/core/coordinator_options.h"
#include "coordinator/core/coordinator_records.h"

namespace divvy {

// As many as the job counts on. Calls nobody but the dialer. Not thread-safe: the coordinator's
// lock guards it.
class ServerSet {
 public:
  using Ps = coordinator_records::Ps;

  // REQUIRES: the references outlive it.
  ServerSet(const CoordinatorOptions& options, const Clock& clock, Dialer& dialer)
      : options_(options), clock_(clock), dialer_(dialer) {}

  // Servers 0, 1, ... at these addresses. One whose address is empty registers.
  void Add(const std::vector<std::string>& addresses);
  // So many from here on. The last go, or `joining` come, at their addresses. No answer to a server
  // that had the index before is taken for one of theirs: they count their tries from `tries`.
  void Resize(int num, const std::map<int, std::string>& joining, uint64_t tries);
  // Takes back a Resize.
  void Restore(std::vector<Ps> before) { servers_ = std::move(before); }
  const std::vector<Ps>& all() const { return servers_; }

  std::vector<Ps>::iterator begin() { return servers_.begin(); }
  std::vector<Ps>::iterator end() { return servers_.end(); }
  std::vector<Ps>::const_iterator begin() const { return servers_.begin(); }
  std::vector<Ps>::const_iterator end() const { return servers_.end(); }
  Ps& operator[](int index) { return servers_[index]; }
  int size() const { return static_cast<int>(servers_.size()); }

  // ---- each ----

  void Dial(Ps& ps, const std::string& address);
  // Another epoch: nothing of the former one holds, and an answer to a call of it is void.
  void ForgetEpoch();
  // Whether a ps is still what it was when a call was made of it, in the same epoch.
  bool Same(int ps, uint64_t tries) const { return ps < size() && servers_[ps].tries == tries; }
  void NoteAnswer(Ps& ps);
  void NoteSilent(Ps& ps, absl::string_view why);
  // Whether a ps has its state and answered the last call.
  bool Serves(int ps) const { return servers_[ps].ready && !servers_[ps].silent_since; }

  // ---- all of them ----

  bool AllAttached() const;
  bool AllReady() const;
  bool AnySilent() const;
  int NumUp() const;
  // The number of the next Sync. A Sync that is sent takes it.
  uint64_t next_sync() const { return next_sync_; }
  uint64_t TakeSync() { return next_sync_++; }
  // The last Sync that every ps has acknowledged.
  uint64_t Acked() const;

  // ---- those that are to join ----

  // A ps has come whose index is above those of all servers. True: that index came for the first
  // time less than `patience` ago, and may wait for a resize.
  bool MayComeEarly(int index, absl::Duration patience);
  // The size of each structure, for CoordinatorCore::Sizes.
  std::map<std::string, int64_t> Sizes() const {
    return {{"early parameter servers", static_cast<int64_t>(early_.size())}};
  }

 private:
  const CoordinatorOptions& options_;
  const Clock& clock_;
  Dialer& dialer_;
  std::vector<Ps> servers_;
  uint64_t next_sync_ = 1;
  std::map<int, absl::Duration> early_;  // when each came first
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_SERVER_SET_H_
