// Threads wait in a way that hides no races from ThreadSanitizer: a thread that reaches a barrier
// must learn nothing from threads that it does not wait for. So there is no lock for the whole
// block. A group counts the threads that have come. The last one wakes each of the others by that
// thread's own lock.
#include "ops/cuda/testing/host_threads.h"

#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/testing/on_threads.h"

namespace divvy::cuda {
namespace {

constexpr char kEnded[] = "its end";
constexpr char kStart[] = "the start";

const char* PlaceOfExchange(int distance) {
  switch (distance) {
    case 1: return "an exchange of a warp at distance 1";
    case 2: return "an exchange of a warp at distance 2";
    case 4: return "an exchange of a warp at distance 4";
    case 8: return "an exchange of a warp at distance 8";
    default: return "an exchange of a warp at distance 16";
  }
}

}  // namespace

void HostThreads::Run(int threads, const std::function<void(int)>& work) {
  MutexLock lock(one_run_);
  Prepare(threads);
  if (in_turns()) RunNext();
  OnThreads(executor_, threads, [&](int thread) { Live(thread, work); });
  if (wrong_ != nullptr) tell_(wrong_->c_str());
}

void HostThreads::Prepare(int threads) {
  seats_.clear();
  warps_.clear();
  for (int thread = 0; thread < threads; ++thread) {
    seats_.push_back(std::make_unique<Seat>());
    seats_.back()->can_run = in_turns();
  }
  for (int first = 0; first < threads; first += kWarp) {
    warps_.push_back(std::make_unique<Group>());
    warps_.back()->first = first;
    warps_.back()->count = kWarp;
  }
  all_.count = threads;
  all_.come = 0;
  running_ = threads;
  is_broken_ = false;
  wrong_ = nullptr;
  for (SharedArray& shared : shared_) {
    shared.place = nullptr;
    shared.numbers.assign(kMostShared, std::numeric_limits<double>::quiet_NaN());
  }
}

// All threads begin together, because starting a thread orders it after threads that have ended
// before.
void HostThreads::Live(int thread, const std::function<void(int)>& work) {
  in_turns() ? AwaitGo(thread) : Arrive(thread, all_, kStart);
  work(thread);
  const bool turns = in_turns();
  seats_[thread]->place.store(kEnded, std::memory_order_relaxed);
  StopRunning(turns);
}

double HostThreads::Exchange(int thread, double own, int distance) {
  Seat& seat = *seats_[thread];
  seat.given = seat.received = own;
  Arrive(thread, *warps_[thread / kWarp], PlaceOfExchange(distance));
  return seat.received;
}

// Claims an array for a place. The claim uses relaxed atomics, so it does not order the threads.
double* HostThreads::Shared(const char* place, int count) {
  DIVVY_CHECK(count <= kMostShared);
  for (SharedArray& shared : shared_) {
    const char* owner = nullptr;
    if (shared.place.compare_exchange_strong(owner, place, std::memory_order_relaxed) ||
        owner == place)
      return shared.numbers.data();
  }
  DIVVY_CHECK(false && "a kernel shares memory at more than four places");
  return nullptr;
}

void HostThreads::Arrive(int thread, Group& group, const char* place) {
  if (is_broken_) return;
  const bool turns = in_turns();  // nobody breaks the run while this thread runs
  seats_[thread]->place.store(place, std::memory_order_relaxed);
  if (group.come.fetch_add(1, std::memory_order_acq_rel) + 1 == group.count &&
      AreAtOnePlace(group)) {
    group.come.store(0, std::memory_order_relaxed);
    LetGo(group, thread, turns);
    if (!turns) return;
  }
  StopRunning(turns);
  AwaitGo(thread);
}

// Whether all threads of the group wait at one place. If not, they wait forever, and the last
// thread to stop finds this out.
bool HostThreads::AreAtOnePlace(const Group& group) const {
  const char* const place = seats_[group.first]->place.load(std::memory_order_relaxed);
  for (int i = group.first; i < group.first + group.count; ++i) {
    if (seats_[i]->place.load(std::memory_order_relaxed) != place) return false;
  }
  return true;
}

void HostThreads::LetGo(Group& group, int thread, bool in_turns) {
  if (&group != &all_) {
    const char* const place = seats_[group.first]->place.load(std::memory_order_relaxed);
    int distance = 1;
    while (PlaceOfExchange(distance) != place) distance *= 2;
    for (int i = group.first; i < group.first + group.count; ++i)
      seats_[i]->received = seats_[i ^ distance]->given;
  }
  if (!in_turns) running_.fetch_add(group.count - 1, std::memory_order_relaxed);
  for (int i = group.first; i < group.first + group.count; ++i) {
    seats_[i]->place.store(nullptr, std::memory_order_relaxed);
    if (in_turns) {
      seats_[i]->can_run = true;
    } else if (i != thread) {
      Go(i);
    }
  }
}

// Only the last thread to stop sees the writes of the others: each of them releases the count, and
// the last one acquires it.
void HostThreads::StopRunning(bool in_turns) {
  if (in_turns) return RunNext();
  if (running_.fetch_sub(1, std::memory_order_release) > 1) return;
  running_.load(std::memory_order_acquire);
  for (const auto& seat : seats_) {
    if (seat->place.load(std::memory_order_relaxed) != kEnded) return Break();
  }
}

void HostThreads::RunNext() {
  std::vector<int> ready;
  bool have_all_ended = true;
  for (size_t i = 0; i < seats_.size(); ++i) {
    if (seats_[i]->can_run) ready.push_back(static_cast<int>(i));
    have_all_ended &= seats_[i]->place.load(std::memory_order_relaxed) == kEnded;
  }
  if (ready.empty() && !have_all_ended) return Break();
  if (ready.empty()) return;
  const int next = order_ == Order::kFalling ? ready.back()
                   : order_ == Order::kAny   ? ready[random_.Below(ready.size())]
                                             : ready.front();
  seats_[next]->can_run = false;
  Go(next);
}

// From here on one thread runs at a time and none waits for others, so all of them end.
void HostThreads::Break() {
  wrong_ = &*told_
                 .insert(absl::StrCat(
                     "uneven barrier: threads of a block wait for others that never come: ",
                     WhereAllAre()))
                 .first;
  is_broken_ = true;
  for (const auto& seat : seats_)
    seat->can_run = seat->place.load(std::memory_order_relaxed) != kEnded;
  RunNext();
}

std::string HostThreads::WhereAllAre() const {
  struct Those {
    int count = 0, first = 0;
  };
  std::map<std::string, Those> by_place;
  for (size_t i = seats_.size(); i-- > 0;) {
    Those& those = by_place[seats_[i]->place.load(std::memory_order_relaxed)];
    ++those.count;
    those.first = static_cast<int>(i);
  }
  return absl::StrJoin(by_place, ", ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, entry.second.count, " at ", entry.first, " (the first is thread ",
                    entry.second.first, ")");
  });
}

void HostThreads::Go(int thread) {
  Seat& seat = *seats_[thread];
  MutexLock lock(seat.mu);
  seat.may_go = true;
  seat.changed.NotifyOne();
}

void HostThreads::AwaitGo(int thread) {
  Seat& seat = *seats_[thread];
  MutexLock lock(seat.mu);
  seat.changed.Wait(seat.mu, [&]() DIVVY_REQUIRES(seat.mu) { return seat.may_go; });
  seat.may_go = false;
}

}  // namespace divvy::cuda
