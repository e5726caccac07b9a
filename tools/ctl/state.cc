#include "tools/ctl/state.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "coordinator/store/sqlite_store.h"

namespace divvy {
namespace {

// More than a job can have begun since the newest epoch that its store names, and little beside kGreatestEpoch.
constexpr uint64_t kFarAbove = uint64_t{1} << 20;

// Of the epochs that can be; the job's own left out.
Epoch GreatestNamed(const StoredJob& job) {
  Epoch greatest;
  const auto consider = [&greatest](Epoch epoch) {
    if (CanBe(epoch)) greatest = std::max(greatest, epoch);
  };
  consider(job.job.lineage);
  if (job.state) consider(job.state->state.lineage);
  for (const CheckpointRow& row : job.checkpoints) consider(row.id.epoch);
  return greatest;
}

const char* NameOf(JobRow::State state) {
  switch (state) {
    case JobRow::State::kNew: return "not begun";
    case JobRow::State::kRunning: return "running, or to be started again";
    case JobRow::State::kComplete: return "complete";
    case JobRow::State::kFailed: return "ended with an error";
  }
  return "";
}

std::string Described(const StoredJob& job) {
  std::string text = absl::StrCat("job ", absl::Hex(job.job.job.value(), absl::kZeroPad16), ": ", NameOf(job.job.state), "\nepoch ", job.job.epoch.value(),
                                  ", lineage ", job.job.lineage.value(), "\n", job.variables.size(), " variables, ", job.checkpoints.size(), " checkpoints\n");
  for (const CheckpointRow& row : job.checkpoints) {
    absl::StrAppend(&text, "  ckpt-", row.id.epoch.value(), "-", row.id.serial, row.state == CheckpointRow::State::kCommitted ? "" : " (not whole)", ": ",
                    row.finished_steps, " steps\n");
  }
  for (const std::string& line : RepairOf(job).said) absl::StrAppend(&text, "to be mended by `divvyctl state repair`: ", line, "\n");
  return text;
}

std::string FileIn(const std::string& directory) { return directory + "/divvy.db"; }

absl::StatusOr<std::unique_ptr<Store>> OpenStore(FileSystem& files, const std::string& directory, Executor& executor) {
  const absl::StatusOr<FileInfo> file = files.Stat(FileIn(directory));
  if (absl::IsNotFound(file.status())) return absl::NotFoundError(absl::StrCat(directory, ": there is no divvy.db: give the coordinator's --state_dir"));
  RETURN_IF_ERROR(file.status());
  return SqliteStore::Open(directory, executor);
}

absl::Status PutAndWait(Store& store, StoreChange change) {
  Mutex mu;
  CondVar came;
  std::optional<absl::Status> done;
  store.Put(std::move(change), [&](absl::Status status) {
    MutexLock lock(mu);
    done = std::move(status);
    came.NotifyAll();
  });
  MutexLock lock(mu);
  came.Wait(mu, [&done] { return done.has_value(); });
  return *done;
}

}  // namespace

StateRepair RepairOf(const StoredJob& job) {
  StateRepair repair;
  if (job.job.state == JobRow::State::kNew) return repair;
  JobRow row = job.job;
  const Epoch named = GreatestNamed(job);
  if (!CanBe(row.epoch) || row.epoch < named) {
    row.epoch = Epoch(std::min(named.value() + kFarAbove, kGreatestEpoch.value() - 1));
    repair.said.push_back(absl::StrCat("epoch ", job.job.epoch.value(), " cannot be: it becomes ", row.epoch.value()));
  }
  if (!CanBe(row.lineage)) {
    row.lineage = Epoch();
    repair.said.push_back(absl::StrCat("lineage ", job.job.lineage.value(), " cannot be: it becomes none, and the job goes on from its newest checkpoint"));
  }
  for (const CheckpointRow& checkpoint : job.checkpoints) {
    if (CanBe(checkpoint.id.epoch)) continue;
    repair.change.deleted_checkpoints.push_back(checkpoint.id);
    repair.said.push_back(absl::StrCat("the row of ckpt-", checkpoint.id.epoch.value(), "-", checkpoint.id.serial, " cannot be: it goes"));
  }
  if (!repair.said.empty()) repair.change.job = row;
  return repair;
}

absl::StatusOr<std::string> DescribeState(FileSystem& files, const std::string& directory) {
  ThreadPoolExecutor executor(1);
  ASSIGN_OR_RETURN(const std::unique_ptr<Store> store, OpenStore(files, directory, executor));
  ASSIGN_OR_RETURN(const StoredJob job, store->Load());
  return Described(job);
}

absl::StatusOr<std::string> RepairState(FileSystem& files, const std::string& directory) {
  ThreadPoolExecutor executor(1);
  ASSIGN_OR_RETURN(const std::unique_ptr<Store> store, OpenStore(files, directory, executor));
  ASSIGN_OR_RETURN(const StoredJob job, store->Load());
  StateRepair repair = RepairOf(job);
  if (repair.said.empty()) return "there is nothing to mend\n";
  // Each change is in divvy.db itself when it is told to be done, so the file alone is a whole copy.
  ASSIGN_OR_RETURN(const std::string before, files.ReadFile(FileIn(directory)));
  RETURN_IF_ERROR(files.ReplaceFile(FileIn(directory) + ".before-repair", before));
  RETURN_IF_ERROR(PutAndWait(*store, std::move(repair.change)));
  return absl::StrCat(absl::StrJoin(repair.said, "\n"), "\n");
}

}  // namespace divvy
