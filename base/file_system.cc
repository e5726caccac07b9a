#include "base/file_system.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

// The Status for errno after a failed operation.
absl::Status SystemError(absl::string_view operation, absl::string_view name) {
  const std::string what = absl::StrCat("cannot ", operation, " ", name);
  if (errno == EIO) return absl::DataLossError(absl::StrCat(what, ": the device failed (EIO)"));
  if (errno == ELOOP)
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": it is a link; remove it, or name the file that it leads to"));
  if (errno == EFBIG)
    return absl::ResourceExhaustedError(
        absl::StrCat(what, ": the file would exceed its size limit (EFBIG; ulimit -f shows it)"));
  return absl::ErrnoToStatus(errno, what);
}

template <typename Call>
auto RetryOnSignal(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// An open file of the operating system. Move-only.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() { Close(); }
  int get() const { return fd_; }
  // On Linux the descriptor is closed even if close() was interrupted, so there is no retry.
  int Close() { return fd_ < 0 ? 0 : close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

absl::StatusOr<Descriptor> Open(const std::string& name, int flags, absl::string_view operation) {
  const int fd = RetryOnSignal([&] { return open(name.c_str(), flags | O_CLOEXEC, 0666); });
  if (fd < 0) return SystemError(operation, name);
  return Descriptor(fd);
}

// The kinds of file that OpenFile accepts.
enum class Kind : uint8_t {
  // Only a regular file or a directory. Opening or reading a pipe would wait for another process,
  // and a device may have no end.
  kFile,
  // Also a pipe or a device, for names that the user gave.
  kStream,
};

absl::Status CheckKind(const Descriptor& file, const std::string& name, Kind kind) {
  struct stat info;
  if (fstat(file.get(), &info) < 0) return SystemError("look up", name);
  // For a directory, the read fails later with an error that names it.
  if (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) return absl::OkStatus();
  if (kind == Kind::kStream) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "cannot open ", name, ": it is a pipe, a device or a socket, and must be a file"));
}

// As Open, but never waits: a pipe without a writer is opened at once.
absl::StatusOr<Descriptor> OpenFile(const std::string& name, int flags, absl::string_view operation,
                                    Kind kind) {
  ASSIGN_OR_RETURN(Descriptor file, Open(name, flags | O_NONBLOCK | O_NOCTTY, operation));
  RETURN_IF_ERROR(CheckKind(file, name, kind));
  if (fcntl(file.get(), F_SETFL, fcntl(file.get(), F_GETFL) & ~O_NONBLOCK) < 0)
    return SystemError(operation, name);
  return file;
}

// Calls `read_some(done, rest)` until `out` is full or the file ends.
template <typename ReadSome>
absl::StatusOr<size_t> ReadFully(absl::Span<char> out, absl::string_view name, ReadSome read_some) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = RetryOnSignal([&] { return read_some(done, out.subspan(done)); });
    if (got < 0) return SystemError("read", name);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

class RealRandomAccessFile : public RandomAccessFile {
 public:
  RealRandomAccessFile(std::string name, Descriptor file)
      : name_(std::move(name)), file_(std::move(file)) {}

  absl::StatusOr<size_t> ReadAt(uint64_t offset, absl::Span<char> out) const override {
    return ReadFully(out, name_, [&](size_t done, absl::Span<char> rest) {
      return pread(file_.get(), rest.data(), rest.size(), static_cast<off_t>(offset + done));
    });
  }

 private:
  const std::string name_;
  const Descriptor file_;
};

class RealSequentialFile : public SequentialFile {
 public:
  RealSequentialFile(std::string name, Descriptor file)
      : name_(std::move(name)), file_(std::move(file)) {}

  absl::StatusOr<size_t> Read(absl::Span<char> out) override {
    return ReadFully(out, name_, [&](size_t, absl::Span<char> rest) {
      return read(file_.get(), rest.data(), rest.size());
    });
  }

 private:
  const std::string name_;
  const Descriptor file_;
};

// Unbuffered, because callers write whole blocks. Bytes that Append has taken survive the process,
// though not a crash of the machine.
class RealWritableFile : public WritableFile {
 public:
  RealWritableFile(std::string name, Descriptor file)
      : name_(std::move(name)), file_(std::move(file)) {}

  absl::Status Append(absl::string_view bytes) override {
    RETURN_IF_ERROR(CheckUsable());
    while (!bytes.empty()) {
      const ssize_t written =
          RetryOnSignal([&] { return write(file_.get(), bytes.data(), bytes.size()); });
      if (written < 0) return state_ = SystemError("write", name_);
      bytes.remove_prefix(static_cast<size_t>(written));
      unsent_ += written;
    }
    StartWriteback();
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    RETURN_IF_ERROR(CheckUsable());
    if (RetryOnSignal([&] { return fdatasync(file_.get()); }) < 0)
      return state_ = SystemError("sync", name_);
    return absl::OkStatus();
  }

  absl::Status Close() override {
    closed_ = true;
    if (file_.Close() < 0 && state_.ok()) state_ = SystemError("close", name_);
    return state_;
  }

 private:
  absl::Status CheckUsable() const {
    if (state_.ok() && closed_)
      return absl::FailedPreconditionError(
          absl::StrCat(name_, " is closed: open it again to write"));
    return state_;
  }
  // The kernel writes a page to the disk only after some seconds, or when many pages wait. So the
  // disk would idle while a long file is made, and Sync would wait for all of it. An error is kept
  // by the kernel, and Sync reports it.
  void StartWriteback() {
    constexpr int64_t kAtATime = 8 << 20;
    if (unsent_ < kAtATime) return;
    unsent_ = 0;
    sync_file_range(file_.get(), 0, 0, SYNC_FILE_RANGE_WRITE);  // 0, 0: the whole file
  }

  const std::string name_;
  Descriptor file_;
  int64_t unsent_ = 0;  // bytes since the last StartWriteback that did something
  absl::Status state_;  // the first error
  bool closed_ = false;
};

int FlagsOf(WriteMode mode) {
  switch (mode) {
    case WriteMode::kReplace: return O_TRUNC;
    case WriteMode::kAppend: return O_APPEND;
    case WriteMode::kCreateNew: return O_EXCL;
  }
  return O_EXCL;
}

class RealFileSystem : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenRandomAccess(
      const std::string& name) override {
    ASSIGN_OR_RETURN(Descriptor file, OpenFile(name, O_RDONLY, "open", Kind::kFile));
    return std::make_unique<RealRandomAccessFile>(name, std::move(file));
  }

  absl::StatusOr<std::unique_ptr<SequentialFile>> OpenSequential(const std::string& name) override {
    ASSIGN_OR_RETURN(Descriptor file, Open(name, O_RDONLY, "open"));
    return std::make_unique<RealSequentialFile>(name, std::move(file));
  }

  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForWrite(const std::string& name,
                                                             WriteMode mode) override {
    // Does not follow a link. Otherwise another user who may create links in this folder could
    // choose which of our files is overwritten.
    ASSIGN_OR_RETURN(Descriptor file,
                     OpenFile(name, O_WRONLY | O_CREAT | O_NOFOLLOW | FlagsOf(mode),
                              "open for writing", Kind::kStream));
    return std::make_unique<RealWritableFile>(name, std::move(file));
  }

  absl::StatusOr<FileInfo> Stat(const std::string& name) override {
    struct stat info;
    if (stat(name.c_str(), &info) < 0) return SystemError("look up", name);
    if (S_ISDIR(info.st_mode)) return FileInfo{0, true};
    return FileInfo{static_cast<uint64_t>(info.st_size), false};
  }

  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& directory) override {
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(opendir(directory.c_str()), closedir);
    if (stream == nullptr) return SystemError("list", directory);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = readdir(stream.get())) {
      const absl::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
      errno = 0;
    }
    if (errno != 0) return SystemError("list", directory);
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::Status CreateDirectory(const std::string& directory) override {
    // From the top down; existing directories are skipped.
    for (size_t end = 0; end != std::string::npos;) {
      end = directory.find('/', end + 1);
      const std::string part = directory.substr(0, end);
      if (mkdir(part.c_str(), 0777) == 0) continue;
      // Any error (EEXIST, EROFS, EACCES, ...) is ignored if the directory exists.
      const int error = errno;
      const absl::StatusOr<FileInfo> info = Stat(part);
      if (info.ok() && info->is_directory) continue;
      errno = info.ok() ? ENOTDIR : error;
      return SystemError("create directory", part);
    }
    return absl::OkStatus();
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (rename(from.c_str(), to.c_str()) < 0)
      return SystemError("rename", absl::StrCat(from, " to ", to));
    return absl::OkStatus();
  }

  absl::Status Remove(const std::string& name) override {
    if (remove(name.c_str()) < 0) return SystemError("remove", name);
    return absl::OkStatus();
  }

  absl::Status SyncDirectory(const std::string& directory) override {
    ASSIGN_OR_RETURN(const Descriptor file,
                     Open(directory, O_RDONLY | O_DIRECTORY, "open directory"));
    if (RetryOnSignal([&] { return fsync(file.get()); }) < 0)
      return SystemError("sync directory", directory);
    return absl::OkStatus();
  }
};

std::string DirectoryOf(const std::string& name) {
  const size_t slash = name.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : name.substr(0, slash);
}

constexpr size_t kFirstRead = size_t{64} << 10, kMostRead = size_t{2} << 30;

}  // namespace

FileSystem& FileSystem::Real() {
  static RealFileSystem* const file_system = new RealFileSystem;
  return *file_system;
}

absl::StatusOr<std::string> FileSystem::ReadFile(const std::string& name) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file, OpenRandomAccess(name));
  // The size is only a first guess: files in /proc report 0, and a file may grow. With room for one
  // byte more, a single read also shows the end of the file.
  const absl::StatusOr<FileInfo> info = Stat(name);
  std::string bytes;
  size_t length = 0;
  size_t room = info.ok() && info->size_bytes > 0 ? info->size_bytes + 1 : kFirstRead;
  while (true) {
    if (room > kMostRead)
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot read ", name, ": it has more than ", kMostRead >> 20, " MiB"));
    bytes.resize(room);
    ASSIGN_OR_RETURN(const size_t got,
                     file->ReadAt(length, absl::MakeSpan(&bytes[length], room - length)));
    length += got;
    if (length < room) break;
    room *= 2;
  }
  bytes.resize(length);
  return bytes;
}

absl::Status FileSystem::CreateDurableDirectory(const std::string& directory) {
  std::vector<std::string> to_sync;  // the deepest first
  std::string missing = directory;
  while (!missing.empty() && absl::IsNotFound(Stat(missing).status())) {
    to_sync.push_back(DirectoryOf(missing));
    missing = to_sync.back();
  }
  RETURN_IF_ERROR(CreateDirectory(directory));
  for (auto name = to_sync.rbegin(); name != to_sync.rend(); ++name)
    RETURN_IF_ERROR(SyncDirectory(*name));
  return absl::OkStatus();
}

absl::Status FileSystem::ReplaceFile(const std::string& name, absl::string_view bytes) {
  const std::string unfinished = name + ".tmp";
  absl::StatusOr<std::unique_ptr<WritableFile>> made =
      OpenForWrite(unfinished, WriteMode::kCreateNew);
  // A process that was killed has left the file, or another user has put it there. It is removed
  // and not reused, because its owner, or the target of a link, may be someone else.
  if (absl::IsAlreadyExists(made.status())) {
    RETURN_IF_ERROR(Remove(unfinished));
    made = OpenForWrite(unfinished, WriteMode::kCreateNew);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, std::move(made));
  RETURN_IF_ERROR(file->Append(bytes));
  RETURN_IF_ERROR(file->Sync());
  RETURN_IF_ERROR(file->Close());
  RETURN_IF_ERROR(Rename(unfinished, name));
  return SyncDirectory(DirectoryOf(name));
}

}  // namespace divvy
