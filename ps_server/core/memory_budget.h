// The memory that a parameter server uses for data in transit: commits being received
// (--commit_buffer_bytes) and replies to pulls (--pull_buffer_bytes).
#ifndef DIVVY_PS_SERVER_CORE_MEMORY_BUDGET_H_
#define DIVVY_PS_SERVER_CORE_MEMORY_BUDGET_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "base/outbox.h"

namespace divvy {

// Reservations of bytes, first come, first served, and to one owner no more than its share, so that
// whoever holds memory for long holds up itself alone. A commit's payload is read only after its
// `total_bytes` have been granted, so a sender is held back by the flow control of its stream, and
// memory is bounded whatever is sent. The values of a pull are copied only after their bytes have
// been granted. No deadlock: who holds a reservation waits for nobody but its own bytes, or for its
// peer to take them.
//
//   const MemoryBudget::Ticket ticket = budget.Reserve(begin.total_bytes, [](absl::Status granted)
//   { ... read the payload, or refuse ... });
//   // the commit has been answered, the reply is sent, or the stream is broken
//   budget.Release(ticket);
//
// Thread-safe; no method waits. `granted` is called without a lock, perhaps from within Reserve,
// else from within somebody's Release.
class MemoryBudget {
 public:
  using Ticket = uint64_t;

  // What happens to a claim that is larger than the share of one owner.
  enum class TooLarge : uint8_t {
    // A commit: its sender was told the limit.
    kIsRefused,
    // A reply: it must be given, so it waits until it is alone (until its owner has nothing else,
    // if there is so much in all).
    kTakesAll,
  };
  // How much of the total one owner may hold.
  enum class Share : uint8_t { kAll, kHalf };

  struct Claim {
    int64_t bytes = 0;
    // What they cost besides; no claim is refused for it.
    int64_t overhead = 0;
    // "": nobody's, and bound by the total alone
    std::string owner;
  };

  // REQUIRES: total_bytes > 0.
  explicit MemoryBudget(int64_t total_bytes, TooLarge too_large = TooLarge::kIsRefused,
                        Share share = Share::kAll)
      : total_bytes_(total_bytes),
        share_bytes_(share == Share::kAll ? total_bytes : std::max<int64_t>(total_bytes / 2, 1)),
        too_large_(too_large),
        free_bytes_(total_bytes) {}
  MemoryBudget(const MemoryBudget&) = delete;

  // `granted` is called once: with OK when the bytes are reserved, after all that asked before and
  // do not wait for what their own owner holds; with INVALID, at once, where they are negative, or
  // refused as more than one claim may have. Another thread may be about to call it while Release
  // returns: it then finds a reservation that is gone, and drops the request.
  Ticket Reserve(Claim claim, std::function<void(absl::Status)> granted);
  Ticket Reserve(int64_t bytes, std::function<void(absl::Status)> granted) {
    return Reserve({bytes, 0, ""}, std::move(granted));
  }

  // Gives a reservation back, or withdraws one that waits: its `granted` is then not called. A
  // second time, or of a refused one: does nothing.
  void Release(Ticket ticket);

  // Of one claim, where larger ones are refused.
  int64_t most_bytes() const { return share_bytes_; }
  int64_t free_bytes() const;
  size_t waiting() const;

 private:
  struct Held {
    int64_t bytes = 0;
    std::string owner;
  };
  struct Waiting {
    Ticket ticket = 0;
    Held claim;
    std::function<void(absl::Status)> granted;
  };
  bool IsWithinShare(const Held& claim) const DIVVY_REQUIRES(mu_);
  void GrantWhatFits() DIVVY_REQUIRES(mu_);
  void Grant(Waiting& next) DIVVY_REQUIRES(mu_);

  const int64_t total_bytes_, share_bytes_;
  const TooLarge too_large_;
  Outbox outbox_;
  mutable Mutex mu_;
  int64_t free_bytes_ DIVVY_GUARDED_BY(mu_);
  Ticket next_ DIVVY_GUARDED_BY(mu_) = 1;
  std::list<Waiting> waiting_ DIVVY_GUARDED_BY(mu_);
  std::map<Ticket, Held> held_ DIVVY_GUARDED_BY(mu_);
  std::map<std::string, int64_t> owners_ DIVVY_GUARDED_BY(mu_);  // what each holds
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_MEMORY_BUDGET_H_
