// Decides what `divvyctl launch` does next, without doing it.
#ifndef DIVVY_TOOLS_LAUNCH_SUPERVISOR_H_
#define DIVVY_TOOLS_LAUNCH_SUPERVISOR_H_

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/random.h"
#include "protocol/backoff.h"
#include "protocol/role.h"
#include "tools/launch/exit_status.h"
#include "tools/launch/restart_policy.h"

namespace divvy {

struct TaskId {
  Role role = Role::kChief;
  int index = 0;
};
inline bool operator==(TaskId a, TaskId b) { return a.role == b.role && a.index == b.index; }
inline std::string ToString(TaskId task) { return TaskName(task.role, task.index); }

// The names of roles in --chaos_roles: worker, ps and coordinator (not chief).
absl::string_view ChaosName(Role role);
std::optional<Role> ChaosRole(absl::string_view name);  // nullopt: no such role

struct SupervisorOptions {
  // The most restarts of one task within `window`.
  int max_restarts = 5;
  // A task that needs more restarts is in a crash loop, however long each of its lives is.
  absl::Duration window = absl::Minutes(10);
  // After a life of this length, the next one begins without a pause.
  absl::Duration settled = absl::Seconds(10);
  // The interval at which a random task gets SIGKILL; 0: never.
  absl::Duration chaos;
  // The roles that chaos may hit.
  std::vector<Role> chaos_roles = {Role::kWorker};
  // A chief that fails sends its exit code to all tasks, so another task may end with that code
  // first. For this time the chief may still end, and is then blamed. Python with PyTorch takes a
  // second to end.
  absl::Duration doubt = absl::Seconds(3);
  // A worker ends with 0 when the job is complete. If the chief still runs after this time, the
  // worker has ended for another reason, and is restarted. Longer than the 10 s for which a chief
  // waits for tasks that it cannot reach.
  absl::Duration farewell = absl::Seconds(15);
  // How long the other tasks may take to end by themselves after a chief that succeeded.
  absl::Duration linger = absl::Seconds(3);
  // From SIGTERM to SIGKILL. Longer than the tasks' own --drain_timeout of 25 s.
  absl::Duration drain = absl::Seconds(30);
  // The random seed for the choice of victims.
  uint64_t seed = 0;
};

// A state machine: each event returns the actions to take, in order. All times are of one monotonic
// clock. Not thread-safe; never blocks.
//
// Its phases: running -> (the chief succeeded) lingering -> draining -> killing -> over. Three
// events lead from running to draining: a signal from the user, an end that RestartPolicy calls
// final, and a failed chief. A second signal leads to killing. Tasks are restarted only while
// running.
//
// After a final failure the machine waits for options.doubt: if the chief ends with a code that it
// may have sent to the others, the chief is blamed.
//
// When draining, the chief is signalled first, because it needs the others for the steps in flight
// and for its last checkpoint. An evaluator that scores the final checkpoint of a complete job gets
// the time that it needs. Only a signal from the user ends it then.
class Supervisor {
 public:
  struct Action {
    enum class Kind { kStart, kSignal, kSay };
    Kind kind = Kind::kSay;
    int task = 0;      // index in the constructor's `tasks`
    int signal = 0;    // for kSignal
    std::string text;  // for kSay: one line
  };
  using Actions = std::vector<Action>;

  // REQUIRES: tasks[0] is the chief.
  Supervisor(SupervisorOptions options, std::vector<TaskId> tasks);

  // Starts all tasks. Called once, before any event.
  Actions Begin(absl::Duration now);
  // A task that was started has ended.
  Actions OnExit(int task, ExitStatus status, absl::Duration now);
  // A task could not be started, so the others are drained. Also called for a task that was not
  // tried because starts() had turned false. The caller reports the reason.
  Actions OnCannotStart(int task, absl::Duration now);
  // The user has sent SIGINT, SIGTERM or SIGHUP to the launcher. The first signal is passed on to
  // the chief and, after the chief's end, to the others. The second signal kills.
  Actions OnSignal(int signal, absl::Duration now);
  // `deadline()` has passed.
  Actions OnTimer(absl::Duration now);

  // Whether tasks may still be started. If this turns false after a kStart was returned, the caller
  // must not carry out that kStart, but call OnCannotStart: the task has missed the signals that
  // were sent meanwhile.
  bool starts() const { return phase_ == Phase::kRunning; }
  // The time at which OnTimer must be called at the latest; infinite: never.
  absl::Duration deadline() const;
  // Whether every task has ended, and none will be restarted.
  bool over() const;
  // The launcher's exit code. REQUIRES: over().
  int exit_code() const;

 private:
  enum class Phase { kRunning, kLingering, kDraining, kKilling };
  struct Task {
    TaskId id;
    bool running = false;
    absl::Duration started;
    absl::Duration restart_at = absl::InfiniteDuration();  // finite: the time of its restart
    std::deque<absl::Duration> restarts;                   // within the window
    bool by_chaos = false;
    Backoff backoff;
    bool ended_well = false;  // a worker that waits for the chief's end, or for its restart
  };

  // A task with a permanent failure, while the chief still runs. The failure may be the chief's,
  // which the chief has sent to the task.
  struct Suspect {
    int task = 0;
    ExitStatus status;
    int exit_code = 0;
    std::string loop;  // ", 6 times within 10m", or ""
    absl::Duration until;
  };

  void Say(std::string text) { out_.push_back({Action::Kind::kSay, 0, 0, std::move(text)}); }
  void Start(Task& task, absl::Duration now);
  void React(Task& task, ExitStatus status, absl::Duration now);
  static bool MayHaveTold(ExitStatus status, const Suspect& suspect);
  void GiveUp(const Suspect& failed, absl::Duration now);
  void Restart(Task& task, ExitStatus status, absl::Duration now);
  void RestartAfterFarewell(Task& task, absl::Duration now);
  void Linger(absl::Duration now);
  void Drain(int signal, absl::Duration now);
  void Kill();
  void EndPhase(absl::Duration now);
  bool IsConsequence(const Task& task, ExitStatus status) const;
  void Strike(absl::Duration now);
  void SignalAll(int signal);
  // Except for a spared task.
  void CancelRestarts();
  // Whether the task is the evaluator while it scores the final checkpoint.
  bool IsSpared(const Task& task) const;
  // Whether the task runs and must be made to end.
  bool IsToEnd(const Task& task) const;
  std::string Running() const;
  Actions Take() { return std::exchange(out_, {}); }

  const SupervisorOptions options_;
  Random random_;
  std::vector<Task> tasks_;
  Phase phase_ = Phase::kRunning;
  absl::Duration phase_ends_ = absl::InfiniteDuration(), next_strike_ = absl::InfiniteDuration();
  absl::Duration last_strike_ = -absl::InfiniteDuration();
  int drain_signal_ = 0;
  bool spares_evaluator_ = false;
  std::optional<Suspect> suspect_;
  // The launch's exit code, if it was decided before the chief ended.
  std::optional<int> verdict_;
  int chief_code_ = 0;
  int strikes_ = 0;  // kills by chaos
  Actions out_;
};

}  // namespace divvy

#endif  // DIVVY_TOOLS_LAUNCH_SUPERVISOR_H_
