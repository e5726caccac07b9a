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

Process* Cluster::LiveWorker(int index) {
  const auto found = workers_.find(index);
  return found != workers_.end() && found->second->node->executor->alive() ? found->second
                                                                           : nullptr;
}

void Cluster::FaultOfWorker(int index, Process& worker, uint64_t kind, absl::Duration while_away) {
  const std::string address = worker.node->address;
  if (kind < 25 && config_.kill_workers) {
    Trace(absl::StrCat("fault: kills ", address));
    network_.Kill(address);
    world_.PostAfter(while_away, [this, index] {
      if (!over_ && LiveWorker(index) == nullptr) StartWorker(index, ++newest_life_[index]);
    });
  } else if (kind < 45 && config_.pause_workers) {
    Trace(absl::StrCat("fault: stops ", address));
    worker.node->executor->Pause();
    world_.PostAfter(while_away, [&worker] { worker.node->executor->Resume(); });
  } else if (kind < 55 && config_.replace_workers && !faults_stopped_) {
    Trace(absl::StrCat("fault: replaces ", address, ", which goes on as a zombie"));
    // Cut off from the coordinator alone, the worker continues with what it has.
    if (random_.Chance(0.5)) {
      network_.BreakStreams(address);
      network_.Cut(address, chief_address());
      network_.Cut(chief_address(), address);
      world_.PostAfter(while_away, [this, address, chief = chief_address()] {
        network_.Heal(address, chief), network_.Heal(chief, address);
      });
    } else {
      worker.node->executor->Pause();
      world_.PostAfter(while_away, [&worker] { worker.node->executor->Resume(); });
    }
    world_.PostAfter(while_away + absl::Seconds(3), [this, index, address] {
      network_.Kill(address);
      if (!over_ && LiveWorker(index) == nullptr) StartWorker(index, ++newest_life_[index]);
    });
    StartWorker(index, ++newest_life_[index]);
  } else if (kind < 60 && config_.drain) {
    DrainWorker(worker);
  } else if (kind < 85 && config_.cut_links) {
    const std::string other = random_.Chance(0.5)
                                  ? chief_address()
                                  : PsAddressOf(static_cast<int>(random_.Below(num_ps_)));
    const std::string from = random_.Chance(0.5) ? other : address,
                      to = from == other ? address : other;
    const bool both = random_.Chance(0.5);
    Trace(absl::StrCat("fault: cuts ", from, both ? " <-> " : " -> ", to));
    network_.Cut(from, to);
    if (both) network_.Cut(to, from);
    world_.PostAfter(while_away,
                     [this, from, to] { network_.Heal(from, to), network_.Heal(to, from); });
  } else if (kind >= 90) {
    Trace(absl::StrCat("fault: breaks the streams of ", address));
    network_.BreakStreams(address);
  }
}

// Another process that has the same address by now lives on.
void Cluster::Kill(const Process& process) {
  if (network_.Find(process.node->address) == process.node)
    return network_.Kill(process.node->address);
  process.node->executor->Kill();
}

void Cluster::FaultOfPs(absl::Duration while_away) {
  const int index = static_cast<int>(random_.Below(num_ps_));
  Process* const ps = ps_[index];
  if (!ps->node->executor->alive()) return;
  ps_killed_ = true;
  killed_ps_.insert(index);
  if (config_.drain && random_.Chance(0.4)) {
    Trace(absl::StrCat("fault: SIGTERM to ", ps->node->address));
    ps->node->executor->Post([ps] { ps->ps->Drain(); });
    world_.PostAfter(kDrainTimeout, [this, ps] {
      if (ps->node->executor->alive()) network_.Kill(ps->node->address);
    });
  } else {
    Trace(absl::StrCat("fault: kills ", ps->node->address));
    network_.Kill(ps->node->address);
  }
  if (!config_.restart_ps) return;
  if (config_.die_loading && config_.replay && random_.Chance(0.3))
    deaths_to_come_ = 1 + static_cast<int>(random_.Below(20));
  world_.PostAfter(while_away, [this, ps, index] {
    if (ps->node->executor->alive()) Kill(*ps);
    if (!over_ && index < num_ps_) StartPs(index);
  });
  if (!config_.replay || faults_stopped_ || !random_.Chance(0.3)) return;
  world_.PostAfter(while_away + absl::Milliseconds(static_cast<int64_t>(random_.Below(500))),
                   [this] {
                     // Another loss during the rewind or the replay.
                     if (!over_ && !faults_stopped_) FaultOfPs(absl::Milliseconds(300));
                   });
}

// Stands for a server that dies whenever it loads, for example because the state does not fit into
// its memory.
void Cluster::OnLoad(const Node& ps, const LoadRequest& request) {
  LookBeforeLoad(request);
  if (deaths_to_come_ == 0 || request.from == LoadRequest::From::kKeep || chief_down_ ||
      request.fence.epoch != core_->Snapshot().epoch_id)
    return;
  DieLoading(ps, request.fence.target);
}

void Cluster::DieLoading(const Node& ps, Incarnation target) {
  const auto is_it = [&ps](const auto& process) { return process->node.get() == &ps; };
  const auto found = std::find_if(processes_.begin(), processes_.end(), is_it);
  if ((*found)->incarnation != target) return;  // meant for an earlier process at this address
  if ((*found)->index >= num_ps_ || ps_[(*found)->index] != found->get()) return;
  --deaths_to_come_;
  const int times = ++died_loading_[(*found)->index];
  ++result_.died_loading;
  Trace(absl::StrCat("fault: kills ", ps.address, " while it loads"));
  ps.executor->Kill();
  world_.Post([this, victim = found->get()] { FinishKill(*victim); });
  if (times > config_.max_recoveries + 2)
    Violation("X16",
              absl::StrCat(
                  "ps ", (*found)->index, " was lost ", times,
                  " times while it loaded, more than max_recoveries allows, and the job goes on"));
}

void Cluster::PausePs(absl::Duration while_away) {
  Process* const ps = ps_[static_cast<int>(random_.Below(num_ps_))];
  if (!ps->node->executor->alive() || ps->node->executor->paused()) return;
  Trace(absl::StrCat("fault: stops ", ps->node->address));
  ps->node->executor->Pause();
  world_.PostAfter(while_away, [ps] { ps->node->executor->Resume(); });
}

// Suspends the machine with all its processes. Their clocks jump when it resumes.
void Cluster::SuspendMachine(absl::Duration while_away) {
  Trace("fault: the machine is suspended");
  for (const auto& process : processes_) {
    NodeExecutor* const executor = process->node->executor.get();
    if (!executor->alive() || executor->paused()) continue;
    executor->Pause();
    world_.PostAfter(while_away, [executor] { executor->Resume(); });
  }
}

void Cluster::CutForAWhile(const std::string& from, const std::string& to,
                           absl::Duration while_away) {
  network_.Cut(from, to);
  world_.PostAfter(while_away, [this, from, to] { network_.Heal(from, to); });
}

void Cluster::FaultOfCoordinator(absl::Duration while_away) {
  if (chief_down_ || chief_draining_) return;
  if (config_.drain && random_.Chance(0.3)) return DrainCoordinator();
  const bool zombie = config_.zombie_coordinator && random_.Chance(0.5);
  // A zombie that is not stopped runs on, but is cut off from every ps for a while.
  const bool stopped = zombie && random_.Chance(0.5);
  Trace(absl::StrCat("fault: ",
                     stopped  ? "stops "
                     : zombie ? "forgets "
                              : "kills ",
                     chief_address()));
  if (stopped) {
    Process* const chief = chief_;
    chief->node->executor->Pause();
    world_.PostAfter(while_away, [chief] { chief->node->executor->Resume(); });
  } else if (zombie) {
    for (int i = 0; i < num_ps_; ++i) CutForAWhile(chief_address(), PsAddressOf(i), while_away);
  }
  ReplaceCoordinator(absl::Milliseconds(static_cast<int64_t>(random_.Below(3'000))), zombie);
}

void Cluster::DrainCoordinator() {
  Trace(absl::StrCat("fault: SIGTERM to ", chief_address()));
  chief_draining_ = true;
  core_->Drain(Mine([this] {
    ++result_.drained;
    // A read that is being assembled is also answered.
    const absl::Duration answered = config_.slow_work ? absl::Seconds(5) : absl::Milliseconds(1);
    // A call made in the same moment has its answer by then.
    world_.PostAfter(
        answered, Mine([this] {
          if (chief_down_) return;
          if (calls_ && chief_->node->executor->alive() && !chief_->node->executor->paused())
            Violation("X16", "the coordinator has drained, and a call of the program still waits");
          ReplaceCoordinator(absl::Milliseconds(300), /*zombie=*/false);
        }));
  }));
  world_.PostAfter(kDrainTimeout, Mine([this] {
                     // The supervisor waits no longer.
                     if (!chief_down_)
                       ReplaceCoordinator(absl::Milliseconds(300), /*zombie=*/false);
                   }));
}

// Kills every process: the machine that they all run on loses power.
void Cluster::LosePower() {
  Trace("fault: the power goes");
  ++result_.power_losses;
  for (const auto& process : processes_) {
    if (process->node->executor->alive()) network_.Kill(process->node->address);
  }
  disk_.Crash();
  for (int i = 0; i < num_ps_; ++i) StartPs(i);
  for (int i = 0; i < config_.num_workers; ++i) StartWorker(i, ++newest_life_[i]);
  ReplaceCoordinator(absl::Milliseconds(static_cast<int64_t>(random_.Below(1'000))),
                     /*zombie=*/false);
}

void Cluster::FaultOfDisk() {
  constexpr FileOperation kOperations[] = {FileOperation::kOpenForWrite, FileOperation::kAppend,
                                           FileOperation::kSync, FileOperation::kRename,
                                           FileOperation::kSyncDirectory};
  FileOperation operation = kOperations[random_.Below(std::size(kOperations))];
  if (config_.reads_fail && when_.Chance(0.4))
    operation = when_.Chance(0.5) ? FileOperation::kOpenForRead : FileOperation::kRead;
  Trace(
      absl::StrCat("fault: an operation of the disk fails, of kind ", static_cast<int>(operation)));
  disk_.FailNext(operation, "checkpoints", absl::DataLossError("the disk is broken"));
}

void Cluster::DrainWorker(Process& worker) {
  Trace(absl::StrCat("fault: SIGTERM to ", worker.node->address));
  worker.node->executor->Post([core = worker.worker] { core->Drain(); });
  world_.PostAfter(kDrainTimeout, [this, &worker] {
    if (worker.exit_code || !worker.node->executor->alive()) return;
    // A lost ps holds up the drain until the coordinator ends the job for it, which takes longer.
    const bool waits_for_ps = ps_killed_ && !config_.restart_ps;
    // Before that, a commit may have waited for a disk.
    const bool had_time = faults_stopped_ && now() > config_.fault_time + absl::Seconds(5);
    if (had_time && !waits_for_ps)
      Violation("X16", absl::StrCat(worker.node->address, " did not drain"));
    Kill(worker);
    OnWorkerExit(worker);
  });
}

// An operator's mistake: starts a second process for an index that is served already.
void Cluster::StartDuplicate() {
  had_duplicate_ = true;
  if (random_.Chance(0.5)) {
    const int index = static_cast<int>(random_.Below(config_.num_workers));
    Trace(absl::StrCat("fault: starts worker ", index, " a second time"));
    StartWorker(index, ++newest_life_[index]);
  } else {
    const int index = static_cast<int>(random_.Below(num_ps_));
    Trace(absl::StrCat("fault: starts ps ", index, " a second time"));
    StartPs(index, absl::StrCat(PsAddressOf(index), "/second", ++duplicates_));
  }
}

void Cluster::Fault() {
  ++result_.faults;
  const int index = static_cast<int>(random_.Below(config_.num_workers));
  const absl::Duration while_away = absl::Milliseconds(static_cast<int64_t>(random_.Below(9'000)));
  const uint64_t kind = random_.Below(100);
  if (kind >= 85 && kind < 90) {
    const std::string ps = PsAddressOf(static_cast<int>(random_.Below(num_ps_))),
                      chief = chief_address();
    Trace(absl::StrCat("fault: cuts ", chief, " -> ", ps));
    CutForAWhile(chief, ps, while_away);
  } else if (Process* const worker = LiveWorker(index); worker != nullptr) {
    FaultOfWorker(index, *worker, kind, while_away);
  }
  const bool again = config_.replay && config_.restart_ps;
  if (config_.kill_ps && (!ps_killed_ || again) && result_.finished_steps > 20 &&
      random_.Chance(0.2))
    FaultOfPs(while_away);
  if (config_.kill_coordinator && random_.Chance(0.05)) FaultOfCoordinator(while_away);
  if (config_.duplicates && random_.Chance(0.1)) StartDuplicate();
  if (config_.pause_ps && random_.Chance(0.1)) PausePs(while_away);
  if (config_.suspend && when_.Chance(0.03)) SuspendMachine(2 * while_away);
  if (config_.disk_faults && random_.Chance(0.2)) FaultOfDisk();
  if (config_.store_faults && random_.Chance(0.1) && !chief_down_) {
    Trace("fault: the store's disk fails");
    chief_->store->Break();
  }
  if (config_.resize && random_.Chance(0.1)) FaultOfNumber();
  if (config_.power_loss && random_.Chance(0.03) && !chief_down_ && !chief_draining_) LosePower();
}

// A process reaches a failpoint, either in its own task or in a call of the program. The latter is
// the coordinator's process.
void Cluster::OnFailpoint(Failpoint point) {
  const int64_t hit = ++result_.hits[static_cast<size_t>(point)];
  if (config_.kill_at != point || config_.kill_at_hit != hit || faults_stopped_ || over_) return;
  const auto runs = [](const std::unique_ptr<Process>& process) {
    return process->node->executor->running();
  };
  const auto running = std::find_if(processes_.begin(), processes_.end(), runs);
  Process* const victim = running == processes_.end() ? chief_ : running->get();
  Trace(absl::StrCat("fault: kills ", victim->node->address, " at ", FailpointName(point)));
  ++result_.killed_at_points;
  // It sends nothing more. Its connections break when the task is over.
  victim->node->executor->Kill();
  world_.Post([this, victim] { FinishKill(*victim); });
}

void Cluster::FinishKill(Process& process) {
  Kill(process);
  if (process.worker != nullptr) return OnWorkerExit(process);
  if (process.ps == nullptr) {
    if (&process == chief_ && !chief_down_)
      return ReplaceCoordinator(absl::Milliseconds(300), /*zombie=*/false);
    return process.chief->Abandon();  // a zombie
  }
  ps_killed_ = true;
  killed_ps_.insert(process.index);
  world_.PostAfter(absl::Seconds(1), [this, index = process.index] {
    if (!over_ && index < num_ps_ && !ps_[index]->node->executor->alive()) StartPs(index);
  });
}

void Cluster::MaybeFault() {
  if (over_ || faults_stopped_ || !result_.violation.ok()) return;
  if (now() > config_.fault_time) return StopFaults();
  if (random_.Chance(config_.fault_rate)) {
    const absl::Duration later = config_.off_grid
                                     ? absl::Microseconds(static_cast<int64_t>(when_.Below(10'000)))
                                     : absl::ZeroDuration();
    world_.PostAfter(later, [this] {
      if (!over_ && !faults_stopped_ && result_.violation.ok()) Fault();
    });
  }
  world_.PostAfter(absl::Milliseconds(10), [this] { MaybeFault(); });
}

void Cluster::StopFaults() {
  faults_stopped_ = true;
  deaths_to_come_ = 0;
  Trace("faults stop");
  network_.HealAll();
  network_.set_rates(FaultRates());
  disk_.FailNothingMore();
  // Of two processes with one index, the coordinator may count on either.
  const std::vector<Incarnation> serving = core_->Inspect().ps;
  for (const auto& process : processes_) {
    if (process->node->executor->paused()) process->node->executor->Resume();
    const bool serves = std::count(serving.begin(), serving.end(), process->incarnation) > 0;
    const bool zombie =
        (process->worker != nullptr && workers_[process->index] != process.get()) ||
        (process->ps != nullptr && ps_[process->index] != process.get() && !serves) ||
        (process->chief != nullptr && (chief_ != process.get() || chief_down_));
    if (!zombie || !process->node->executor->alive()) continue;
    network_.Kill(process->node->address);
    if (process->chief != nullptr) process->chief->Abandon();
  }
  // The workers of a job whose store is lost refuse the new job. If all workers refused it, the
  // coordinator would end and say so. A liar that serves it keeps it from ending, so the operator
  // starts the workers that the live line names.
  const bool operator_acts = config_.liar && lost_store_;
  for (int i = 0; i < config_.num_workers; ++i) {
    if (operator_acts && LiveWorker(i) != nullptr) network_.Kill(workers_[i]->node->address);
    if (LiveWorker(i) == nullptr) StartWorker(i, ++newest_life_[i]);
  }
}

}  // namespace divvy::sim
