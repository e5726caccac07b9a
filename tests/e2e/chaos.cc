#include "tests/e2e/chaos.h"

#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "tests/e2e/process_cluster.h"

namespace divvy {
namespace {

constexpr absl::Duration kUntilItCounts = absl::Seconds(60), kUntilItEnds = absl::Seconds(60);

class Chaos {
 public:
  explicit Chaos(const ChaosOptions& options) : options_(options), stop_file_(absl::StrCat(options.directory, "/stop_", options.seed)), random_(options.seed) {}

  absl::StatusOr<ChaosResult> Run() {
    RETURN_IF_ERROR(Begin());
    const absl::Duration end = Clock::Real().Elapsed() + options_.time;
    while (result_.kills < options_.kills || Clock::Real().Elapsed() < end) RETURN_IF_ERROR(KillOne());
    RETURN_IF_ERROR(End());
    return result_;
  }

 private:
  absl::Status Begin() {
    ProcessClusterOptions cluster;
    cluster.program = options_.program;
    cluster.num_ps = options_.num_ps;
    cluster.num_workers = options_.num_workers;
    cluster.flags = {absl::StrCat("--stop_file=", stop_file_)};
    ASSIGN_OR_RETURN(cluster_, ProcessCluster::Make(std::move(cluster)));
    RETURN_IF_ERROR(cluster_->StartAll());
    return cluster_->WaitForText(kChiefTask, "counting", kUntilItCounts).status();
  }

  // Lets the cluster run for a moment, then one worker dies and is started again.
  absl::Status KillOne() {
    cluster_->processes().RunFor(options_.pause * random_.Uniform());
    for (const TaskId& task : cluster_->tasks()) {
      if (!cluster_->running(task)) return absl::InternalError(absl::StrCat(ToString(task), " ended by itself", cluster_->processes().LastLines()));
    }
    const TaskId victim = WorkerTask(static_cast<int>(random_.Below(static_cast<uint64_t>(options_.num_workers))));
    RETURN_IF_ERROR(cluster_->Kill(victim));
    ++result_.kills;
    if (options_.on_kill) options_.on_kill(result_.kills);
    return cluster_->Start(victim);
  }

  absl::Status End() {
    RETURN_IF_ERROR(FileSystem::Real().ReplaceFile(stop_file_, ""));
    ASSIGN_OR_RETURN(const std::string line, cluster_->WaitForText(kChiefTask, "counter = ", kUntilItEnds));
    if (!absl::SimpleAtoi(line.substr(line.rfind(' ') + 1), &result_.steps)) return absl::InternalError(absl::StrCat("not a count: ", line));
    ASSIGN_OR_RETURN(const ExitStatus status, cluster_->WaitForExit(kChiefTask, kUntilItEnds));
    if (!status.ok()) return absl::InternalError(absl::StrCat("the chief ", status.ToString(), cluster_->processes().LastLines()));
    RETURN_IF_ERROR(cluster_->WaitForAll(kUntilItEnds));
    return FileSystem::Real().Remove(stop_file_);
  }

  const ChaosOptions& options_;
  const std::string stop_file_;
  Random random_;
  std::unique_ptr<ProcessCluster> cluster_;
  ChaosResult result_;
};

}  // namespace

absl::StatusOr<ChaosResult> RunChaos(const ChaosOptions& options) { return Chaos(options).Run(); }

}  // namespace divvy
