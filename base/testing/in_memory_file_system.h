// A file system of a test: fast, forgetful and breakable.
//
//   InMemoryFileSystem files;
//   files.FailNext(FileOperation::kSync, "table", absl::DataLossError("the disk died"));
//   EXPECT_THAT(WriteTable(files, "/data/table"), ...);
//   files.Crash();                         // what was not synced is gone
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

// Keeps FileSystem's contract, crashes included. "/" and the working directory are there from the
// start; links are not known, ".." is not resolved. Thread-safe. A handle goes on after its file
// was removed or replaced, as with the operating system.
class InMemoryFileSystem : public FileSystem {
 public:
  InMemoryFileSystem();

  // ---- Faults.

  // The next `times` operations of this kind on names that contain `part` do nothing and return
  // `error`. The oldest fault that fits is taken.
  void FailNext(FileOperation operation, std::string part, absl::Status error, int times = 1);
  // Forgets those that have not come yet.
  void FailNothingMore();
  // From now on an Append that needs more than this many further bytes writes what fits and returns
  // ResourceExhausted.
  void SetFreeBytes(uint64_t bytes);
  // Inverts one bit of the file's content. NotFound: no such file. OutOfRange: it has no such byte.
  absl::Status FlipBit(const std::string& name, uint64_t byte, int bit);
  // The machine loses power and comes back: content is what Sync has seen, names are as
  // SyncDirectory has seen them. Handles for writing fail afterwards.
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
