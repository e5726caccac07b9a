#include "ps_server/core/memory_budget.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cluster/error.h"

namespace divvy {

MemoryBudget::Ticket MemoryBudget::Reserve(int64_t bytes, std::function<void(absl::Status)> granted) {
  CoreLock lock(mu_, outbox_);
  const Ticket ticket = next_++;
  if (bytes > total_bytes_ && too_large_ == TooLarge::kTakesAll) bytes = total_bytes_;
  if (bytes < 0 || bytes > total_bytes_) {
    const absl::Status refusal =
        MakeError(Reason::kInvalid, absl::StrCat("a commit of ", bytes, " bytes is larger than all that this parameter server has for commits, ", total_bytes_,
                                                 " bytes. Raise --commit_buffer_bytes, or give the variable more shards"));
    outbox_.Add([granted = std::move(granted), refusal] { granted(refusal); });
    return ticket;
  }
  waiting_.push_back({ticket, bytes, std::move(granted)});
  GrantWhatFits();
  return ticket;
}

void MemoryBudget::GrantWhatFits() {
  while (!waiting_.empty() && waiting_.front().bytes <= free_bytes_) {
    Waiting& next = waiting_.front();
    free_bytes_ -= next.bytes;
    held_[next.ticket] = next.bytes;
    outbox_.Add([granted = std::move(next.granted)] { granted(absl::OkStatus()); });
    waiting_.pop_front();
  }
}

void MemoryBudget::Release(Ticket ticket) {
  CoreLock lock(mu_, outbox_);
  if (const auto held = held_.find(ticket); held != held_.end()) {
    free_bytes_ += held->second;
    held_.erase(held);
  } else {
    const auto withdrawn = std::find_if(waiting_.begin(), waiting_.end(), [ticket](const Waiting& waiting) { return waiting.ticket == ticket; });
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
