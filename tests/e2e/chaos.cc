#include "tests/e2e/chaos.h"

#include <signal.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "tests/e2e/process_cluster.h"
#include "tools/launch/working_directory.h"

namespace divvy {
namespace {

constexpr absl::Duration kUntilItCounts = absl::Seconds(60);  // at the latest, at the beginning and after a fault
constexpr absl::Duration kUntilItEnds = absl::Seconds(60);
constexpr absl::Duration kLongPause = absl::Milliseconds(6500);  // beyond what the coordinator hears nothing of a worker for
constexpr int kFirstRetryable = 128;

class Chaos {
 public:
  Chaos(const ChaosOptions& options, WorkingDirectory directory)
      : options_(options), directory_(std::move(directory)), stop_file_(absl::StrCat(options.directory, "/stop_", options.seed)), random_(options.seed) {}

  absl::StatusOr<ChaosResult> Run() {
    RETURN_IF_ERROR(Begin());
    const absl::Duration end = Now() + options_.time;
    while (result_.faults() < options_.faults || Now() < end) {
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
  bool Hits(TaskType type) const { return std::count(options_.roles.begin(), options_.roles.end(), type) > 0; }
  absl::Status Violation(absl::string_view what) const { return absl::InternalError(absl::StrCat(what, cluster_->processes().LastLines())); }

  absl::Status Begin() {
    ProcessClusterOptions cluster;
    cluster.program = options_.program;
    cluster.num_ps = options_.num_ps;
    cluster.num_workers = options_.num_workers;
    cluster.proxied = !options_.only_kills;
    cluster.flags = {absl::StrCat("--stop_file=", stop_file_)};
    if (Hits(TaskType::kPs) || Hits(TaskType::kChief)) {
      cluster.flags.insert(cluster.flags.end(),
                           {"--state_dir=" + directory_.state(), "--checkpoint_dir=" + directory_.checkpoints(), "--checkpoint_every=200ms", "--descents=2"});
    }
    if (options_.records > 0) cluster.flags.push_back(absl::StrCat("--records=", options_.records));
    if (!options_.durability.empty()) cluster.flags.push_back("--durability=" + options_.durability);
    cluster.flags.push_back("--max_recoveries=1000000");  // so many are no sign of a fault here
    ASSIGN_OR_RETURN(cluster_, ProcessCluster::Make(std::move(cluster)));
    RETURN_IF_ERROR(cluster_->StartAll());
    counted_at_ = Now();
    return cluster_->WaitForText(kChiefTask, "counting", kUntilItCounts).status();
  }

  // ---- while they run

  // Lets the cluster run, and starts again what asks for it.
  absl::Status RunFor(absl::Duration time) {
    const absl::Duration until = Now() + time;
    for (;;) {
      cluster_->processes().WaitUntil([this] { return AnyDown(); }, until - Now());
      RETURN_IF_ERROR(SeeToTheDead());
      RETURN_IF_ERROR(SeeToProgress());
      if (Now() >= until) return absl::OkStatus();
    }
  }

  bool HasSucceeded(TaskId task) {
    if (cluster_->running(task)) return false;
    const absl::StatusOr<ExitStatus> status = cluster_->WaitForExit(task, absl::ZeroDuration());
    return status.ok() && status->ok();
  }
  // Is to be started again, or should not have ended.
  bool IsDown(TaskId task) {
    const bool is_meant = (down_ && down_->type == task.type && down_->index == task.index) || (ending_ && HasSucceeded(task));
    return !cluster_->running(task) && !is_meant;
  }
  bool AnyDown() {
    return std::any_of(cluster_->tasks().begin(), cluster_->tasks().end(), [this](TaskId task) { return IsDown(task); });
  }

  absl::Status SeeToTheDead() {
    for (const TaskId& task : cluster_->tasks()) {
      if (!IsDown(task)) continue;
      ASSIGN_OR_RETURN(const ExitStatus status, cluster_->WaitForExit(task, absl::ZeroDuration()));
      if (status.code() < kFirstRetryable) return Violation(absl::StrCat(ToString(task), " ", status.ToString()));
      ++result_.restarts;
      if (ending_) late_.push_back(task);
      RETURN_IF_ERROR(cluster_->Start(task));
    }
    return absl::OkStatus();
  }

  // Whether the chief has told of a round of steps since this was last asked.
  bool HasCounted() {
    bool counted = false;
    const std::string& said = cluster_->output(kChiefTask);
    for (size_t at; (at = said.find("counted ", read_)) != std::string::npos; counted = true) read_ = at + 1;
    if (counted) counted_at_ = Now();
    return counted;
  }

  absl::Status SeeToProgress() {
    if (HasCounted() || Now() - counted_at_ < kUntilItCounts) return absl::OkStatus();
    return Violation(absl::StrCat("no round of steps was finished for ", absl::FormatDuration(kUntilItCounts)));
  }

  // ---- faults

  absl::Status Strike() {
    const uint64_t kind = options_.only_kills ? 0 : random_.Below(8);
    TaskId victim = Pick();
    const absl::Duration begin = Now();
    if (kind == 6) {
      RETURN_IF_ERROR(Pause(victim));
    } else if (kind == 7) {
      RETURN_IF_ERROR(Break(victim));
    } else {
      RETURN_IF_ERROR(Kill(victim));
      if (kind == 5) RETURN_IF_ERROR(Kill(victim = Pick()));  // two at once
    }
    if (victim.type == TaskType::kWorker) return absl::OkStatus();
    HasCounted();  // what was finished before
    for (const absl::Duration mark = Now(); counted_at_ <= mark;) RETURN_IF_ERROR(RunFor(absl::Milliseconds(5)));
    result_.slowest = std::max(result_.slowest, counted_at_ - begin);
    return absl::OkStatus();
  }

  // Of each role as often as of another, whatever their numbers.
  TaskId Pick() {
    const TaskType type = options_.roles[random_.Below(options_.roles.size())];
    std::vector<TaskId> tasks;
    std::copy_if(cluster_->tasks().begin(), cluster_->tasks().end(), std::back_inserter(tasks), [type](const TaskId& task) { return task.type == type; });
    return tasks[random_.Below(tasks.size())];
  }

  // One in four stays away for a moment.
  absl::Status Kill(TaskId victim) {
    RETURN_IF_ERROR(cluster_->Kill(victim));
    ++result_.kills[victim.type];
    if (!options_.only_kills && random_.Below(4) == 0) {
      down_ = victim;
      RETURN_IF_ERROR(RunFor(absl::Seconds(1) * random_.Uniform()));
      down_.reset();
    }
    return cluster_->Start(victim);
  }

  absl::Status Pause(TaskId victim) {
    ++result_.pauses;
    cluster_->Signal(victim, SIGSTOP);
    const absl::Status ran = RunFor(random_.Below(6) == 0 ? kLongPause : absl::Seconds(1) * random_.Uniform());
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

  // ---- the end

  // The chief is told that it has counted enough. What others did to it before may still end it once more.
  absl::Status End() {
    RETURN_IF_ERROR(FileSystem::Real().ReplaceFile(stop_file_, ""));
    ending_ = true;
    const absl::Duration until = Now() + kUntilItEnds;
    while (!HasSucceeded(kChiefTask)) {
      if (Now() > until) return Violation(absl::StrCat("the chief did not end within ", absl::FormatDuration(kUntilItEnds)));
      cluster_->processes().WaitUntil([this] { return AnyDown() || HasSucceeded(kChiefTask); }, absl::Seconds(1));
      if (!HasSucceeded(kChiefTask)) RETURN_IF_ERROR(SeeToTheDead());
    }
    for (const TaskId& task : late_) cluster_->Signal(task, SIGTERM);  // the chief may have gone before it heard of them
    RETURN_IF_ERROR(cluster_->WaitForAll(kUntilItEnds));
    RETURN_IF_ERROR(ReadCount());
    return FileSystem::Real().Remove(stop_file_);
  }

  absl::Status ReadCount() {
    const std::string& said = cluster_->output(kChiefTask);
    const std::string words = "counter = ";
    const size_t at = said.rfind(words), begin = at + words.size();
    if (at != std::string::npos && absl::SimpleAtoi(said.substr(begin, said.find('\n', begin) - begin), &result_.steps)) return absl::OkStatus();
    return Violation("there is no count");
  }

  const ChaosOptions& options_;
  const WorkingDirectory directory_;
  const std::string stop_file_;
  Random random_;
  std::unique_ptr<ProcessCluster> cluster_;
  std::optional<TaskId> down_;  // is not to be started again yet
  bool ending_ = false;
  std::vector<TaskId> late_;  // started again since
  size_t read_ = 0;           // of the chief's output
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
      absl::StrJoin(result.kills, ", ", [](std::string* text, const auto& kill) { absl::StrAppend(text, kill.second, " ", RoleName(kill.first)); });
  return absl::StrCat(result.all_kills(), " kills (", kills, "), ", result.pauses, " pauses, ", result.breaks, " broken connections, ", result.restarts,
                      " more restarts; the slowest recovery took ", absl::FormatDuration(absl::Trunc(result.slowest, absl::Milliseconds(1))));
}

}  // namespace divvy
