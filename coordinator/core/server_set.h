// The parameter servers of a job, by index: the state of each, and what all of them have
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
#include "coordinator/core/coordinator_options.h"
#include "coordinator/core/coordinator_records.h"
#include "protocol/clients.h"

namespace divvy {

// Has as many servers as the job uses. Calls only the dialer. Never blocks. Not thread-safe: the
// coordinator's lock guards it.
class ServerSet {
 public:
  using Ps = coordinator_records::Ps;

  // REQUIRES: the references outlive it.
  ServerSet(const CoordinatorOptions& options, const Clock& clock, Dialer& dialer)
      : options_(options), clock_(clock), dialer_(dialer) {}

  // Adds servers 0, 1, ... at these addresses. A server with an empty address is waited for until
  // it registers.
  void Add(const std::vector<std::string>& addresses);
  // Changes the number of servers: removes the servers with the highest indices, or adds the
  // servers `joining` at their addresses. New servers count their tries from `tries`, so that no
  // answer of a former server with the same index counts for them.
  void Resize(int num, const std::map<int, std::string>& joining, uint64_t tries);
  // Undoes a Resize.
  void Restore(std::vector<Ps> before) { servers_ = std::move(before); }
  const std::vector<Ps>& all() const { return servers_; }

  std::vector<Ps>::iterator begin() { return servers_.begin(); }
  std::vector<Ps>::iterator end() { return servers_.end(); }
  std::vector<Ps>::const_iterator begin() const { return servers_.begin(); }
  std::vector<Ps>::const_iterator end() const { return servers_.end(); }
  // REQUIRES: 0 <= index < size().
  Ps& operator[](int index) { return servers_[index]; }
  int size() const { return static_cast<int>(servers_.size()); }

  // ---- one server ----

  // The server is at `address` now. Its incarnation is not known yet.
  void Dial(Ps& ps, const std::string& address);
  // A new epoch begins: the state of the former epoch is dropped, and answers to its calls are
  // void.
  void ForgetEpoch();
  // Whether `ps` is in the same epoch and has made the same number of tries as when a call was
  // sent.
  bool Same(int ps, uint64_t tries) const { return ps < size() && servers_[ps].tries == tries; }
  // The server has attached in this epoch.
  void NoteAttached(Ps& ps) {
    ps.attached = true;
    num_recovered_ += std::exchange(ps.is_lost, false);
  }
  // How often another process has taken the place of a server.
  int64_t num_recovered() const { return num_recovered_; }
  // The server has answered: it is not silent any more.
  void NoteAnswer(Ps& ps);
  // A call has failed, for reason `why`. The silence of the server begins with the first call that
  // failed since its last answer.
  void NoteSilent(Ps& ps, absl::string_view why);
  // Whether the ps has its state and has answered the last call.
  bool Serves(int ps) const { return servers_[ps].ready && !servers_[ps].silent_since; }

  // ---- all servers ----

  // Whether every server has attached in this epoch.
  bool AllAttached() const;
  // The bytes of a checkpoint that all have read and that all have to read; 0: not all have said.
  std::pair<int64_t, int64_t> Loaded() const;
  // Whether every server has its state.
  bool AllReady() const;
  // Whether a server has not answered its last call.
  bool AnySilent() const;
  // Servers that have attached in this epoch and are not silent.
  int NumUp() const;
  // The number of the next Sync. TakeSync uses it for a Sync that is sent.
  uint64_t next_sync() const { return next_sync_; }
  uint64_t TakeSync() { return next_sync_++; }
  // The last Sync that every ps has acknowledged. REQUIRES: there is a server.
  uint64_t Acked() const;

  // ---- servers that are to join ----

  // A ps registers with an index above those of all servers. True: a ps with this index registered
  // for the first time less than `patience` ago, so the ps may wait for a resize.
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
  int64_t num_recovered_ = 0;
  // Index -> the time when a ps with this index first registered.
  std::map<int, absl::Duration> early_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_SERVER_SET_H_
