// Files enter here and nowhere else: what takes a FileSystem& can be tried on a disk that is full,
// slow to sync, or broken (base/testing/in_memory_file_system.h).
//
// Names are POSIX paths, absolute or relative to the working directory.
//
// What survives a crash: bytes once Sync of their handle has returned OK, and a name (made, renamed
// or removed) once SyncDirectory of its folder has. So a file appears whole or not at all if it is
// written under another name, synced, renamed, and its folder synced: ReplaceFile does that.
#ifndef DIVVY_BASE_FILE_SYSTEM_H_
#define DIVVY_BASE_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace divvy {

// Bytes at any place of a file. Thread-safe. Blocks. The file system may go away before its handles
// do.
class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;
  // Reads the bytes from `offset` on into `out`; returns how many. Fewer than asked for only at the
  // end of the file, 0 behind it.
  virtual absl::StatusOr<size_t> ReadAt(uint64_t offset, absl::Span<char> out) const = 0;
};

// The bytes of a file from its beginning on. Not thread-safe. Blocks.
class SequentialFile {
 public:
  virtual ~SequentialFile() = default;
  // Reads the next bytes into `out`; returns how many. Fewer than asked for only at the end of the
  // file.
  virtual absl::StatusOr<size_t> Read(absl::Span<char> out) = 0;
};

// Bytes added at the end of a file. Not thread-safe. Blocks.
//
// After an error what the file holds is not known, and every later call returns that error: a
// failed sync may have dropped what it was to write, and a second one would report success. Give
// the file up and write another.
class WritableFile {
 public:
  // Closes; what was not synced may be lost, and errors go unseen: call Close.
  virtual ~WritableFile() = default;
  virtual absl::Status Append(absl::string_view bytes) = 0;
  // Returns when all that was appended is on the disk.
  virtual absl::Status Sync() = 0;
  // Ends writing; does not sync. A second call does nothing; Append and Sync after it are
  // FailedPrecondition.
  virtual absl::Status Close() = 0;
};

enum class WriteMode {
  kReplace,    // what was there is gone
  kAppend,     // goes on behind what is there
  kCreateNew,  // AlreadyExists if anything is there
};

struct FileInfo {
  uint64_t size_bytes = 0;  // 0 of a directory
  bool is_directory = false;
};

// Thread-safe. Every method blocks. Errors name the operation and the file:
//   NotFound            no such file, or no such folder to make one in
//   AlreadyExists       kCreateNew, and it exists
//   PermissionDenied    the operating system refuses
//   FailedPrecondition  a directory where a file is needed, or the reverse; a directory that is not
//   empty; of the machine's files: a pipe, device or socket
//                       (but OpenSequential and OpenForWrite take them), and to write: a link
//   InvalidArgument     Rename of a directory to a name below itself
//   ResourceExhausted   no space, or too many open files
//   DataLoss            the device failed (EIO)
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // The machine's files; never destroyed.
  static FileSystem& Real();

  virtual absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenRandomAccess(
      const std::string& name) = 0;
  virtual absl::StatusOr<std::unique_ptr<SequentialFile>> OpenSequential(
      const std::string& name) = 0;
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> OpenForWrite(const std::string& name,
                                                                     WriteMode mode) = 0;

  // What `name` is; NotFound if it is nothing.
  virtual absl::StatusOr<FileInfo> Stat(const std::string& name) = 0;
  // The names in `directory` (without it; neither "." nor ".."), sorted.
  virtual absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& directory) = 0;
  // Makes `directory` and those above it that are missing. OK if it is there.
  virtual absl::Status CreateDirectory(const std::string& directory) = 0;
  // At once and whole: at any moment `to` is the file it was or the one that `from` was.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // Removes a file or an empty directory.
  virtual absl::Status Remove(const std::string& name) = 0;
  virtual absl::Status SyncDirectory(const std::string& directory) = 0;

  // ---- Written with the above.

  // All bytes of a file. ResourceExhausted: more than 2 GiB.
  absl::StatusOr<std::string> ReadFile(const std::string& name);
  // As CreateDirectory, and what was missing survives a crash: each new name is synced in the
  // folder that it stands in.
  absl::Status CreateDurableDirectory(const std::string& directory);
  // Makes `bytes` the content of `name`: after a crash it holds them, or what it held before.
  // Writes `name`.tmp first, a new file always; two calls for one name must not overlap.
  absl::Status ReplaceFile(const std::string& name, absl::string_view bytes);
};

}  // namespace divvy

#endif  // DIVVY_BASE_FILE_SYSTEM_H_
