// A file system in memory, for tests: fast, and with faults and crashes on demand.
//
//   InMemoryFileSystem files;
//   files.FailNext(FileOperation::kSync, "table", absl::DataLossError("the disk died"));
//   EXPECT_THAT(WriteTable(files, "/data/table"), ...);
//   files.Crash();  // drops everything that was not synced
#ifndef DIVVY_BASE_TESTING_IN_MEMORY_FILE_SYSTEM_H_
#define DIVVY_BASE_TESTING_IN_MEMORY_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"

namespace divvy {

enum class FileOperation {
  kOpenForRead,
  kOpenForWrite,
  kRead,
  kAppend,
  kSync,
  kRename,
  kRemove,
  kList,
  kStat,
  kCreateDirectory,
  kSyncDirectory
};

// Keeps the contract of FileSystem, including crashes. "/" and the working directory exist from the
// start. It has no links, and does not resolve "..". Thread-safe. As in an operating system, a
// handle stays usable after its file was removed or replaced.
class InMemoryFileSystem : public FileSystem {
 public:
  InMemoryFileSystem();

  // ---- Faults.

  // The next `times` operations of this kind on names that contain `part` do nothing and return
  // `error`. If several faults match an operation, the oldest one is used.
  void FailNext(FileOperation operation, std::string part, absl::Status error, int times = 1);
  // Removes the faults that have not occurred yet.
  void FailNothingMore();
  // Limits the space: from now on an Append that needs more than the remaining bytes writes as many
  // as fit, and returns ResourceExhausted.
  void SetFreeBytes(uint64_t bytes);
  // Inverts one bit of the file's content. NotFound: there is no such file. OutOfRange: the file
  // has no such byte.
  absl::Status FlipBit(const std::string& name, uint64_t byte, int bit);
  // Emulates a loss of power and a restart: each file keeps the content of its last Sync, and each
  // directory the names of its last SyncDirectory. Open handles for writing fail afterwards.
  void Crash();

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenRandomAccess(
      const std::string& name) override;
  absl::StatusOr<std::unique_ptr<SequentialFile>> OpenSequential(const std::string& name) override;
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForWrite(const std::string& name,
                                                             WriteMode mode) override;
  absl::StatusOr<FileInfo> Stat(const std::string& name) override;
  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& directory) override;
  absl::Status CreateDirectory(const std::string& directory) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& name) override;
  absl::Status SyncDirectory(const std::string& directory) override;

 private:
  struct State;
  class Reader;
  class Stream;
  class Writer;
  absl::StatusOr<std::unique_ptr<Reader>> OpenReader(const std::string& name);

  const std::shared_ptr<State> state_;  // shared with the handles
};

}  // namespace divvy

#endif  // DIVVY_BASE_TESTING_IN_MEMORY_FILE_SYSTEM_H_
