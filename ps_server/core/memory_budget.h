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

// Reservations of bytes. Claims are granted in the order of arrival, and one owner may hold at most
// its share, so an owner that holds memory for long delays only itself.
//
// A commit's payload is read only after its `total_bytes` have been granted. Until then the flow
// control of the stream holds the sender back, so memory is bounded whatever is sent. The values of
// a pull are read only after their bytes have been granted. There is no deadlock: the holder of a
// reservation waits only for its own bytes to arrive, or for its peer to receive them.
//
//   const MemoryBudget::Ticket ticket = budget.Reserve(
//       begin.total_bytes, [](absl::Status granted) { ... read the payload, or refuse ... });
//   // After the commit has been answered, the reply has been sent, or the stream has broken:
//   budget.Release(ticket);
//
// Thread-safe; no method blocks. `granted` is called without a lock, from within Reserve or from
// within a later Release of any caller.
class MemoryBudget {
 public:
  using Ticket = uint64_t;

  // What happens to a claim that is larger than one owner's share.
  enum class TooLarge : uint8_t {
    // For commits: the claim is refused. The sender knows the limit.
    kIsRefused,
    // For replies, which must be sent: the claim waits until its owner holds nothing else. A claim
    // larger than the total reserves the total, so it waits until no other claim is held.
    kTakesAll,
  };
  // The part of the total that one owner may hold.
  enum class Share : uint8_t { kAll, kHalf };

  struct Claim {
    int64_t bytes = 0;
    // Further bytes that the claim costs. No claim is refused because of them.
    int64_t overhead = 0;
    // "": no owner, so only the total limits the claim.
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

  // Reserves bytes. `granted` is called once, with OK, when the bytes have been reserved: after all
  // earlier claims, except those that wait for memory of their own owner. It is called with
  // INVALID, at once, if the bytes are negative or the claim is too large. If Release withdraws a
  // claim, another thread may still be about to call `granted`; the callback must then notice that
  // its request is gone.
  Ticket Reserve(Claim claim, std::function<void(absl::Status)> granted);
  Ticket Reserve(int64_t bytes, std::function<void(absl::Status)> granted) {
    return Reserve({bytes, 0, ""}, std::move(granted));
  }

  // Gives a reservation back, or withdraws a claim that waits; its `granted` is then not called. No
  // effect for a ticket that was released before or was refused.
  void Release(Ticket ticket);

  // The largest claim that is not refused, with TooLarge::kIsRefused.
  int64_t most_bytes() const { return share_bytes_; }
  int64_t free_bytes() const;
  // What is reserved.
  int64_t used_bytes() const { return total_bytes_ - free_bytes(); }
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
  std::map<std::string, int64_t> owners_ DIVVY_GUARDED_BY(mu_);  // bytes that each owner holds
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_MEMORY_BUDGET_H_
