#include "tools/ctl/state.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/remove_tree.h"
#include "base/status_macros.h"
#include "base/status_message.h"
#include "coordinator/store/sqlite_store.h"

namespace divvy {
namespace {

// More epochs than a job can have begun since the newest one in its store, and little compared with
// kGreatestEpoch.
constexpr uint64_t kFarAbove = uint64_t{1} << 20;

// The greatest valid epoch in the rows, without the job's own.
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
    case JobRow::State::kRunning: return "running, or waiting to be started again";
    case JobRow::State::kComplete: return "complete";
    case JobRow::State::kFailed: return "ended with an error";
  }
  return "";
}

std::string Described(const StoredJob& job) {
  std::string text = absl::StrCat("job ", absl::Hex(job.job.job.value(), absl::kZeroPad16), ": ",
                                  NameOf(job.job.state), "\nepoch ", job.job.epoch.value(),
                                  ", lineage ", job.job.lineage.value(), "\n", job.variables.size(),
                                  " variables, ", job.checkpoints.size(), " checkpoints\n");
  for (const CheckpointRow& row : job.checkpoints) {
    absl::StrAppend(&text, "  ckpt-", row.id.epoch.value(), "-", row.id.serial,
                    row.state == CheckpointRow::State::kCommitted ? "" : " (not complete)", ": ",
                    row.finished_steps, " steps\n");
  }
  for (const std::string& line : RepairOf(job).said)
    absl::StrAppend(&text, "to be repaired by `divvyctl state repair`: ", line, "\n");
  return text;
}

std::string FileIn(const std::string& directory) { return directory + "/divvy.db"; }

absl::StatusOr<std::string> ReadDatabase(FileSystem& files, const std::string& directory) {
  absl::StatusOr<std::string> bytes = files.ReadFile(FileIn(directory));
  if (absl::IsNotFound(bytes.status()))
    return absl::NotFoundError(
        absl::StrCat(directory, " has no divvy.db: give the coordinator's --state_dir"));
  return bytes;
}

// A new directory under TMPDIR, which the destructor removes.
class Scratch {
 public:
  explicit Scratch(FileSystem& files)
      : path_(absl::StrCat(TemporaryDirectory(), "/divvy-state-",
                           absl::Hex(EntropySeed(), absl::kZeroPad16))) {
    made_ = files.CreateDirectory(path_);
  }
  ~Scratch() {
    if (made_.ok()) RemoveTree(path_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const absl::Status& made() const { return made_; }
  const std::string& path() const { return path_; }

 private:
  static std::string TemporaryDirectory() {
    const char* const given = std::getenv("TMPDIR");
    return given == nullptr || *given == 0 ? "/tmp" : given;
  }

  const std::string path_;
  absl::Status made_;
};

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
    repair.said.push_back(absl::StrCat("epoch ", job.job.epoch.value(),
                                       " is not valid: it becomes ", row.epoch.value()));
  }
  if (!CanBe(row.lineage)) {
    row.lineage = Epoch();
    repair.said.push_back(absl::StrCat(
        "lineage ", job.job.lineage.value(),
        " is not valid: it is removed, and the job continues from its newest checkpoint"));
  }
  for (const CheckpointRow& checkpoint : job.checkpoints) {
    if (CanBe(checkpoint.id.epoch)) continue;
    repair.change.deleted_checkpoints.push_back(checkpoint.id);
    repair.said.push_back(absl::StrCat("the row of ckpt-", checkpoint.id.epoch.value(), "-",
                                       checkpoint.id.serial, " is not valid: it is removed"));
  }
  if (!repair.said.empty()) repair.change.job = row;
  return repair;
}

// Opening a store may change it: a file of an older version is upgraded. So a copy is opened.
// divvy.db alone is a complete copy.
absl::StatusOr<std::string> DescribeState(FileSystem& files, const std::string& directory) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadDatabase(files, directory));
  const Scratch scratch(files);
  RETURN_IF_ERROR(scratch.made());
  RETURN_IF_ERROR(files.ReplaceFile(FileIn(scratch.path()), bytes));
  ThreadPoolExecutor executor(1);
  const auto describe = [&]() -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(const std::unique_ptr<Store> store,
                     SqliteStore::Open(scratch.path(), executor));
    ASSIGN_OR_RETURN(const StoredJob job, store->Load());
    return Described(job);
  };
  absl::StatusOr<std::string> described = describe();
  if (described.ok()) return described;
  return WithMessage(described.status(), absl::StrReplaceAll(described.status().message(),
                                                             {{scratch.path(), directory}}));
}

absl::StatusOr<std::string> RepairState(FileSystem& files, const std::string& directory) {
  // The bytes before the store is opened, which upgrades a file of an older version.
  ASSIGN_OR_RETURN(const std::string before, ReadDatabase(files, directory));
  ThreadPoolExecutor executor(1);
  ASSIGN_OR_RETURN(const std::unique_ptr<Store> store, SqliteStore::Open(directory, executor));
  ASSIGN_OR_RETURN(const StoredJob job, store->Load());
  StateRepair repair = RepairOf(job);
  if (repair.said.empty()) return "there is nothing to repair\n";
  RETURN_IF_ERROR(files.ReplaceFile(FileIn(directory) + ".before-repair", before));
  RETURN_IF_ERROR(PutAndWait(*store, std::move(repair.change)));
  return absl::StrCat(absl::StrJoin(repair.said, "\n"), "\n");
}

}  // namespace divvy
