// What `divvyctl launch` does next, decided without doing it.
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

// As --chaos_roles writes a role: worker, ps or coordinator, which is what people call the chief.
absl::string_view ChaosName(Role role);
std::optional<Role> ChaosRole(absl::string_view name);  // nullopt: there is none

struct SupervisorOptions {
  // Of one task.
  int max_restarts = 5;
  // within this: a task that needs more is in a crash loop, however long each of its lives is
  absl::Duration window = absl::Minutes(10);
  // After a life that long the next begins without a pause.
  absl::Duration settled = absl::Seconds(10);
  // SIGKILL to a random task at that period; 0: never
  absl::Duration chaos;
  // whom it may hit
  std::vector<Role> chaos_roles = {Role::kWorker};
  // A chief that fails tells all its code: so long it may take to end with that of another task.
  absl::Duration doubt = absl::Seconds(1);
  // How long the others may take to end by themselves after a chief that succeeded.
  absl::Duration linger = absl::Seconds(3);
  // From SIGTERM to SIGKILL: the tasks' own --drain_timeout of 25 s fits.
  absl::Duration drain = absl::Seconds(30);
  // Of the choice of victims.
  uint64_t seed = 0;
};

// A state machine: each event returns what is to be done, in order. Times are those of one
// monotonic clock. Not thread-safe; never blocks.
//
// Which task is to blame is decided within a second: where the chief ends with the same code, it is
// the chief.
//
// Its phases: running -> (the chief succeeded) lingering -> draining -> killing -> over. A signal
// of a person, a death that RestartPolicy calls final and a chief that failed lead straight to
// draining; a second signal to killing. A task is started again only while running. Draining, the
// chief goes first: it needs the others for the steps in flight and for its last checkpoint. An
// evaluator that scores the final checkpoint of a job that is complete is given the time it takes:
// only a person's signal ends it then.
class Supervisor {
 public:
  struct Action {
    enum class Kind { kStart, kSignal, kSay };
    Kind kind = Kind::kSay;
    int task = 0;      // index in the tasks given
    int signal = 0;    // of kSignal
    std::string text;  // of kSay: one line
  };
  using Actions = std::vector<Action>;

  // REQUIRES: tasks[0] is the chief.
  Supervisor(SupervisorOptions options, std::vector<TaskId> tasks);

  // Starts all. Once, before any event.
  Actions Begin(absl::Duration now);
  // A task that was started has ended.
  Actions OnExit(int task, ExitStatus status, absl::Duration now);
  // A task could not be started, so the others are drained; or, with starts() false meanwhile, it
  // was not tried. The caller says why.
  Actions OnCannotStart(int task, absl::Duration now);
  // A person has sent SIGINT, SIGTERM or SIGHUP to the launcher: the first is passed on to the
  // chief, and to the others when that has ended; the second kills.
  Actions OnSignal(int signal, absl::Duration now);
  // `deadline()` has passed.
  Actions OnTimer(absl::Duration now);

  // Whether tasks are still to be started. A kStart that was asked for before this turned false is
  // not to be carried out, but answered by OnCannotStart: what was signalled to the tasks meanwhile
  // has not reached this one.
  bool starts() const { return phase_ == Phase::kRunning; }
  // When OnTimer is to be called at the latest; infinite if never.
  absl::Duration deadline() const;
  // Whether every task is over, and none will be started again.
  bool over() const;
  // Of the launcher. REQUIRES: over().
  int exit_code() const;

 private:
  enum class Phase { kRunning, kLingering, kDraining, kKilling };
  struct Task {
    TaskId id;
    bool running = false;
    absl::Duration started;
    absl::Duration restart_at = absl::InfiniteDuration();  // finite: waits to be started again
    std::deque<absl::Duration> restarts;                   // those of the window
    bool by_chaos = false;
    Backoff backoff;
  };

  // A task that has failed for good, while the chief runs: what it ended with may be the chief's
  // own failure, of which it was told.
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
  void GiveUp(const Suspect& failed, absl::Duration now);
  void Restart(Task& task, ExitStatus status, absl::Duration now);
  void Linger(absl::Duration now);
  void Drain(int signal, absl::Duration now);
  void Kill();
  void EndPhase(absl::Duration now);
  bool IsConsequence(const Task& task, ExitStatus status) const;
  void Strike(absl::Duration now);
  void SignalAll(int signal);
  // But for who is spared.
  void CancelRestarts();
  // The evaluator, for as long as the final checkpoint takes it.
  bool IsSpared(const Task& task) const;
  // It runs, and is not left to end by itself.
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
  // The exit code that was decided before the chief's was known.
  std::optional<int> verdict_;
  int chief_code_ = 0;
  int strikes_ = 0;  // of chaos
  Actions out_;
};

}  // namespace divvy

#endif  // DIVVY_TOOLS_LAUNCH_SUPERVISOR_H_
