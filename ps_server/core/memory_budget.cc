#include "ps_server/core/memory_budget.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "protocol/error.h"

namespace divvy {

MemoryBudget::Ticket MemoryBudget::Reserve(Claim claim, std::function<void(absl::Status)> granted) {
  CoreLock lock(mu_, outbox_);
  const Ticket ticket = next_++;
  const bool is_refused =
      claim.bytes < 0 || (claim.bytes > share_bytes_ && too_large_ == TooLarge::kIsRefused);
  if (is_refused) {
    const absl::Status refusal =
        MakeError(Reason::kInvalid,
                  absl::StrCat("a commit of ", claim.bytes,
                               " bytes is larger than this parameter server takes, ", share_bytes_,
                               " bytes. Raise --commit_buffer_bytes, of which one commit may have "
                               "half, or give the variable more shards"));
    outbox_.Add([granted = std::move(granted), refusal] { granted(refusal); });
    return ticket;
  }
  // A claim is never too large because of its overhead: it reserves only as much of the overhead as
  // the limit leaves room for.
  const int64_t most = std::max(share_bytes_, std::min(claim.bytes, total_bytes_));
  const int64_t bytes =
      std::min(claim.bytes, most) + std::min(claim.overhead, most - std::min(claim.bytes, most));
  waiting_.push_back({ticket, {bytes, std::move(claim.owner)}, std::move(granted)});
  GrantWhatFits();
  return ticket;
}

bool MemoryBudget::IsWithinShare(const Held& claim) const {
  const auto held = owners_.find(claim.owner);
  return claim.owner.empty() || held == owners_.end() || held->second + claim.bytes <= share_bytes_;
}

// Grants claims in the order of arrival. A claim that waits for memory of its own owner is passed
// over, and so are later claims of that owner.
void MemoryBudget::GrantWhatFits() {
  std::set<std::string> passed_over;
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    if (passed_over.count(next->claim.owner) > 0 || !IsWithinShare(next->claim)) {
      passed_over.insert(next->claim.owner);
      ++next;
      continue;
    }
    if (next->claim.bytes > free_bytes_) return;
    Grant(*next);
    next = waiting_.erase(next);
  }
}

void MemoryBudget::Grant(Waiting& next) {
  free_bytes_ -= next.claim.bytes;
  if (!next.claim.owner.empty()) owners_[next.claim.owner] += next.claim.bytes;
  held_[next.ticket] = std::move(next.claim);
  outbox_.Add([granted = std::move(next.granted)] { granted(absl::OkStatus()); });
}

void MemoryBudget::Release(Ticket ticket) {
  CoreLock lock(mu_, outbox_);
  if (const auto held = held_.find(ticket); held != held_.end()) {
    const Held& claim = held->second;
    free_bytes_ += claim.bytes;
    const auto owner = owners_.find(claim.owner);
    if (owner != owners_.end() && (owner->second -= claim.bytes) == 0) owners_.erase(owner);
    held_.erase(held);
  } else {
    const auto withdrawn =
        std::find_if(waiting_.begin(), waiting_.end(),
                     [ticket](const Waiting& waiting) { return waiting.ticket == ticket; });
    if (withdrawn == waiting_.end()) return;
    outbox_.Add([granted = std::move(withdrawn->granted)] {});  // released outside the lock
    waiting_.erase(withdrawn);
  }
  GrantWhatFits();
}

int64_t MemoryBudget::free_bytes() const {
  MutexLock lock(mu_);
  return free_bytes_;
}

size_t MemoryBudget::waiting() const {
  MutexLock lock(mu_);
  return waiting_.size();
}

}  // namespace divvy
