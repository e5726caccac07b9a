// All file access goes through this interface. Code that takes a FileSystem& can be tested on a
// disk that is full, slow to sync, or broken (base/testing/in_memory_file_system.h).
//
// Names are POSIX paths, absolute or relative to the working directory.
//
// Two things survive a crash: bytes after Sync of their handle has returned OK, and a name that was
// made, renamed or removed after SyncDirectory of its folder has returned OK. So a file appears
// either whole or not at all if it is written under another name, synced, renamed, and its folder
// synced. ReplaceFile does that.
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

// Reads at any position of a file. Thread-safe. Blocks. The handle may outlive its file system.
class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;
  // Reads bytes from `offset` into `out` and returns their number. The number is less than
  // out.size() only at the end of the file, and 0 beyond it.
  virtual absl::StatusOr<size_t> ReadAt(uint64_t offset, absl::Span<char> out) const = 0;
};

// Reads a file from its beginning to its end. Not thread-safe. Blocks.
class SequentialFile {
 public:
  virtual ~SequentialFile() = default;
  // Reads the next bytes into `out` and returns their number. The number is less than out.size()
  // only at the end of the file.
  virtual absl::StatusOr<size_t> Read(absl::Span<char> out) = 0;
};

// Appends bytes to a file. Not thread-safe. Blocks.
//
// After an error the content of the file is unknown, and every later call returns that error. A
// failed sync may have dropped data, and a second sync would report success. Abandon the file and
// write another.
class WritableFile {
 public:
  // Closes the file. Unsynced data may be lost and errors are ignored; call Close to see them.
  virtual ~WritableFile() = default;
  // Adds `bytes` at the end. They survive a crash only after Sync.
  virtual absl::Status Append(absl::string_view bytes) = 0;
  // Returns when all appended bytes are on the disk.
  virtual absl::Status Sync() = 0;
  // Closes the file without syncing. A second call does nothing. Append and Sync after it return
  // FailedPrecondition.
  virtual absl::Status Close() = 0;
};

enum class WriteMode {
  // Removes the former content.
  kReplace,
  // Continues after the former content.
  kAppend,
  // AlreadyExists if the name exists.
  kCreateNew,
};

struct FileInfo {
  // 0 for a directory.
  uint64_t size_bytes = 0;
  bool is_directory = false;
};

// The files of a machine. Thread-safe. Every method blocks. Errors name the operation and the file:
//   NotFound            no such file, or no such parent directory for a new file
//   AlreadyExists       kCreateNew, and the file exists
//   PermissionDenied    the operating system refuses
//   FailedPrecondition  a directory instead of a file, or the reverse; a directory that is not
//                       empty; on the real file system also a pipe, device or socket (except for
//                       OpenSequential and OpenForWrite), and a link that is opened for writing
//   InvalidArgument     Rename of a directory to a name below itself
//   ResourceExhausted   no space, or too many open files
//   DataLoss            the device failed (EIO)
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // The file system of this machine; never destroyed.
  static FileSystem& Real();

  virtual absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenRandomAccess(
      const std::string& name) = 0;
  virtual absl::StatusOr<std::unique_ptr<SequentialFile>> OpenSequential(
      const std::string& name) = 0;
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> OpenForWrite(const std::string& name,
                                                                     WriteMode mode) = 0;

  // The type and size of `name`. NotFound: it does not exist.
  virtual absl::StatusOr<FileInfo> Stat(const std::string& name) = 0;
  // The names in `directory`, sorted, without the directory's own name, "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& directory) = 0;
  // Makes `directory` and its missing parents. OK if it exists.
  virtual absl::Status CreateDirectory(const std::string& directory) = 0;
  // Renames atomically: at every moment `to` is either its former file or the former `from`.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // Removes a file or an empty directory.
  virtual absl::Status Remove(const std::string& name) = 0;
  // Makes the names in `directory` that were made, renamed or removed survive a crash.
  virtual absl::Status SyncDirectory(const std::string& directory) = 0;

  // ---- Built from the methods above.

  // Returns all bytes of a file. ResourceExhausted: more than 2 GiB.
  absl::StatusOr<std::string> ReadFile(const std::string& name);
  // As CreateDirectory, and the new directories survive a crash: each new name is synced in its
  // parent.
  absl::Status CreateDurableDirectory(const std::string& directory);
  // Replaces the content of `name` by `bytes`. After a crash the file has either the new or the
  // former content. Writes to a new file `name`.tmp first. REQUIRES: calls for the same name do not
  // overlap.
  absl::Status ReplaceFile(const std::string& name, absl::string_view bytes);
};

}  // namespace divvy

#endif  // DIVVY_BASE_FILE_SYSTEM_H_
