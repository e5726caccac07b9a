// The phases of a job. Each phase has the data that only this phase needs.
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
  // The catalog is being asked for checkpoints.
  bool looking = false;
  // Nothing is sent in an epoch before the epoch is durable.
  bool epoch_durable = true;
};
struct Choosing {};
struct Loading {
  // Clock::Elapsed() when it began.
  absl::Duration since;
};
struct Replaying {
  // As Loading::since.
  absl::Duration since;
};
struct Running {};
// The Shutdown calls that tell tasks to exit, once the end of the job is durable. Workers are told
// first.
struct Shutdowns {
  // Whether the ps are told too.
  bool ps_are_told = false;
  // Calls of Shutdown that are under way.
  int waiting = 0;
};
struct Ending {
  int exit_code = 0;
  std::function<void(absl::Status)> done;
  // The Sync that every ps has to acknowledge before the end is stored. 0: every ps has, or no ps
  // is asked because the program has used nothing.
  uint64_t seq = 0;
  // The end is durable, and the reply to each Register has `over` set.
  bool stored = false;
  Shutdowns shutdowns = {};
};
struct Over {
  int exit_code = 0;
};
struct Failed {
  absl::Status error;
  // Set if the job's end is durable in spite of the failure, because it was stored or being stored
  // before.
  std::optional<int> exit_code;
  Shutdowns shutdowns = {};
};

}  // namespace job_phase

// The phase that the job is in, with its data. The alternatives stand in the order of
// CoordinatorSnapshot::Phase, which describes them. Plain data; guarded by the coordinator's lock.
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

  // Enters another phase. The data of the current phase is dropped.
  template <typename State>
  void Enter(State state) {
    state_ = std::move(state);
  }
  // Enters Attaching. Does nothing if that is the phase already.
  void Reattach() {
    if (Get<Attaching>() == nullptr) state_ = Attaching();
  }
  Name name() const { return static_cast<Name>(state_.index()); }
  bool Is(Name name) const { return this->name() == name; }
  // The data of phase `State`. Null: the job is in another phase.
  template <typename State>
  State* Get() {
    return std::get_if<State>(&state_);
  }
  template <typename State>
  const State* Get() const {
    return std::get_if<State>(&state_);
  }

  // The error that ended the job. OK: the job has not failed.
  absl::Status error() const {
    return Get<Failed>() != nullptr ? Get<Failed>()->error : absl::OkStatus();
  }
  // The exit code that the store has for the job. Nullopt: the end is not durable yet, or the job
  // goes on.
  std::optional<int> exit_code() const {
    if (const auto* over = Get<Over>()) return over->exit_code;
    if (const auto* failed = Get<Failed>()) return failed->exit_code;
    const auto* ending = Get<Ending>();
    return ending != nullptr && ending->stored ? std::optional<int>(ending->exit_code)
                                               : std::nullopt;
  }
  // Whether the job's end cannot be undone: it is being stored, or is durable. From here on the
  // loss of a server costs nothing.
  bool IsEndCertain() const {
    const auto* ending = Get<Ending>();
    return ending != nullptr && ending->seq == 0;
  }
  // Null: in this phase no task is told to exit.
  Shutdowns* shutdowns() {
    if (auto* ending = Get<Ending>()) return &ending->shutdowns;
    auto* failed = Get<Failed>();
    return failed != nullptr ? &failed->shutdowns : nullptr;
  }
  // Whether every call of the program is refused.
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
