// The simulated disk as one process sees it. A dead process writes nothing.
#ifndef DIVVY_TESTS_SIM_SIM_FILES_H_
#define DIVVY_TESTS_SIM_SIM_FILES_H_

#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "tests/sim/sim_network.h"

namespace divvy::sim {

// A process that is killed at a failpoint (base/failpoint.h) cannot be stopped before its current
// task ends. From the kill on, its operations on the disk fail with Unavailable and change nothing.
// The cores do not see the moments between two operations of a checkpoint, so those are failpoints
// of this class. Not thread-safe.
class ProcessFiles : public FileSystem {
 public:
  enum class Of { kPs, kCoordinator };
  ProcessFiles(FileSystem& disk, std::shared_ptr<NodeExecutor> process, Of of)
      : disk_(disk), process_(std::move(process)), of_(of) {}

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenRandomAccess(
      const std::string& name) override {
    return disk_.OpenRandomAccess(name);
  }
  absl::StatusOr<std::unique_ptr<SequentialFile>> OpenSequential(const std::string& name) override {
    return disk_.OpenSequential(name);
  }
  absl::StatusOr<FileInfo> Stat(const std::string& name) override { return disk_.Stat(name); }
  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& directory) override {
    return disk_.ListDirectory(directory);
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForWrite(const std::string& name,
                                                             WriteMode mode) override;
  absl::Status CreateDirectory(const std::string& directory) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& name) override;
  absl::Status SyncDirectory(const std::string& directory) override;

 private:
  FileSystem& disk_;
  const std::shared_ptr<NodeExecutor> process_;
  const Of of_;
};

}  // namespace divvy::sim

#endif  // DIVVY_TESTS_SIM_SIM_FILES_H_
