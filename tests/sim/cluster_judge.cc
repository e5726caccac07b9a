#include "tests/sim/cluster.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace divvy::sim {
namespace {

// All clocks are one here, so the worker's times lie within the coordinator's. A liar's may not.
bool TimesAgree(const TracedStep& run) {
  if (!run.parts) return true;
  const StepTrace& parts = *run.parts;
  const bool rises = parts.began <= parts.computed && parts.computed <= parts.reported &&
                     parts.reported <= run.total && parts.committed <= parts.reported;
  return rises && parts.calls.size() <= StepTrace::kMostCalls &&
         std::all_of(parts.calls.begin(), parts.calls.end(), [&](const StepTrace::Call& call) {
           return call.since + call.took <= parts.reported && call.served <= call.took;
         });
}

}  // namespace

void Cluster::CheckAlways() {
  // For each entry: the sessions whose commit of it would still be applied.
  std::map<std::tuple<JobId, Epoch, EntryId>, std::set<uint32_t>> admissible;
  const auto counts_on = [servers = lost_store_ ? core_->Inspect().ps
                                                : std::vector<Incarnation>()](const Process& ps) {
    return std::count(servers.begin(), servers.end(), ps.incarnation) > 0;
  };
  for (Process* ps : ps_) {
    if (ps == nullptr || !ps->node->executor->alive()) continue;
    const ParameterServerSnapshot seen = ps->ps->Inspect(kNoValues);
    for (const auto& [id, times] : seen.history) {
      if (times > 1)
        Violation("X1",
                  absl::StrCat("ps ", ps->index, " applied id ", id.value(), " ", times, " times"));
    }
    if (const std::string wrong = applied_.Contradiction(ps->incarnation, seen); !wrong.empty())
      Violation("X1", absl::StrCat("ps ", ps->index, " ", wrong));
    if (seen.remembered.size() > 32'768 + 16)
      Violation("X7",
                absl::StrCat("ps ", ps->index, " remembers ", seen.remembered.size(), " ids"));
    for (const auto& process : processes_) {
      if (process->worker == nullptr || !process->node->executor->alive()) continue;
      const WorkerSnapshot worker = process->worker->Inspect();
      for (const EntryId step : worker.ahead)
        pulled_ahead_.emplace(process.get(), worker.session, step);
      if (!worker.attached || worker.epoch != seen.epoch || worker.job != seen.job) continue;
      // A coordinator that has lost its store may use the epochs of its predecessor again, on other
      // servers.
      if (lost_store_ && !counts_on(*ps)) continue;
      if (std::count(seen.sessions.begin(), seen.sessions.end(), worker.session) == 0) continue;
      for (const std::optional<EntryId> step : {worker.live, worker.committing}) {
        if (step) admissible[{seen.job, seen.epoch, *step}].insert(worker.session.value());
      }
      if (worker.committing && worker.live != worker.committing)
        beside_commits_.emplace(process.get(), worker.session, *worker.live);
    }
  }
  for (const auto& [of, sessions] : admissible) {
    if (sessions.size() > 1)
      Violation("X5",
                absl::StrCat("id ", std::get<EntryId>(of).value(), " may be applied by sessions ",
                             absl::StrJoin(sessions, " and ")));
  }
  if (const auto last = core_->Snapshot().last_checkpoint; last && (!newest_ || *newest_ < *last)) {
    newest_ = last;
    ++result_.checkpoints;
  }
  const CoordinatorSnapshot seen = core_->Snapshot();
  has_run_ |= seen.phase == CoordinatorSnapshot::Phase::kRunning;
  // Initial values that the program brings are accepted beyond the limit.
  const int64_t beyond = config_.beside ? 100'000 : 10'000;
  if (seen.redo_log_bytes > config_.redo_log_bytes + beyond)
    Violation("X7", absl::StrCat("the redo log has ", seen.redo_log_bytes, " bytes"));
  result_.rewinds += seen.recoveries - std::exchange(recoveries_, seen.recoveries);
  const CoordinatorCore::Inspection truth = core_->Inspect();
  SettleEviction(truth);
  if (truth.unacknowledged > 1024) Violation("X7", "more than 1,024 unacknowledged messages");
  CheckRecovery();
  if (chief_down_) return;
  for (const EntryId id : truth.open) {
    if (id.value() <= ids_of_the_past_)
      Violation("X14", absl::StrCat("id ", id.value(),
                                    " was given by an earlier life of the coordinator"));
  }
}

// When every process is back, a job that continues does so soon.
void Cluster::CheckRecovery() {
  const CoordinatorSnapshot::Phase phase = core_->Snapshot().phase;
  const bool runs = phase == CoordinatorSnapshot::Phase::kRunning ||
                    phase == CoordinatorSnapshot::Phase::kEnding ||
                    phase == CoordinatorSnapshot::Phase::kOver;
  if (!faults_stopped_ || chief_down_ || runs || over_) return not_running_since_.reset();
  if (!not_running_since_) {
    not_running_since_ = now();
    rewinds_before_ = result_.rewinds;
  }
  // A lying worker can report steps as half applied, which costs rewinds
  // (docs/operating/security.md). It can also keep each step of a replay until the step's deadline.
  // A lying parameter server that announces its end costs rewinds too. By default --max_recoveries
  // ends such a job, but most programs here allow 1,000 recoveries.
  const bool lied_to = config_.liar || config_.lying_ps;
  if (lied_to && result_.rewinds - rewinds_before_ > CoordinatorOptions().max_recoveries) {
    ++result_.rewound_too_often;
    over_ = true;
    return;
  }
  const RecoveryProgress progress{result_.rewinds, core_->Inspect().steps_to_replay};
  if (lied_to && std::exchange(recovery_seen_, progress) != progress) not_running_since_ = now();
  result_.longest_recovery = std::max(result_.longest_recovery, now() - *not_running_since_);
  if (now() - *not_running_since_ > kLongestRecovery)
    Violation("X16", absl::StrCat("the job has not run for ",
                                  absl::FormatDuration(now() - *not_running_since_),
                                  " although every process is back"));
}

// Of two processes with one index, makes ps_[index] the one whose state the coordinator counts on.
// Returns false if that process has ended, which the coordinator may not know yet.
bool Cluster::FindServingPs(int index) {
  const Epoch lineage = core_->Inspect().lineage;
  const Incarnation life = core_->Inspect().ps[index];
  for (const std::unique_ptr<Process>& process : processes_) {
    if (process->ps == nullptr || process->index != index || process->incarnation != life) continue;
    if (!process->node->executor->alive()) return false;
    ps_[index] = process.get();
    return process->ps->Inspect(kNoValues).lineage == lineage;
  }
  return false;
}

// The first step of a coordinator is sampled, and later ones may be slow. So one that has finished
// steps has kept the times of some.
void Cluster::CheckTraces() {
  const std::vector<TracedStep> traced = chief_->traces.Last();
  if (traced.size() > 64)
    Violation("X7", absl::StrCat("the times of ", traced.size(), " steps are kept"));
  const int64_t finished = core_->Snapshot().counted_runs;
  if (finished > 0 && traced.empty() && chief_->traces.Slowest(now()).empty())
    Violation("X14", absl::StrCat(finished, " steps finished, and the times of none are kept"));
  for (const TracedStep& run : traced) {
    if (!config_.liar && !TimesAgree(run))
      Violation("X14", absl::StrCat("the times of step ", run.step.value(), ", attempt ",
                                    run.attempt, " contradict each other"));
  }
}

void Cluster::CheckAtRest() {
  CheckTraces();
  const CoordinatorCore::Inspection truth = core_->Inspect();
  // A direct write of another round is in flight, or the state is not restored yet.
  if (!truth.open.empty() || truth.steps_to_replay) return;
  const int serving = static_cast<int>(truth.ps.size());
  for (int i = 0; i < serving; ++i) {
    // The server is lost, or serves another coordinator by now. This coordinator will learn it.
    if (!FindServingPs(i)) return;
  }
  std::map<EntryId, std::set<int>> applied = AppliedNow();
  for (const auto& [id, where] : inherited_) {
    if (truth.lineage != inherited_lineage_) break;  // every server has loaded since
    if (applied[id] != where)
      Violation("X2", absl::StrCat("id ", id.value(), " was adopted, and is on other servers now"));
    applied.erase(id);
  }
  for (const auto& [id, participants] : truth.finished) {
    const std::set<int> wanted(participants.begin(), participants.end());
    if (applied[id] != wanted && falsely_done_.count(id) == 0) {
      Violation("X2",
                absl::StrCat("id ", id.value(), " finished on ps ", absl::StrJoin(wanted, " "),
                             " but is applied on ", absl::StrJoin(applied[id], " ")));
    }
    applied.erase(id);
  }
  for (const auto& [id, where] : applied)
    Violation("X8", absl::StrCat("id ", id.value(), " did not finish but is applied on ps ",
                                 absl::StrJoin(where, " ")));
  for (int i = 0; i < serving; ++i) {
    Process* const ps = ps_[i];
    const ParameterServerSnapshot seen = ps->ps->Inspect();
    for (const auto& [key, shard] : seen.shards) {
      // Adam's row counts are the only int32 values.
      if (shard.value.dtype() != DType::kInt32 || !absl::StartsWith(shard.name, "adam/")) continue;
      const absl::Span<const int32_t> counts = *shard.value.values<int32_t>();
      for (const int32_t t : counts) {
        if (t != model_.adam_commits)
          Violation("X12", absl::StrCat("ps ", ps->index, ": Adam's t is ", t, " after ",
                                        model_.adam_commits, " commits"));
      }
    }
    CheckSlots(*ps, seen);
    for (const auto& [key, shard] : seen.shards) {
      if (absl::StartsWith(shard.name, kHuge))
        Violation("create", absl::StrCat("ps ", ps->index,
                                         " holds a shard of a variable that could not be created"));
    }
  }
  if (config_.table && JudgesReads()) CheckTableRows(serving);
  CheckPlaces();
}

void Cluster::CheckPlaces() {
  const std::shared_ptr<const Layout> layout = core_->layout();
  if (const VariableLayout* const late = layout->Find("late");
      late != nullptr && late->spec.wire != config_.late_wire)
    Violation("create", "the layout has lost the wire format of \"late\"");
  const VariableLayout *const near = layout->Find(kNear), *const to = layout->Find(kNearTo);
  if (near != nullptr && to != nullptr && near->ps != std::vector<int>{to->ps[0]})
    Violation("create",
              absl::StrCat("\"near\" is on ps ", absl::StrJoin(near->ps, " "),
                           ", but the variable that it was put with is on ps ", to->ps[0]));
}

// The slots of "late" are sums of what its finished steps have used. These sums are exact in
// floats.
void Cluster::CheckSlots(const Process& ps, const ParameterServerSnapshot& seen) {
  for (const auto& [key, shard] : seen.shards) {
    const bool momentum = absl::StartsWith(shard.name, "late/Momentum/");
    if (!momentum && !absl::StartsWith(shard.name, "late/Adagrad/")) continue;
    const double wanted = momentum ? model_.late_momentum : model_.late_adagrad;
    const auto slots = *shard.value.values<float>();
    for (const float slot : slots) {
      if (slot != wanted)
        Violation("X4", absl::StrCat("ps ", ps.index, ": ", shard.name, " is ", slot,
                                     ", but its commits add up to ", wanted));
    }
  }
}

}  // namespace divvy::sim
