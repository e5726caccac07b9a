#include "tools/launch/supervisor.h"

#include <signal.h>
#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/exit_codes.h"

namespace divvy {
namespace {

constexpr absl::string_view kCoordinator = "coordinator";
constexpr int kChiefIndex = 0;  // its index among the tasks

std::string AnyOf(const std::vector<Role>& roles) {
  return absl::StrJoin(
      roles, " or ", [](std::string* text, Role role) { absl::StrAppend(text, ChaosName(role)); });
}

}  // namespace

absl::string_view ChaosName(Role role) {
  return role == Role::kChief ? kCoordinator : RoleName(role);
}

std::optional<Role> ChaosRole(absl::string_view name) {
  for (const Role role : {Role::kWorker, Role::kPs, Role::kChief}) {
    if (ChaosName(role) == name) return role;
  }
  return std::nullopt;
}

Supervisor::Supervisor(SupervisorOptions options, std::vector<TaskId> tasks)
    : options_(options), random_(options.seed) {
  for (const TaskId& id : tasks)
    tasks_.push_back({id, false, {}, absl::InfiniteDuration(), {}, false, Backoff(random_.Next())});
}

// ---- events

Supervisor::Actions Supervisor::Begin(absl::Duration now) {
  for (Task& task : tasks_) Start(task, now);
  if (options_.chaos > absl::ZeroDuration()) {
    next_strike_ = now + options_.chaos;
    Say(absl::StrCat("chaos: SIGKILL to a random ", AnyOf(options_.chaos_roles), " every ",
                     absl::FormatDuration(options_.chaos), " (seed ", options_.seed, ")"));
  }
  return Take();
}

Supervisor::Actions Supervisor::OnExit(int index, ExitStatus status, absl::Duration now) {
  Task& task = tasks_[index];
  task.running = false;
  if (task.id.role == Role::kChief) {
    chief_code_ = status.code();
    const std::optional<Suspect> suspect = std::exchange(suspect_, std::nullopt);
    if (suspect && !MayHaveTold(status, *suspect)) {
      GiveUp(*suspect, now);
      return Take();
    }
  }
  if (phase_ == Phase::kRunning) {
    React(task, status, now);
  } else if (IsSpared(task)) {
    React(task, status, now);
  } else if (phase_ == Phase::kLingering && !status.ok()) {
    Say(absl::StrCat(ToString(task.id), " ", status.ToString(), "; the job was complete"));
  } else if (phase_ == Phase::kDraining && task.id.role == Role::kChief) {
    phase_ends_ = now + options_.drain;  // the other tasks get the same time
    SignalAll(drain_signal_);
  }
  task.by_chaos = false;
  return Take();
}

Supervisor::Actions Supervisor::OnCannotStart(int task, absl::Duration now) {
  tasks_[task].running = false;
  if (phase_ == Phase::kRunning) {
    verdict_ = exit_codes::kNoInput;
    Drain(SIGTERM, now);
  } else if (phase_ == Phase::kDraining && tasks_[task].id.role == Role::kChief) {
    SignalAll(drain_signal_);
  }
  return Take();
}

Supervisor::Actions Supervisor::OnSignal(int signal, absl::Duration now) {
  const std::string name = absl::StrCat("SIG", sigabbrev_np(signal));
  spares_evaluator_ = false;
  if (const auto suspect = std::exchange(suspect_, std::nullopt)) verdict_ = suspect->exit_code;
  if (phase_ == Phase::kDraining || phase_ == Phase::kKilling) {
    Say(absl::StrCat(name, ": killing ", Running()));
    Kill();
  } else {
    Say(absl::StrCat(name, ": draining ", Running(), "; a second signal kills"));
    // SIGHUP does not end a task: it would only read its certificates again.
    Drain(signal == SIGHUP ? SIGTERM : signal, now);
  }
  return Take();
}

Supervisor::Actions Supervisor::OnTimer(absl::Duration now) {
  if (suspect_ && suspect_->until <= now) GiveUp(*std::exchange(suspect_, std::nullopt), now);
  if (phase_ends_ <= now) EndPhase(now);
  if (next_strike_ <= now) Strike(now);
  for (Task& task : tasks_) {
    if (task.restart_at > now) continue;
    task.ended_well ? RestartAfterFarewell(task, now) : Start(task, now);
  }
  return Take();
}

// ---- queries

absl::Duration Supervisor::deadline() const {
  absl::Duration first = std::min(phase_ends_, next_strike_);
  if (suspect_) first = std::min(first, suspect_->until);
  for (const Task& task : tasks_) first = std::min(first, task.restart_at);
  return first;
}

bool Supervisor::over() const {
  return phase_ != Phase::kRunning &&
         std::none_of(tasks_.begin(), tasks_.end(), [](const Task& task) {
           return task.running || task.restart_at != absl::InfiniteDuration();
         });
}

int Supervisor::exit_code() const { return verdict_.value_or(chief_code_); }

// ---- decisions

void Supervisor::Start(Task& task, absl::Duration now) {
  task.running = true;
  task.started = now;
  task.restart_at = absl::InfiniteDuration();
  out_.push_back({Action::Kind::kStart, static_cast<int>(&task - tasks_.data()), 0, ""});
}

void Supervisor::React(Task& task, ExitStatus status, absl::Duration now) {
  if (now - task.started >= options_.settled) task.backoff.Reset();
  while (!task.restarts.empty() && now - task.restarts.front() > options_.window)
    task.restarts.pop_front();
  task.by_chaos = task.by_chaos || IsConsequence(task, status);
  const int restarts = static_cast<int>(task.restarts.size());
  const Verdict verdict =
      RestartPolicy({task.id.role, status, task.by_chaos, restarts, options_.max_restarts});
  task.ended_well = verdict.reaction == Reaction::kAwait;
  switch (verdict.reaction) {
    case Reaction::kAwait: task.restart_at = now + options_.farewell; return;
    case Reaction::kLetGo:
      if (!status.ok())
        Say(absl::StrCat(ToString(task.id), " ", status.ToString(),
                         "; the job goes on without it"));
      return;
    case Reaction::kRestart: return Restart(task, status, now);
    case Reaction::kLinger:
      if (strikes_ > 0)
        Say(absl::StrCat("chaos: ", strikes_, strikes_ == 1 ? " kill" : " kills",
                         " before the job was complete"));
      spares_evaluator_ = true;
      return Linger(now);
    case Reaction::kDrain: break;
  }
  const std::string loop = verdict.exit_code == status.code()
                               ? ""
                               : absl::StrCat(", ", restarts + 1, " times within ",
                                              absl::FormatDuration(options_.window));
  Suspect failed{static_cast<int>(&task - tasks_.data()), status, verdict.exit_code, loop,
                 now + options_.doubt};
  const bool may_be_told =
      loop.empty() && task.id.role != Role::kChief && tasks_[kChiefIndex].running;
  if (!may_be_told) return GiveUp(failed, now);
  if (!suspect_) suspect_ = std::move(failed);
}

// Whether the suspect's code may be one that the chief sent to it, before the chief ended with
// `status`. A program in Python ends its own process with any code (sys.exit), and the job of such
// a program has failed with kPermanent.
bool Supervisor::MayHaveTold(ExitStatus status, const Suspect& suspect) {
  return status.code() == suspect.status.code() ||
         (suspect.status.code() == exit_codes::kPermanent && !status.ok() &&
          status.code() < exit_codes::kOfSignal);
}

// After such a failure the launch cannot continue.
void Supervisor::GiveUp(const Suspect& failed, absl::Duration now) {
  verdict_ = failed.exit_code;
  const std::string others = Running();
  Say(absl::StrCat(ToString(tasks_[failed.task].id), " ", failed.status.ToString(), failed.loop,
                   others.empty() ? "" : absl::StrCat("; draining ", others)));
  Drain(SIGTERM, now);
}

// Whether the task ended because another one was missing: chaos has killed a task during its life,
// and its exit code says that peers were unreachable.
bool Supervisor::IsConsequence(const Task& task, ExitStatus status) const {
  return status.code() == exit_codes::kTryAgain && last_strike_ >= task.started;
}

void Supervisor::Restart(Task& task, ExitStatus status, absl::Duration now) {
  if (task.by_chaos) {
    task.backoff.Reset();
  } else {
    task.restarts.push_back(now);
  }
  task.restart_at = now + task.backoff.Next();
  const std::string count =
      task.by_chaos ? ""
                    : absl::StrCat(" (", task.restarts.size(), " of ", options_.max_restarts, ")");
  Say(absl::StrCat(ToString(task.id), " ", status.ToString(), "; starting it again", count));
}

// A worker has ended with 0, and the chief still runs.
void Supervisor::RestartAfterFarewell(Task& task, absl::Duration now) {
  task.ended_well = false;
  task.restart_at = absl::InfiniteDuration();
  const std::string although = " although the job goes on";
  if (static_cast<int>(task.restarts.size()) >= options_.max_restarts) {
    const int index = static_cast<int>(&task - tasks_.data());
    return GiveUp({index, {}, exit_codes::kInternal, although, now}, now);
  }
  task.restarts.push_back(now);
  Say(absl::StrCat(ToString(task.id), " ", ExitStatus().ToString(), although,
                   "; starting it again (", task.restarts.size(), " of ", options_.max_restarts,
                   ")"));
  Start(task, now);
}

void Supervisor::Linger(absl::Duration now) {
  phase_ = Phase::kLingering;
  phase_ends_ = now + options_.linger;
  next_strike_ = absl::InfiniteDuration();
  CancelRestarts();
}

void Supervisor::CancelRestarts() {
  for (Task& task : tasks_) {
    if (!IsSpared(task)) task.restart_at = absl::InfiniteDuration();
  }
}

void Supervisor::Drain(int signal, absl::Duration now) {
  Linger(now);
  phase_ = Phase::kDraining;
  phase_ends_ = now + options_.drain;
  drain_signal_ = signal;
  if (!tasks_[kChiefIndex].running) return SignalAll(signal);
  out_.push_back({Action::Kind::kSignal, kChiefIndex, signal, ""});
}

void Supervisor::Kill() {
  phase_ = Phase::kKilling;
  phase_ends_ = absl::InfiniteDuration();
  CancelRestarts();
  SignalAll(SIGKILL);
}

void Supervisor::EndPhase(absl::Duration now) {
  if (Running().empty()) {
    phase_ends_ = absl::InfiniteDuration();
    Say("the evaluator scores the final checkpoint");
  } else if (phase_ == Phase::kLingering) {
    Say(absl::StrCat("the chief ended ", absl::FormatDuration(options_.linger), " ago; asking ",
                     Running(), " to end (SIGTERM)"));
    Drain(SIGTERM, now);
  } else {
    Say(absl::StrCat(Running(), " did not end within ", absl::FormatDuration(options_.drain),
                     "; killing (SIGKILL)"));
    Kill();
  }
}

void Supervisor::Strike(absl::Duration now) {
  next_strike_ = now + options_.chaos;
  std::vector<Task*> live;
  for (Task& task : tasks_) {
    const bool may_be_hit =
        std::count(options_.chaos_roles.begin(), options_.chaos_roles.end(), task.id.role) > 0;
    if (task.running && !task.by_chaos && may_be_hit) live.push_back(&task);
  }
  if (live.empty()) return;
  Task& victim = *live[random_.Below(live.size())];
  victim.by_chaos = true;
  last_strike_ = now;
  ++strikes_;
  out_.push_back({Action::Kind::kSignal, static_cast<int>(&victim - tasks_.data()), SIGKILL, ""});
  Say(absl::StrCat("chaos: SIGKILL to ", ToString(victim.id)));
}

void Supervisor::SignalAll(int signal) {
  for (size_t i = 0; i < tasks_.size(); ++i) {
    if (IsToEnd(tasks_[i]))
      out_.push_back({Action::Kind::kSignal, static_cast<int>(i), signal, ""});
  }
}

bool Supervisor::IsSpared(const Task& task) const {
  return spares_evaluator_ && task.id.role == Role::kEvaluator;
}

bool Supervisor::IsToEnd(const Task& task) const { return task.running && !IsSpared(task); }

std::string Supervisor::Running() const {
  std::vector<std::string> names;
  for (const Task& task : tasks_) {
    if (IsToEnd(task)) names.push_back(ToString(task.id));
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace divvy
