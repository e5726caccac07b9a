#include "tests/e2e/chaos.h"

#include <signal.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/file_system.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "tests/e2e/hostile_peers.h"
#include "tests/e2e/process_cluster.h"
#include "tools/launch/working_directory.h"

namespace divvy {
namespace {

// How long the first round of steps, or one after a fault, may take.
constexpr absl::Duration kUntilItCounts = absl::Seconds(60);
// With --keys the program counts on until a pass of eviction has come to a row that is 0.
constexpr absl::Duration kUntilItEnds = absl::Minutes(3);
// Longer than the coordinator waits for a silent worker.
constexpr absl::Duration kLongPause = absl::Milliseconds(6500);
// How long the job may take to notice that a disk is full, or has room again.
constexpr absl::Duration kUntilItNotices = absl::Seconds(30);
constexpr absl::Duration kBetweenKills = absl::Milliseconds(300);
// Less than a ps writes for a checkpoint: two counters of 64 x 8 bytes.
constexpr uint64_t kLeastOfAPs = 1000;
// The largest number of kills before the cluster gets time to recover.
constexpr int kMostAtOnce = 4;

class Chaos {
 public:
  Chaos(const ChaosOptions& options, WorkingDirectory directory)
      : options_(options),
        directory_(std::move(directory)),
        stop_file_(absl::StrCat(options.directory, "/stop_", options.seed)),
        random_(options.seed) {}

  absl::StatusOr<ChaosResult> Run() {
    RETURN_IF_ERROR(Begin());
    const absl::Duration end = Now() + options_.time;
    while (Now() < end && IsLess(result_.faults(), options_.faults) &&
           IsLess(result_.all_kills(), options_.kills)) {
      RETURN_IF_ERROR(RunFor(options_.pause * random_.Uniform()));
      RETURN_IF_ERROR(Strike());
      options_.on_fault(result_);
    }
    RETURN_IF_ERROR(End());
    directory_.Remove();
    return result_;
  }

 private:
  static absl::Duration Now() { return Clock::Real().Elapsed(); }
  static bool IsLess(int number, int limit) { return limit == 0 || number < limit; }
  bool Hits(Role role) const {
    return std::count(options_.roles.begin(), options_.roles.end(), role) > 0;
  }
  bool HasCheckpoints() const { return Hits(Role::kPs) || Hits(Role::kChief); }
  absl::Status Violation(absl::string_view what) const {
    return absl::InternalError(absl::StrCat(what, " (its directory is kept: ", directory_.path(),
                                            ")", cluster_->processes().LastLines()));
  }

  absl::Status Begin() {
    FileSystem::Real().Remove(stop_file_).IgnoreError();  // left by a run that failed
    ProcessClusterOptions cluster;
    cluster.program = options_.program;
    cluster.num_ps = options_.num_ps;
    cluster.num_workers = options_.num_workers + (options_.liar ? 1 : 0);
    cluster.proxied = !options_.only_kills;
    cluster.flags = {absl::StrCat("--stop_file=", stop_file_), "--round=100",
                     absl::StrCat("--counters=", 2 * options_.num_ps)};
    // A counter is large enough for shared memory, and for a commit that is computed from its
    // messages. Steps that read it borrow the servers' memory.
    cluster.flags.insert(cluster.flags.end(), {"--elements=40000", "--reads"});
    if (HasCheckpoints()) {
      cluster.flags.insert(cluster.flags.end(), {"--state_dir=" + directory_.state(),
                                                 "--checkpoint_dir=" + directory_.checkpoints(),
                                                 "--checkpoint_every=200ms", "--descents=2"});
    }
    if (options_.records > 0) cluster.flags.push_back(absl::StrCat("--records=", options_.records));
    if (!options_.durability.empty())
      cluster.flags.push_back("--durability=" + options_.durability);
    if (!options_.gpus.empty())
      cluster.flags.insert(cluster.flags.end(), {"--gpus=" + options_.gpus, "--on_gpus"});
    cluster.flags.push_back("--max_recoveries=1000000");  // many recoveries are no fault here
    if (options_.changes) cluster.flags.push_back("--changes");
    if (options_.keys) cluster.flags.push_back("--keys");
    if (options_.liar)
      cluster.flags.push_back(absl::StrCat("--min_workers=", options_.num_workers));
    ASSIGN_OR_RETURN(cluster_, ProcessCluster::Make(std::move(cluster)));
    if (options_.tls) RETURN_IF_ERROR(MakeCertificates());
    for (const TaskId& task : cluster_->tasks()) {
      if (!IsLiar(task)) tasks_.push_back(task);
    }
    if (options_.liar) RETURN_IF_ERROR(StartLiar());
    for (const TaskId& task : tasks_) RETURN_IF_ERROR(Start(task));
    RETURN_IF_ERROR(cluster_->WaitForText(kChiefTask, "counting", kUntilItCounts).status());
    counted_at_ = Now();
    return absl::OkStatus();
  }

  absl::Status Start(TaskId task) {
    began_[ToString(task)] = Now();
    std::vector<std::string> flags = TlsFlags(absl::StrCat(RoleName(task.role), "-", task.index));
    // Depths 1 (the default) to 3, and payloads in shared memory and on the network.
    if (task.role == Role::kWorker) {
      flags.push_back(absl::StrCat("--pipeline_depth=", 1 + task.index % 3));
      flags.push_back(task.index % 2 == 0 ? "--local_path=auto" : "--local_path=off");
    }
    return cluster_->Start(task, {std::move(flags), {}, ""});
  }

  // ---- the lying worker

  bool IsLiar(TaskId task) const {
    return options_.liar && task == WorkerTask(options_.num_workers);
  }
  absl::Status StartLiar() {
    const TaskId liar = WorkerTask(options_.num_workers);
    const std::string own = absl::StrCat(Certificates(), "/worker-", liar.index);
    ASSIGN_OR_RETURN(liar_,
                     LyingWorker::Start({own + ".pem", own + ".key", Certificates() + "/ca.pem"},
                                        options_.seed, cluster_->bind_address(liar)));
    return absl::OkStatus();
  }

  // ---- divvyctl

  std::string Certificates() const { return directory_.path() + "/certificates"; }
  std::vector<std::string> TlsFlags(const std::string& who) const {
    if (!options_.tls) return {};
    const std::string own = absl::StrCat(Certificates(), "/", who);
    return {absl::StrCat("--tls_ca=", Certificates(), "/ca.pem"),
            absl::StrCat("--tls_cert=", own, ".pem"), absl::StrCat("--tls_key=", own, ".key")};
  }

  // Starts divvyctl and returns its name among the processes.
  absl::StatusOr<std::string> Divvyctl(std::vector<std::string> words) {
    std::string name = absl::StrCat("divvyctl ", ++commands_);
    words.insert(words.begin(), options_.divvyctl);
    RETURN_IF_ERROR(cluster_->processes().Start(name, {std::move(words), {}, ChildOutput::kPipe}));
    return name;
  }

  absl::Status MakeCertificates() {
    ASSIGN_OR_RETURN(
        const std::string certs,
        Divvyctl({"certs", "--out=" + Certificates(), absl::StrCat("--ps=", options_.num_ps),
                  absl::StrCat("--workers=", options_.num_workers + (options_.liar ? 1 : 0))}));
    ASSIGN_OR_RETURN(const ExitStatus status,
                     cluster_->processes().WaitForExit(certs, kUntilItCounts));
    return status.ok() ? absl::OkStatus() : Violation("`divvyctl certs` made no certificates");
  }

  absl::StatusOr<std::string> AskForResize(int num_ps) {
    std::vector<std::string> words = TlsFlags("admin-0");
    words.insert(words.begin(), {"resize", absl::StrCat("--ps=", num_ps), "--timeout=500ms",
                                 "--addr=" + cluster_->address(kChiefTask)});
    return Divvyctl(std::move(words));
  }

  // ---- while the tasks run

  // Lets the cluster run, and restarts tasks that ask for it by their exit code.
  absl::Status RunFor(absl::Duration time) {
    return RunUntil([] { return false; }, time).status();
  }

  // The same until `done()` is true or `time` has passed. Returns whether it became true.
  absl::StatusOr<bool> RunUntil(const std::function<bool()>& done, absl::Duration time) {
    const absl::Duration until = Now() + time;
    for (;;) {
      cluster_->processes().WaitUntil([&] { return HasCounted(), AnyDown() || done(); },
                                      std::min(until - Now(), kUntilItCounts));
      RETURN_IF_ERROR(SeeToTheDead());
      RETURN_IF_ERROR(SeeToProgress());
      if (done()) return true;
      if (Now() >= until) return false;
    }
  }

  bool HasSucceeded(TaskId task) {
    if (cluster_->running(task)) return false;
    const absl::StatusOr<ExitStatus> status = cluster_->WaitForExit(task, absl::ZeroDuration());
    return status.ok() && status->ok();
  }
  // Whether the job goes on without this server. A chief that was started since waits for all tasks
  // of TF_CONFIG.
  bool IsTakenAway(TaskId task) {
    return taken_away_ == task && HasSucceeded(task) && began_[ToString(kChiefTask)] == asked_life_;
  }
  // Whether the task has ended and has to be restarted, rightly or not.
  bool IsDown(TaskId task) {
    return !cluster_->running(task) && !(down_ == task) && !IsTakenAway(task) &&
           !(ending_ && HasSucceeded(task));
  }
  bool AnyDown() {
    return std::any_of(tasks_.begin(), tasks_.end(), [this](TaskId task) { return IsDown(task); });
  }

  absl::Status SeeToTheDead() {
    for (const TaskId& task : tasks_) {
      if (!IsDown(task)) continue;
      ASSIGN_OR_RETURN(const ExitStatus status, cluster_->WaitForExit(task, absl::ZeroDuration()));
      RETURN_IF_ERROR(Explain(task, status));
      if (ending_) late_.push_back(task);
      RETURN_IF_ERROR(Start(task));
    }
    return absl::OkStatus();
  }

  // A task that was not killed may exit by itself for three reasons: the chief, because another
  // task was hit while it ran; a task without room for its files; a server that a resize has
  // removed.
  absl::Status Explain(TaskId task, ExitStatus status) {
    const bool others = status.code() == exit_codes::kTryAgain && task == kChiefTask &&
                        struck_at_ >= began_[ToString(task)];
    const bool disk = status.code() == exit_codes::kResources && full_ == task;
    // A removed server may end late.
    const bool told_to_go =
        task == PsTask(options_.num_ps - 1) && began_[ToString(task)] < resized_at_;
    const bool taken_away = status.ok() && (taken_away_ == task || told_to_go);
    if (taken_away) return absl::OkStatus();
    if (status.signal != 0 || !(others || disk))
      return Violation(
          absl::StrCat(ToString(task), " ", status.ToString(), ", and nothing explains it"));
    ++result_.ends[absl::StrCat(ToString(task), " ", status.code())];
    return absl::OkStatus();
  }

  // Whether the chief has reported a round of steps since the previous call.
  bool HasCounted() {
    const std::string& said = cluster_->output(kChiefTask);
    const size_t at = said.rfind("counted ");
    if (at == std::string::npos || (read_ && at <= *read_)) return false;
    read_ = at;
    result_.longest_gap = std::max(result_.longest_gap, Now() - std::exchange(counted_at_, Now()));
    return true;
  }

  absl::Status SeeToProgress() {
    if (HasCounted() || Now() - counted_at_ < kUntilItCounts) return absl::OkStatus();
    return Violation(
        absl::StrCat("no round of steps was finished for ", absl::FormatDuration(kUntilItCounts)));
  }

  absl::Status WaitForProgress() {
    HasCounted();  // skips the rounds so far
    const absl::Duration mark = Now();
    return RunUntil([&] { return counted_at_ > mark; }, absl::InfiniteDuration()).status();
  }

  // ---- faults

  absl::Status Strike() {
    const uint64_t kind = options_.only_kills ? 0 : random_.Below(12);
    struck_at_ = absl::InfiniteDuration();  // while the fault lasts
    if (options_.changes && random_.Below(6) == 0) {
      RETURN_IF_ERROR(Resize());
      struck_at_ = Now();
      return absl::OkStatus();
    }
    const absl::Status struck = kind < 9     ? KillSome()
                                : kind == 9  ? Pause(Pick())
                                : kind == 10 ? Break(Pick())
                                             : FillDisk(Pick());
    struck_at_ = Now();
    return struck;
  }

  // Kills several tasks, one after another, also while the cluster recovers from the kill before.
  // Then waits for the recovery.
  absl::Status KillSome() {
    int left = 1 + static_cast<int>(random_.Below(kMostAtOnce));
    if (options_.faults > 0) left = std::min(left, options_.faults - result_.faults());
    bool is_loss = false;
    while (left-- > 0) {
      const TaskId victim = Pick();
      RETURN_IF_ERROR(Kill(victim));
      is_loss |= victim.role != Role::kWorker;
      if (left > 0) RETURN_IF_ERROR(RunFor(kBetweenKills * random_.Uniform()));
    }
    return is_loss ? WaitForProgress() : absl::OkStatus();
  }

  // Picks each role with the same probability, however many tasks it has.
  TaskId Pick() {
    const Role role = options_.roles[random_.Below(options_.roles.size())];
    std::vector<TaskId> tasks;
    std::copy_if(tasks_.begin(), tasks_.end(), std::back_inserter(tasks),
                 [role](const TaskId& task) { return task.role == role; });
    return tasks[random_.Below(tasks.size())];
  }

  // One killed task in four is restarted after a pause.
  absl::Status Kill(TaskId victim) {
    ASSIGN_OR_RETURN(const ExitStatus ended, cluster_->Kill(victim));
    // It may have exited by itself a moment before.
    if (ended.signal != SIGKILL) RETURN_IF_ERROR(Explain(victim, ended));
    ++result_.kills[victim.role];
    if (!options_.only_kills && random_.Below(4) == 0) {
      down_ = victim;
      RETURN_IF_ERROR(RunFor(absl::Seconds(1) * random_.Uniform()));
      down_.reset();
    }
    return Start(victim);
  }

  // Whether divvyctl was refused because another resize has not ended yet.
  bool IsRefused(const std::string& divvyctl) {
    if (cluster_->processes().running(divvyctl)) return false;
    const absl::StatusOr<ExitStatus> status =
        cluster_->processes().WaitForExit(divvyctl, absl::ZeroDuration());
    return status.ok() && status->code() == exit_codes::kConfiguration;
  }

  absl::Status Grow() {
    const absl::Duration until = Now() + kUntilItNotices;
    for (;;) {
      ASSIGN_OR_RETURN(const std::string grow, AskForResize(options_.num_ps));
      RETURN_IF_ERROR(
          RunUntil([&] { return !cluster_->processes().running(grow); }, kUntilItNotices).status());
      if (!IsRefused(grow)) return absl::OkStatus();
      if (Now() > until) return Violation("the resize to fewer parameter servers did not end");
      RETURN_IF_ERROR(RunFor(kBetweenKills));
    }
  }

  // Removes the last server and adds it again. Half of the time another task is killed meanwhile.
  absl::Status Resize() {
    ++result_.resizes;
    const TaskId last = PsTask(options_.num_ps - 1);
    taken_away_ = last;
    asked_life_ = began_[ToString(kChiefTask)];
    ASSIGN_OR_RETURN(const std::string shrink, AskForResize(options_.num_ps - 1));
    if (random_.Below(2) == 0) {
      RETURN_IF_ERROR(RunFor(kBetweenKills * random_.Uniform()));
      const TaskId victim = Pick();
      if (!(victim == last)) RETURN_IF_ERROR(Kill(victim));
    }
    const auto is_settled = [&] {
      return IsTakenAway(last) || began_[ToString(kChiefTask)] != asked_life_ || IsRefused(shrink);
    };
    RETURN_IF_ERROR(Wait(is_settled, "a parameter server that a resize removed did not end"));
    RETURN_IF_ERROR(RunFor(kBetweenKills * random_.Uniform()));
    RETURN_IF_ERROR(Grow());
    resized_at_ = Now();
    if (!cluster_->running(last)) RETURN_IF_ERROR(Start(last));
    // On a busy machine the request to grow may come too late. Then this server is still waiting at
    // the job's end.
    late_.push_back(last);
    taken_away_.reset();
    return WaitForProgress();
  }

  absl::Status Pause(TaskId victim) {
    ++result_.pauses;
    cluster_->Signal(victim, SIGSTOP);
    const absl::Status ran =
        RunFor(random_.Below(6) == 0 ? kLongPause : absl::Seconds(1) * random_.Uniform());
    cluster_->Signal(victim, SIGCONT);
    return ran;
  }

  absl::Status Break(TaskId victim) {
    ++result_.breaks;
    FaultProxy& proxy = cluster_->proxy(victim);
    const auto direction = static_cast<FaultProxy::Direction>(random_.Below(2));
    proxy.Inject(static_cast<int>(random_.Below(FaultProxy::kNumFaults)), direction, random_);
    RETURN_IF_ERROR(RunFor(absl::Seconds(1) * random_.Uniform()));
    proxy.Heal();
    return absl::OkStatus();
  }

  // Lets a task write only a part of its next file. A worker is killed instead: no one notices a
  // worker's full disk.
  absl::Status FillDisk(TaskId victim) {
    if (victim.role == Role::kWorker || !HasCheckpoints()) return Kill(victim);
    ++result_.full_disks;
    full_ = victim;
    const size_t before = cluster_->output(kChiefTask).size();
    const absl::Duration life = began_[ToString(victim)];
    cluster_->LimitFiles(victim, random_.Below(kLeastOfAPs));
    const auto noticed = [&] {
      return cluster_->output(kChiefTask).find("could not be made", before) != std::string::npos ||
             began_[ToString(victim)] != life;
    };
    RETURN_IF_ERROR(Wait(noticed, "no failed checkpoint was reported for a full disk"));
    RETURN_IF_ERROR(RunFor(absl::Seconds(1) * random_.Uniform()));
    cluster_->LimitFiles(victim, ProcessCluster::kUnlimited);
    const std::string newest = NewestCheckpoint();
    RETURN_IF_ERROR(Wait([&] { return NewestCheckpoint() != newest; },
                         "no checkpoint was made after the disk had room again"));
    full_.reset();  // before this, the task may exit because of the full disk
    return WaitForProgress();
  }

  absl::Status Wait(const std::function<bool()>& done, absl::string_view violation) {
    ASSIGN_OR_RETURN(const bool is_done, RunUntil(done, kUntilItNotices));
    return is_done ? absl::OkStatus() : Violation(violation);
  }
  std::string NewestCheckpoint() const {
    return FileSystem::Real().ReadFile(directory_.checkpoints() + "/checkpoint").value_or("");
  }

  // ---- the end

  // Creates the file that makes the chief stop counting. Earlier faults may still end a task once
  // more.
  absl::Status End() {
    RETURN_IF_ERROR(FileSystem::Real().ReplaceFile(stop_file_, ""));
    ending_ = true;
    const absl::Duration until = Now() + kUntilItEnds;
    while (!HasSucceeded(kChiefTask)) {
      if (Now() > until)
        return Violation(
            absl::StrCat("the chief did not end within ", absl::FormatDuration(kUntilItEnds)));
      cluster_->processes().WaitUntil([this] { return AnyDown() || HasSucceeded(kChiefTask); },
                                      absl::Seconds(1));
      if (!HasSucceeded(kChiefTask)) RETURN_IF_ERROR(SeeToTheDead());
    }
    // The chief may have ended before these tasks registered.
    for (const TaskId& task : late_) cluster_->Signal(task, SIGTERM);
    RETURN_IF_ERROR(cluster_->WaitForAll(kUntilItEnds));
    for (const TaskId& task : tasks_) RETURN_IF_ERROR(CheckEnd(task));
    if (liar_ != nullptr) result_.lies = liar_->lies(), result_.given_back = liar_->given_back();
    RETURN_IF_ERROR(ReadCount());
    return FileSystem::Real().Remove(stop_file_);
  }

  absl::Status CheckEnd(TaskId task) {
    ASSIGN_OR_RETURN(const ExitStatus status, cluster_->WaitForExit(task, absl::ZeroDuration()));
    const bool was_asked = std::count(late_.begin(), late_.end(), task) > 0;
    if (status.ok() || (was_asked && status.code() == exit_codes::kDrained))
      return absl::OkStatus();
    return Violation(
        absl::StrCat(ToString(task), " ", status.ToString(), " although the job is complete"));
  }

  absl::Status ReadCount() {
    const std::string& said = cluster_->output(kChiefTask);
    const auto times = [&said](absl::string_view text) {
      return static_cast<int>(std::vector<absl::string_view>(absl::StrSplit(said, text)).size()) -
             1;
    };
    result_.adoptions = times("adopted what ");
    result_.not_adopted = times("is not adopted: ");
    if (options_.keys) {
      result_.small_rows_gone = NumberAfter(said, "gone = ").value_or(-1);
      result_.old_rows_gone = NumberAfter(said, " small, ").value_or(-1);
    }
    const std::optional<int64_t> steps = NumberAfter(said, "counter = ");
    if (!steps) return Violation("the chief printed no \"counter = N\"");
    result_.steps = *steps;
    return absl::OkStatus();
  }

  // The number that follows the last occurrence of `words`.
  static std::optional<int64_t> NumberAfter(const std::string& said, const std::string& words) {
    const size_t at = said.rfind(words), begin = at + words.size();
    if (at == std::string::npos) return std::nullopt;
    const size_t end = said.find_first_not_of("0123456789", begin);
    int64_t number = 0;
    if (!absl::SimpleAtoi(said.substr(begin, end - begin), &number)) return std::nullopt;
    return number;
  }

  const ChaosOptions& options_;
  const WorkingDirectory directory_;
  const std::string stop_file_;
  Random random_;
  std::unique_ptr<ProcessCluster> cluster_;
  std::unique_ptr<LyingWorker> liar_;                      // null: every worker is honest
  std::vector<TaskId> tasks_;                              // all but the liar
  std::map<std::string, absl::Duration> began_;            // start of the latest life of each task
  std::optional<TaskId> down_;                             // must not be restarted yet
  std::optional<TaskId> taken_away_;                       // a resize was asked to remove it,
  absl::Duration asked_life_;                              // in this life of the chief
  absl::Duration resized_at_ = -absl::InfiniteDuration();  // when the job had all servers again
  int commands_ = 0;
  std::optional<TaskId> full_;  // its disk is full
  absl::Duration struck_at_;    // the end of the latest fault
  bool ending_ = false;
  // Tasks that were restarted near the end, or after a resize. The chief may not know of them.
  std::vector<TaskId> late_;
  // The position of the latest round in the chief's output.
  std::optional<size_t> read_;
  absl::Duration counted_at_;
  ChaosResult result_;
};

}  // namespace

int ChaosResult::all_kills() const {
  int all = 0;
  for (const auto& [type, count] : kills) all += count;
  return all;
}

absl::StatusOr<ChaosResult> RunChaos(const ChaosOptions& options) {
  ASSIGN_OR_RETURN(WorkingDirectory directory, WorkingDirectory::Make());
  return Chaos(options, std::move(directory)).Run();
}

std::string ToString(const ChaosResult& result) {
  const std::string kills =
      absl::StrJoin(result.kills, ", ", [](std::string* text, const auto& kill) {
        absl::StrAppend(text, kill.second, " ", ChaosName(kill.first));
      });
  const std::string ends = absl::StrJoin(result.ends, ", ", [](std::string* text, const auto& end) {
    absl::StrAppend(text, end.first, " ", end.second, " times");
  });
  return absl::StrCat(
      result.all_kills(), " kills (", kills, "), ", result.pauses, " pauses, ", result.breaks,
      " broken connections, ", result.full_disks, " full disks, ", result.resizes, " resizes, ",
      result.adoptions, " adoptions (", result.not_adopted, " not), ", result.lies, " lies (",
      result.given_back, " steps given back); ended by themselves: ", ends.empty() ? "none" : ends,
      "; at most ", absl::FormatDuration(absl::Trunc(result.longest_gap, absl::Milliseconds(1))),
      " without a finished round of steps");
}

}  // namespace divvy
