// The memory of a parameter server for what is on its way: commits that are being received (--commit_buffer_bytes), replies to pulls (--pull_buffer_bytes).
#ifndef DIVVY_PS_SERVER_CORE_MEMORY_BUDGET_H_
#define DIVVY_PS_SERVER_CORE_MEMORY_BUDGET_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "base/outbox.h"

namespace divvy {

// Reservations of bytes, first come, first served. A commit's payload is read only after its `total_bytes` have been granted, so a sender is held back by the
// flow control of its stream, and memory is bounded whatever is sent. The values of a pull are copied only after their bytes have been granted. No deadlock:
// who holds a reservation waits for nobody but its own bytes, or for its peer to take them.
//
//   const MemoryBudget::Ticket ticket = budget.Reserve(begin.total_bytes, [](absl::Status granted) { ... read the payload, or refuse ... });
//   budget.Release(ticket);   // the commit has been answered, the reply is sent, or the stream is broken
//
// Thread-safe; no method waits. `granted` is called without a lock, perhaps from within Reserve, else from within somebody's Release.
class MemoryBudget {
 public:
  using Ticket = uint64_t;

  // What becomes of a reservation of more than there is in all.
  enum class TooLarge : uint8_t {
    kIsRefused,  // a commit: its sender was told the limit
    kTakesAll,   // a reply: it must be given, so it waits until it is alone
  };

  // REQUIRES: total_bytes > 0.
  explicit MemoryBudget(int64_t total_bytes, TooLarge too_large = TooLarge::kIsRefused)
      : total_bytes_(total_bytes), too_large_(too_large), free_bytes_(total_bytes) {}
  MemoryBudget(const MemoryBudget&) = delete;

  // `granted` is called once: with OK when the bytes are reserved, after all that asked before; with INVALID, at once, where they are negative, or refused as
  // more than there are in all. Another thread may be about to call it while Release returns: it then finds a reservation that is gone, and drops the request.
  Ticket Reserve(int64_t bytes, std::function<void(absl::Status)> granted);

  // Gives a reservation back, or withdraws one that waits: its `granted` is then not called. A second time, or of a refused one: does nothing.
  void Release(Ticket ticket);

  int64_t total_bytes() const { return total_bytes_; }
  int64_t free_bytes() const;
  size_t waiting() const;

 private:
  struct Waiting {
    Ticket ticket = 0;
    int64_t bytes = 0;
    std::function<void(absl::Status)> granted;
  };
  void GrantWhatFits() DIVVY_REQUIRES(mu_);

  const int64_t total_bytes_;
  const TooLarge too_large_;
  Outbox outbox_;
  mutable Mutex mu_;
  int64_t free_bytes_ DIVVY_GUARDED_BY(mu_);
  Ticket next_ DIVVY_GUARDED_BY(mu_) = 1;
  std::deque<Waiting> waiting_ DIVVY_GUARDED_BY(mu_);
  std::map<Ticket, int64_t> held_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_MEMORY_BUDGET_H_
