// The phases of a job, each with the data that only this phase has.
#ifndef DIVVY_COORDINATOR_CORE_JOB_PHASE_H_
#define DIVVY_COORDINATOR_CORE_JOB_PHASE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "coordinator/core/coordinator_snapshot.h"

namespace divvy {

namespace job_phase {

struct Attaching {
  // The servers load another checkpoint than in the epoch before.
  bool reload = false;
  // For checkpoints.
  bool looking = false;
  // Nothing is sent in an epoch before it is.
  bool epoch_durable = true;
};
struct Choosing {};
struct Loading {};
struct Replaying {};
struct Running {};
// What the tasks are told once the end of the job is durable.
struct Shutdowns {
  bool ps_are_told = false;  // the workers are told first
  int waiting = 0;           // calls of Shutdown that are under way
};
struct Ending {
  int exit_code = 0;
  std::function<void(absl::Status)> done;
  // Of the Sync that every ps has to acknowledge before the end is stored. 0: all have, or nobody
  // is asked, because the program has used nothing.
  uint64_t seq = 0;
  // The end is durable: a task that registers is told.
  bool stored = false;
  Shutdowns shutdowns = {};
};
struct Over {
  int exit_code = 0;
};
struct Failed {
  absl::Status error;
  // The job's end is durable all the same: it was being stored, or was stored, before.
  std::optional<int> exit_code;
  Shutdowns shutdowns = {};
};

}  // namespace job_phase

// In the order of CoordinatorSnapshot::Phase, which says what each of them is. Plain data; guarded
// by the coordinator's lock.
class JobPhase {
 public:
  using Name = CoordinatorSnapshot::Phase;

  using Attaching = job_phase::Attaching;
  using Choosing = job_phase::Choosing;
  using Loading = job_phase::Loading;
  using Replaying = job_phase::Replaying;
  using Running = job_phase::Running;
  using Ending = job_phase::Ending;
  using Shutdowns = job_phase::Shutdowns;
  using Over = job_phase::Over;
  using Failed = job_phase::Failed;

  template <typename State>
  void Enter(State state) {
    state_ = std::move(state);
  }
  // Enters Attaching, unless it is the phase already.
  void Reattach() {
    if (Get<Attaching>() == nullptr) state_ = Attaching();
  }
  Name name() const { return static_cast<Name>(state_.index()); }
  bool Is(Name name) const { return this->name() == name; }
  // The data of the phase. Null: the job is in another phase.
  template <typename State>
  State* Get() {
    return std::get_if<State>(&state_);
  }
  template <typename State>
  const State* Get() const {
    return std::get_if<State>(&state_);
  }

  // What ended the job. OK: it has not failed.
  absl::Status error() const {
    return Get<Failed>() != nullptr ? Get<Failed>()->error : absl::OkStatus();
  }
  // The exit code that the store has for the job's end. Nullopt: the end is not durable yet, or the
  // job goes on.
  std::optional<int> exit_code() const {
    if (const auto* over = Get<Over>()) return over->exit_code;
    if (const auto* failed = Get<Failed>()) return failed->exit_code;
    const auto* ending = Get<Ending>();
    return ending != nullptr && ending->stored ? std::optional<int>(ending->exit_code)
                                               : std::nullopt;
  }
  // Whether the job ends and nothing can undo it: the end is being stored, or is durable. A server
  // that is lost from here on takes nothing with it.
  bool IsEndCertain() const {
    const auto* ending = Get<Ending>();
    return ending != nullptr && ending->seq == 0;
  }
  // Null: the job is in a phase in which no task is told the end.
  Shutdowns* shutdowns() {
    if (auto* ending = Get<Ending>()) return &ending->shutdowns;
    auto* failed = Get<Failed>();
    return failed != nullptr ? &failed->shutdowns : nullptr;
  }
  // Whether no call of the program is served any more.
  bool IsFinal() const { return Is(Name::kFailed) || Is(Name::kOver); }

 private:
  using State =
      std::variant<Attaching, Choosing, Loading, Replaying, Running, Ending, Over, Failed>;
  static_assert(std::variant_size_v<State> == static_cast<size_t>(Name::kFailed) + 1);
  static_assert(std::is_same_v<
                std::variant_alternative_t<static_cast<size_t>(Name::kRunning), State>, Running>);
  static_assert(std::is_same_v<
                std::variant_alternative_t<static_cast<size_t>(Name::kEnding), State>, Ending>);

  State state_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_JOB_PHASE_H_
