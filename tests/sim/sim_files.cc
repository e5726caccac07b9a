#include "tests/sim/sim_files.h"

#include <utility>

#include "absl/strings/match.h"
#include "base/failpoint.h"
#include "base/status_macros.h"

namespace divvy::sim {
namespace {

absl::Status CheckAlive(const NodeExecutor& process) {
  return process.alive() ? absl::OkStatus() : absl::UnavailableError("the process is dead");
}

class ProcessFile : public WritableFile {
 public:
  ProcessFile(std::unique_ptr<WritableFile> file, std::shared_ptr<NodeExecutor> process)
      : file_(std::move(file)), process_(std::move(process)) {}
  absl::Status Append(absl::string_view bytes) override {
    RETURN_IF_ERROR(CheckAlive(*process_));
    return file_->Append(bytes);
  }
  absl::Status Sync() override {
    RETURN_IF_ERROR(CheckAlive(*process_));
    return file_->Sync();
  }
  absl::Status Close() override { return file_->Close(); }

 private:
  const std::unique_ptr<WritableFile> file_;
  const std::shared_ptr<NodeExecutor> process_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WritableFile>> ProcessFiles::OpenForWrite(const std::string& name,
                                                                         WriteMode mode) {
  RETURN_IF_ERROR(CheckAlive(*process_));
  ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, disk_.OpenForWrite(name, mode));
  return std::unique_ptr<WritableFile>(std::make_unique<ProcessFile>(std::move(file), process_));
}

absl::Status ProcessFiles::CreateDirectory(const std::string& directory) {
  RETURN_IF_ERROR(CheckAlive(*process_));
  return disk_.CreateDirectory(directory);
}

absl::Status ProcessFiles::Rename(const std::string& from, const std::string& to) {
  if (of_ == Of::kCoordinator && absl::EndsWith(to, ".index"))
    HitFailpoint(Failpoint::kIndexBeforeRename);
  RETURN_IF_ERROR(CheckAlive(*process_));
  return disk_.Rename(from, to);
}

absl::Status ProcessFiles::Remove(const std::string& name) {
  if (of_ == Of::kCoordinator && absl::StrContains(name, ".data-"))
    HitFailpoint(Failpoint::kCollectMidRemove);
  RETURN_IF_ERROR(CheckAlive(*process_));
  return disk_.Remove(name);
}

absl::Status ProcessFiles::SyncDirectory(const std::string& directory) {
  if (of_ == Of::kPs) HitFailpoint(Failpoint::kSnapshotBeforeDirSync);
  RETURN_IF_ERROR(CheckAlive(*process_));
  return disk_.SyncDirectory(directory);
}

}  // namespace divvy::sim
